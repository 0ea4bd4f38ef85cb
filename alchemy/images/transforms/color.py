"""Transforms that change pixel values: color, contrast, gamma and erased parts; masks stay unchanged."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from alchemy.constraints import Fraction, Ge, Lt, PositiveFloat
from alchemy.images.draws import Draws
from alchemy.images.resample import to_dtype
from alchemy.images.transforms.base import ImageBatch, ImageTransform, check_range, random_box

GRAY = np.array([0.299, 0.587, 0.114], np.float32)  # the weights of red, green and blue


@ImageTransform.register()
class ColorJitter(ImageTransform):
    """Multiplies brightness, contrast and saturation by random factors from `1 - value` to `1 + value`.

    Saturation applies to images with three channels.
    """

    def __init__(self, *, brightness: Fraction = 0.0, contrast: Fraction = 0.0, saturation: Fraction = 0.0) -> None:
        self.brightness, self.contrast, self.saturation = brightness, contrast, saturation

    def draw(self, draws: Draws) -> np.ndarray:
        spread = np.array([self.brightness, self.contrast, self.saturation])
        return (1 + spread * draws.uniform(-1, 1, shape=(3,))).astype(np.float32)

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        images = np.asarray(batch.images)
        values = images.astype(np.float32)
        brightness, contrast, saturation = (drawn_BK[:, place, None, None, None] for place in range(3))
        if self.saturation and images.shape[3] == 3:
            gray = (values * GRAY).sum(axis=3, keepdims=True)
            values -= gray
            values *= saturation
            values += gray
        if self.contrast:
            mean = _mean(images).astype(np.float32)[:, None, None, None]
            values -= mean
            values *= contrast
            values += mean
        if self.brightness:
            values *= brightness
        return ImageBatch(to_dtype(values, images.dtype), batch.masks)


@ImageTransform.register()
class Autocontrast(ImageTransform):
    """Scales the values of each image so that its darkest pixels become 0 and its brightest ones the largest value.

    The share `cut` of the values is clipped at each end, so that a few bright spots do not determine the scale. The
    channels of an image are scaled together. An image with a single value stays unchanged.

    >>> image = np.array([[[[10], [20]], [[15], [11]]]], np.uint8)
    >>> np.asarray(Autocontrast(cut=0.0)(ImageBatch(image), Draws(1, range(1))).images)[0, ..., 0].tolist()
    [[0, 255], [128, 26]]
    """

    def __init__(self, *, cut: Annotated[float, Ge(0), Lt(0.5)] = 0.001) -> None:
        self.cut = cut

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        images = np.asarray(batch.images)
        top = _largest(images)
        ends = np.quantile(images.reshape(len(images), -1), [self.cut, 1 - self.cut], axis=1, method="nearest")
        low, high = ends.astype(np.float32)[..., None, None, None]
        flat = high <= low
        values = (images - np.where(flat, 0, low)) * np.where(flat, 1, top / np.where(flat, 1, high - low))
        return ImageBatch(to_dtype(values.clip(0, top), images.dtype), batch.masks)


@ImageTransform.register()
class Gamma(ImageTransform):
    """Raises pixel values, as fractions of the largest value, to the power of `gamma`.

    With a `gamma` below 1, dark parts become lighter.

    >>> image = np.array([[[[0], [16]], [[64], [255]]]], np.uint8)
    >>> np.asarray(Gamma(gamma=0.5)(ImageBatch(image), Draws(1, range(1))).images)[0, ..., 0].tolist()
    [[0, 64], [128, 255]]
    """

    def __init__(self, *, gamma: PositiveFloat) -> None:
        self.gamma = gamma

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        images = np.asarray(batch.images)
        top = _largest(images)
        values = np.maximum(images / np.float32(top), 0) ** np.float32(self.gamma) * np.float32(top)
        return ImageBatch(to_dtype(values, images.dtype), batch.masks)


@ImageTransform.register()
class RandomErase(ImageTransform):
    """Fills a random rectangle with `fill`, with probability `p`; `area` is its share of the image.

    `ratio` is the width of the rectangle divided by its height.
    """

    def __init__(
        self,
        *,
        p: Fraction = 0.5,
        area: tuple[Fraction, Fraction] = (0.02, 0.2),
        ratio: tuple[PositiveFloat, PositiveFloat] = (0.3, 3.3),
        fill: float = 0,
    ) -> None:
        self.p, self.area, self.ratio, self.fill = p, area, ratio, fill
        check_range("area", area)
        check_range("ratio", ratio)

    def draw(self, draws: Draws) -> np.ndarray:
        return draws.uniform(shape=(5,))

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        images = np.array(batch.images)
        for image, (chance, *box) in zip(images, drawn_BK.tolist()):
            if chance < self.p:
                left, top, right, bottom = random_box(box, image.shape, self.area, self.ratio)
                image[top:bottom, left:right] = self.fill
        return ImageBatch(images, batch.masks)


def _largest(images: np.ndarray) -> int:
    """Return the value of white: 255 for uint8, and 1 for floats."""
    return np.iinfo(images.dtype).max if images.dtype.kind == "u" else 1


def _mean(images: np.ndarray) -> np.ndarray:
    """Return the mean value of each image; integers are summed exactly, so that it does not depend on the batch."""
    if images.dtype.kind in "ui":
        return images.reshape(len(images), -1).sum(axis=1, dtype=np.int64) / images[0].size
    return np.array([image.mean(dtype=np.float64) for image in images])
