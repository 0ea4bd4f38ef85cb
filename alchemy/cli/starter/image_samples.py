"""Deterministic sample images, drawn by code, for projects created without data."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

from alchemy.optional_packages import import_package

SHAPES = ("circle", "cross", "square")
CLASSES = ("background", "disc", "ring")
SIZES = {"train": 80, "dev": 20, "test": 20}  # images, of each class for classification
SIDE, FIELD = 32, 64  # sides of the images for classification and segmentation
Color = tuple[int, int, int]


def image_files(kind: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the contents of each sample image of a kind of project."""
    for split, count in SIZES.items():
        draw = random.Random(f"{kind} {split}")
        for number in range(count):
            if kind == "image":
                for shape in SHAPES:
                    yield f"data/{split}/{shape}/{number:03}.png", _png(_shape(shape, draw))
            else:
                image, mask = _cells(draw)
                yield f"data/{split}/images/{number:03}.png", _png(image)
                yield f"data/{split}/masks/{number:03}.png", _png(mask)


def _shape(shape: str, draw: random.Random) -> Any:
    """Return a picture of a shape with a random color, size and place on a noisy background."""
    image, pen = _canvas(SIDE, draw)
    side = draw.randrange(9, 19)
    x, y = (draw.randrange(1, SIDE - side - 1) for _ in range(2))
    box, color = (x, y, x + side, y + side), _color(draw, 90, 256)
    if shape == "circle":
        pen.ellipse(box, fill=color)
    elif shape == "square":
        pen.rectangle(box, fill=color)
    else:
        pen.line(box, fill=color, width=4)
        pen.line((x, y + side, x + side, y), fill=color, width=4)
    return image


def _cells(draw: random.Random) -> tuple[Any, Any]:
    """Return a picture with discs and rings, and its mask of class ids."""
    image, pen = _canvas(FIELD, draw)
    mask = import_package("PIL.Image", "alchemy new").new("P", (FIELD, FIELD), 0)
    mask.putpalette([0, 0, 0, 255, 176, 0, 100, 143, 255])
    mask_pen = import_package("PIL.ImageDraw", "alchemy new").Draw(mask)
    for _ in range(draw.randrange(2, 6)):
        side, number = draw.randrange(10, 22), draw.randrange(1, len(CLASSES))
        x, y = (draw.randrange(1, FIELD - side - 1) for _ in range(2))
        box, hole = (x, y, x + side, y + side), (x + 4, y + 4, x + side - 4, y + side - 4)
        pen.ellipse(box, fill=_color(draw, 90, 256))
        mask_pen.ellipse(box, fill=number)
        if CLASSES[number] == "ring":
            pen.ellipse(hole, fill=(20, 20, 20))
            mask_pen.ellipse(hole, fill=0)
    return image, mask


def _canvas(side: int, draw: random.Random) -> tuple[Any, Any]:
    pillow, drawing = import_package("PIL.Image", "alchemy new"), import_package("PIL.ImageDraw", "alchemy new")
    noise = bytes(value // 5 for value in draw.randbytes(side * side * 3))
    image = pillow.frombytes("RGB", (side, side), noise)
    return image, drawing.Draw(image)


def _color(draw: random.Random, low: int, high: int) -> Color:
    return draw.randrange(low, high), draw.randrange(low, high), draw.randrange(low, high)


def _png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
