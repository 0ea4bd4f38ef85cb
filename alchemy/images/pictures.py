"""Draw pictures of images and masks, and write them as PNG files."""

from __future__ import annotations

import heapq
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.files import write_atomic
from alchemy.optional_packages import import_package

SIDE = 128  # the sides of small images are enlarged to at least this size, so that captions fit
LARGEST = 768  # larger images are shrunk
LONGEST = 200  # characters of a caption
BORDER, LINE = 4, 14  # pixels between images, and height of a caption
COLORS = (
    (0, 0, 0), (255, 176, 0), (100, 143, 255), (220, 38, 127), (0, 190, 130), (254, 97, 0), (120, 94, 240),
    (230, 230, 60), (0, 220, 230), (150, 80, 40), (240, 150, 200), (160, 200, 120),
)  # fmt: skip


def class_color(number: int) -> tuple[int, int, int]:
    """Return the color of a class in overlays and mask files; class 0 is black."""
    if number < len(COLORS):
        return COLORS[number]
    red, green, blue = ((number * step) % 200 + 55 for step in (67, 131, 193))
    return red, green, blue


def to_rgb(image: np.ndarray) -> np.ndarray:
    """Return a uint8 image [H, W], [H, W, 1], [H, W, 3] or [H, W, 4] as [H, W, 3]."""
    image = image[..., None] if image.ndim == 2 else image
    return np.repeat(image[..., :1], 3, axis=-1) if image.shape[-1] < 3 else image[..., :3]


def overlay(image: np.ndarray, mask: np.ndarray, alpha: float = 0.45) -> np.ndarray:
    """Return an image [H, W, 3] with the classes of a mask drawn over it; class 0 and ignored pixels stay clear."""
    picture = to_rgb(image).astype(np.float32)
    for number in np.unique(mask):
        if 0 < number < 255:
            here = mask == number
            picture[here] = (1 - alpha) * picture[here] + alpha * np.array(class_color(int(number)), np.float32)
    return picture.round().astype(np.uint8)


def shrink(image: np.ndarray, side: int) -> np.ndarray:
    """Return every n-th pixel of an image, so that its sides are at most `side` pixels."""
    step = -(-max(image.shape[:2]) // side)
    return image[::step, ::step]


def side_by_side(images: Sequence[np.ndarray]) -> np.ndarray:
    """Return images [H, W, 3] of one height in a row, with a white line between them."""
    line = np.full((len(images[0]), 1, 3), 255, np.uint8)
    return np.concatenate([part for image in images for part in (line, image)][1:], axis=1)


def resize_mask(mask: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Resize a mask to the given height and width; each pixel gets the value of the nearest pixel."""
    rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(mask.shape, size))
    return mask[rows[:, None], columns]


def draw_grid(tiles: Sequence[tuple[np.ndarray, str]], columns: int = 0) -> bytes:
    """Return a PNG file with images [H, W, 3] in rows, each with its caption, if any, below it."""
    pillow, drawing = import_package("PIL.Image", "a picture"), import_package("PIL.ImageDraw", "a picture")
    images = [_fit(pillow.fromarray(to_rgb(image))) for image, _ in tiles]
    columns = columns or max(1, 1600 // (max(image.width for image in images) + BORDER))
    columns = min(columns, len(images))
    width, height = (max(sides) for sides in zip(*(image.size for image in images)))
    step_x, step_y = width + BORDER, height + BORDER + (LINE if any(caption for _, caption in tiles) else 0)
    rows = -(-len(images) // columns)
    canvas = pillow.new("RGB", (columns * step_x + BORDER, rows * step_y + BORDER), "white")
    pen = drawing.Draw(canvas)
    for number, (image, (_, caption)) in enumerate(zip(images, tiles)):
        x, y = BORDER + number % columns * step_x, BORDER + number // columns * step_y
        canvas.paste(image, (x, y))
        pen.text((x, y + height + 1), _shorten(pen, caption, width), fill="black")
    return _png(canvas)


def write_mask(path: Path, mask: np.ndarray) -> None:
    """Write a mask as a PNG file whose pixel values are the class ids, with a palette that makes them visible."""
    pillow = import_package("PIL.Image", "a mask file")
    image = pillow.fromarray(mask.astype(np.uint8))
    image.putpalette([value for number in range(256) for value in class_color(number)])
    write_atomic(path, _png(image))


class Hardest:
    """The images of an evaluation with the largest losses.

    Of equal losses, the earlier sample is kept, so the result does not depend on the batches.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: list[tuple[float, int, np.ndarray, str]] = []

    def begin(self) -> None:
        self._kept = []

    def fits(self, loss: float) -> bool:
        """Return whether an image with this loss is among the hardest so far."""
        return len(self._kept) < self.limit or (self.limit > 0 and loss >= self._kept[0][0])

    def add(self, loss: float, index: int, picture: np.ndarray, caption: str) -> None:
        """Add an image; the index of its sample makes the order of equal losses unique."""
        push = heapq.heappush if len(self._kept) < self.limit else heapq.heappushpop
        push(self._kept, (loss, -index, picture, caption))

    def draw(self, columns: int = 0) -> bytes | None:
        """Return a PNG file with the hardest images first; None if there are none."""
        kept = sorted(self._kept, key=lambda entry: entry[:2], reverse=True)
        return draw_grid([(picture, caption) for _, _, picture, caption in kept], columns) if kept else None


def _fit(image: Any) -> Any:
    """Enlarge a small image by a whole factor, or shrink a large one."""
    longest = max(image.size)
    # a flat image is enlarged only as far as its long side allows
    enlarged = max(1, min(SIDE // min(image.size), LARGEST // longest))
    factor: float = enlarged if longest <= LARGEST else LARGEST / longest
    size = tuple(max(1, round(length * factor)) for length in image.size)
    resampling = import_package("PIL.Image", "a picture").Resampling
    return image if size == image.size else image.resize(size, resampling.NEAREST if factor > 1 else resampling.BOX)


def _shorten(pen: Any, text: str, width: int) -> str:
    text = " ".join(text[:LONGEST].split())
    while text and pen.textlength(text) > width:
        text = text[:-1]
    return text


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
