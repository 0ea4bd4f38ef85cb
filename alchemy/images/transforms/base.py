"""The contract of image transforms, and batches of images with their masks.

Images are NumPy arrays until they are collated: uint8 needs a quarter of the memory of float32, and workers run no
torch threads. B: images, H, W: height and width, C: channels, K: drawn values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from alchemy.constraints import PositiveInt
from alchemy.errors import AlchemyError, BadSample
from alchemy.images.draws import Draws
from alchemy.registry import Registrable

Size = PositiveInt | tuple[PositiveInt, PositiveInt]  # a square, or height and width
Interpolation = Literal["bilinear", "nearest"]
Arrays = np.ndarray | list[np.ndarray]


@dataclass
class ImageBatch:
    """Images `[B, H, W, C]` and masks `[B, H, W]`, or lists of `[H, W, C]` and `[H, W]` while sizes differ."""

    images: Arrays
    masks: Arrays | None = None

    def __len__(self) -> int:
        return len(self.images)

    def one(self, index: int) -> ImageBatch:
        """Return a batch with only the image at `index`."""
        masks = None if self.masks is None else np.asarray(self.masks[index])[None]
        return ImageBatch(np.asarray(self.images[index])[None], masks)


def join_batches(batches: Sequence[ImageBatch]) -> ImageBatch:
    """Join batches of arrays; the result has lists if the sizes differ."""
    images = join_arrays([np.asarray(batch.images) for batch in batches])
    if any(batch.masks is None for batch in batches):
        return ImageBatch(images)
    return ImageBatch(images, join_arrays([np.asarray(batch.masks) for batch in batches]))


def join_arrays(arrays: Sequence[np.ndarray]) -> Arrays:
    """Concatenate arrays `[b, ..]` of equal size, or return a list of their items."""
    if len({(array.shape[1:], array.dtype) for array in arrays}) == 1:
        return np.concatenate(arrays)
    return [item for array in arrays for item in array]


class ImageTransform(Registrable):
    """Base class for image transforms.

    Define `apply`, which receives a batch of images of equal size. A random transform also defines `draw`, which draws
    its random values from `draws`. How many values it draws must not depend on the images, so that the values of a
    sample do not depend on the batch.
    """

    def __call__(self, images: ImageBatch, draws: Draws) -> ImageBatch:
        """Transform a batch, all images together if their sizes are equal."""
        drawn_BK = self.draw(draws)
        if isinstance(images.images, np.ndarray):
            return self.apply(images, drawn_BK)
        return join_batches([self._apply_to_one(images, drawn_BK, place) for place in range(len(images))])

    def _apply_to_one(self, images: ImageBatch, drawn_BK: np.ndarray, place: int) -> ImageBatch:
        try:
            return self.apply(images.one(place), drawn_BK[place : place + 1])
        except AlchemyError as error:
            raise BadSample(error.problem.message, row=place, hint=error.problem.hint) from error

    def draw(self, draws: Draws) -> np.ndarray:
        """Return the random values of each image as an array whose first dimension is the batch."""
        return np.empty((len(draws), 0))

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        """Transform images `[B, H, W, C]` and masks `[B, H, W]` of equal size."""
        raise NotImplementedError(f"{type(self).__name__} must define apply(self, batch, drawn_BK)")


def on_both(batch: ImageBatch, function: Callable[[np.ndarray, bool], np.ndarray]) -> ImageBatch:
    """Apply `function(array, is_mask)` to the images and the masks, both as `[B, H, W, C]`."""
    images = function(np.asarray(batch.images), False)
    if batch.masks is None:
        return ImageBatch(images)
    return ImageBatch(images, function(np.asarray(batch.masks)[..., None], True)[..., 0])


def to_size(size: int | Sequence[int]) -> tuple[int, int]:
    """Return the height and width of a size."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def check_range(name: str, values: Sequence[float]) -> None:
    if values[0] > values[1]:
        raise AlchemyError(f"{name} = {list(values)}: the first value must not be larger than the second")


def random_box(
    drawn: Sequence[float], shape: Sequence[int], areas: Sequence[float], ratios: Sequence[float]
) -> tuple[int, int, int, int]:
    """Return `(left, top, right, bottom)` of a box in an image, from four numbers between 0 and 1.

    Its share of the image is in the range `areas`, and its width / height in `ratios`, if the image has room for it.
    """
    area, ratio, down, right = drawn
    height, width = shape[:2]
    pixels = height * width * (areas[0] + area * (areas[1] - areas[0]))
    aspect = ratios[0] * (ratios[1] / ratios[0]) ** ratio
    tall = min(max(round(math.sqrt(pixels / aspect)), 1), height)
    wide = min(max(round(math.sqrt(pixels * aspect)), 1), width)
    top, left = int(down * (height - tall + 1)), int(right * (width - wide + 1))
    return left, top, left + wide, top + tall
