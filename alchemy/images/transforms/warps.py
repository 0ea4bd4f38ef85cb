"""Transforms that move pixels: flip, rotate, shift, scale, shear and deform."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import numpy as np

from alchemy.constraints import Fraction, Ge, NonNegativeFloat, PositiveFloat
from alchemy.images.draws import Draws
from alchemy.images.read_image import IGNORED_PIXEL
from alchemy.images.resample import affine_positions, resample, smooth_field
from alchemy.images.transforms.base import ImageBatch, ImageTransform, Interpolation, check_range, on_both

# Python's functions, because the results of NumPy may depend on the position of a value in its array
TRIGONOMETRY = (math.cos, math.sin, math.tan)


@ImageTransform.register()
class RandomFlip(ImageTransform):
    """Mirrors images, left to right with probability `horizontal` and upside down with probability `vertical`."""

    def __init__(self, *, horizontal: Fraction = 0.5, vertical: Fraction = 0.0) -> None:
        self.horizontal, self.vertical = horizontal, vertical

    def draw(self, draws: Draws) -> np.ndarray:
        return draws.uniform(shape=(2,)) < [self.horizontal, self.vertical]

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        across, down = np.flatnonzero(drawn_BK[:, 0]), np.flatnonzero(drawn_BK[:, 1])

        def flip(array: np.ndarray, _: bool) -> np.ndarray:
            array = array.copy()
            array[across] = array[across, :, ::-1]
            array[down] = array[down, ::-1]
            return array

        return on_both(batch, flip) if len(across) or len(down) else batch


@ImageTransform.register()
class RandomAffine(ImageTransform):
    """Rotates by up to `degrees`, shifts by up to `shift` of each side, scales by a factor in `scale` and shears.

    `shear` is in degrees. Pixels from outside the image are `fill`, and 255 (ignored) in masks.
    """

    def __init__(
        self,
        *,
        degrees: NonNegativeFloat = 0.0,
        shift: Fraction = 0.0,
        scale: tuple[PositiveFloat, PositiveFloat] = (1.0, 1.0),
        shear: NonNegativeFloat = 0.0,
        fill: float = 0,
        interpolation: Interpolation = "bilinear",
    ) -> None:
        self.degrees, self.shift, self.scale, self.shear = degrees, shift, scale, shear
        self.fill, self.interpolation = fill, interpolation
        check_range("scale", scale)

    def draw(self, draws: Draws) -> np.ndarray:
        return draws.uniform(shape=(5,))

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        height, width = np.asarray(batch.images).shape[1:3]
        matrices = self._matrices(drawn_BK, height, width)
        return resample_batch(batch, *affine_positions(matrices, height, width), self.fill, self.interpolation)

    def _matrices(self, drawn_B5: np.ndarray, height: int, width: int) -> np.ndarray:
        """Return the matrices `[B, 2, 3]` from the output to the input."""
        turn, slant, zoom, down, right = drawn_B5.T
        angle, slope = (math.radians(most) * (2 * u - 1) for most, u in ((self.degrees, turn), (self.shear, slant)))
        factor = 1 / (self.scale[0] + zoom * (self.scale[1] - self.scale[0]))
        cos, sin, tan = (_each(function, values) for function, values in zip(TRIGONOMETRY, (angle, angle, slope)))
        cos, sin = cos * factor, sin * factor
        moves = (self.shift * height * (2 * down - 1), self.shift * width * (2 * right - 1))
        rows = ((cos, sin + cos * tan), (-sin, cos - sin * tan))
        terms = [(first, second, -first * moves[0] - second * moves[1]) for first, second in rows]
        return np.array(terms).transpose(2, 0, 1)


@ImageTransform.register()
class RandomRotate(ImageTransform):
    """Rotates by a random angle of up to `degrees` in both directions; see `RandomAffine`."""

    def __init__(
        self, degrees: NonNegativeFloat, *, fill: float = 0, interpolation: Interpolation = "bilinear"
    ) -> None:
        self.affine = RandomAffine(degrees=degrees, fill=fill, interpolation=interpolation)

    def draw(self, draws: Draws) -> np.ndarray:
        return self.affine.draw(draws)

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        return self.affine.apply(batch, drawn_BK)


@ImageTransform.register()
class ElasticDeform(ImageTransform):
    """Moves `points` x `points` control points by up to `pixels` in each direction, and the pixels between smoothly."""

    def __init__(
        self,
        pixels: PositiveFloat,
        *,
        points: Annotated[int, Ge(3)] = 5,
        fill: float = 0,
        interpolation: Interpolation = "bilinear",
    ) -> None:
        self.pixels, self.points, self.fill, self.interpolation = pixels, points, fill, interpolation

    def draw(self, draws: Draws) -> np.ndarray:
        return draws.uniform(-self.pixels, self.pixels, shape=(2, self.points, self.points))

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        height, width = np.asarray(batch.images).shape[1:3]
        rows_BHW = smooth_field(drawn_BK[:, 0], height, width) + np.arange(height, dtype=np.float32)[:, None]
        columns_BHW = smooth_field(drawn_BK[:, 1], height, width) + np.arange(width, dtype=np.float32)
        return resample_batch(batch, rows_BHW, columns_BHW, self.fill, self.interpolation)


def _each(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    return np.array([function(value) for value in values.tolist()])


def resample_batch(
    batch: ImageBatch, rows_BHW: np.ndarray, columns_BHW: np.ndarray, fill: float, interpolation: Interpolation
) -> ImageBatch:
    """Sample images and masks at the same positions; masks without interpolation."""

    def sample(array: np.ndarray, is_mask: bool) -> np.ndarray:
        nearest = is_mask or interpolation == "nearest"
        return resample(array, rows_BHW, columns_BHW, fill=IGNORED_PIXEL if is_mask else fill, nearest=nearest)

    return on_both(batch, sample)
