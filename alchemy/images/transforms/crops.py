"""Transforms that change the size of images: resize, pad and crop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alchemy.constraints import Fraction, NonNegativeInt, PositiveFloat
from alchemy.errors import AlchemyError
from alchemy.images.draws import Draws
from alchemy.images.read_image import IGNORED_PIXEL
from alchemy.images.transforms.base import (
    ImageBatch,
    ImageTransform,
    Interpolation,
    Size,
    check_range,
    on_both,
    random_box,
    to_size,
)
from alchemy.optional_packages import import_package


@ImageTransform.register()
class Resize(ImageTransform):
    """Resizes images to `size` with Pillow, antialiased when shrinking; masks are resized without interpolation.

    With `keep_ratio`, the image keeps its aspect ratio and gets the smallest size that covers `size`; crop it then.
    """

    packages = ("PIL",)

    def __init__(self, size: Size, *, keep_ratio: bool = False, interpolation: Interpolation = "bilinear") -> None:
        self.size, self.keep_ratio, self.interpolation = to_size(size), keep_ratio, interpolation

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        images, (height, width) = np.asarray(batch.images), self.size
        if self.keep_ratio:
            ratio = max(height / images.shape[1], width / images.shape[2])
            height, width = max(height, round(images.shape[1] * ratio)), max(width, round(images.shape[2] * ratio))
        boxes = np.tile([0, 0, images.shape[2], images.shape[1]], (len(images), 1))
        return resize_boxes(batch, boxes, (height, width), self.interpolation)


@ImageTransform.register()
class CenterCrop(ImageTransform):
    """Crops the center of each image to `size`."""

    def __init__(self, size: Size) -> None:
        self.size = to_size(size)

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        shape = np.asarray(batch.images).shape[1:3]
        check_covers(shape, self.size, self)
        top, left = ((have - want) // 2 for have, want in zip(shape, self.size))
        box = (slice(None), slice(top, top + self.size[0]), slice(left, left + self.size[1]))
        return on_both(batch, lambda array, _: array[box])


@ImageTransform.register()
class Pad(ImageTransform):
    """Pads images smaller than `size` on all sides, with `fill` for images and 255 (ignored) for masks."""

    def __init__(self, size: Size, *, fill: float = 0) -> None:
        self.size, self.fill = to_size(size), fill

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        shape = np.asarray(batch.images).shape[1:3]
        more = [max(want - have, 0) for have, want in zip(shape, self.size)]
        return pad_batch(batch, [(add // 2, add - add // 2) for add in more], self.fill)


@ImageTransform.register()
class RandomCrop(ImageTransform):
    """Pads each side by `pad` pixels and crops a random part of `size`, by default the size of the image.

    Padding is `fill` in images and 255 (ignored) in masks.
    """

    def __init__(self, size: Size | None = None, *, pad: NonNegativeInt = 0, fill: float = 0) -> None:
        self.size, self.pad, self.fill = None if size is None else to_size(size), pad, fill
        if size is None and not pad:
            raise AlchemyError("RandomCrop changes nothing without size and pad", hint="set size, pad or both")

    def draw(self, draws: Draws) -> np.ndarray:
        return draws.uniform(shape=(2,))

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        height, width = np.asarray(batch.images).shape[1:3]
        size = self.size or (height, width)
        large = (height + 2 * self.pad, width + 2 * self.pad)
        check_covers(large, size, self)
        places = (drawn_BK * [large[0] - size[0] + 1, large[1] - size[1] + 1]).astype(np.int64)
        padded = pad_batch(batch, [(self.pad, self.pad)] * 2, self.fill) if self.pad else batch
        return on_both(padded, lambda array, _: crop_each(array, places, size))


@ImageTransform.register()
class RandomResizedCrop(ImageTransform):
    """Crops a random part with a random `area` (a share of the image) and `ratio` (width / height), and resizes it."""

    packages = ("PIL",)

    def __init__(
        self,
        size: Size,
        *,
        area: tuple[Fraction, Fraction] = (0.25, 1.0),
        ratio: tuple[PositiveFloat, PositiveFloat] = (0.75, 1.3333),
        interpolation: Interpolation = "bilinear",
    ) -> None:
        self.size, self.area, self.ratio, self.interpolation = to_size(size), area, ratio, interpolation
        check_range("area", area)
        check_range("ratio", ratio)

    def draw(self, draws: Draws) -> np.ndarray:
        return draws.uniform(shape=(4,))

    def apply(self, batch: ImageBatch, drawn_BK: np.ndarray) -> ImageBatch:
        height, width = np.asarray(batch.images).shape[1:3]
        boxes = [random_box(row, (height, width), self.area, self.ratio) for row in drawn_BK.tolist()]
        return resize_boxes(batch, np.array(boxes), self.size, self.interpolation)


def pad_batch(batch: ImageBatch, sides: Sequence[tuple[int, int]], fill: float) -> ImageBatch:
    """Pad the rows and columns of a batch."""

    def pad(array: np.ndarray, is_mask: bool) -> np.ndarray:
        shape = [size + sum(side) for size, side in zip(array.shape[1:3], sides)]
        padded = np.full((len(array), *shape, array.shape[3]), IGNORED_PIXEL if is_mask else fill, array.dtype)
        inner = [slice(side[0], side[0] + size) for size, side in zip(array.shape[1:3], sides)]
        padded[:, inner[0], inner[1]] = array
        return padded

    return on_both(batch, pad) if any(map(any, sides)) else batch


def crop_each(array_BHWC: np.ndarray, places_B2: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return a crop of each image, which begins at the row and column in `places_B2`."""
    out = np.empty((len(array_BHWC), *size, array_BHWC.shape[3]), array_BHWC.dtype)
    for target, image, (top, left) in zip(out, array_BHWC, places_B2.tolist()):
        target[:] = image[top : top + size[0], left : left + size[1]]
    return out


def resize_boxes(
    batch: ImageBatch, boxes_B4: np.ndarray, size: tuple[int, int], interpolation: Interpolation
) -> ImageBatch:
    """Resize the box `(left, top, right, bottom)` of each image to `size`."""
    if size == np.asarray(batch.images).shape[1:3] and (boxes_B4 == [0, 0, size[1], size[0]]).all():
        return batch
    methods = import_package("PIL.Image", "Resize").Resampling

    def resize(array: np.ndarray, is_mask: bool) -> np.ndarray:
        method = methods.NEAREST if is_mask or interpolation == "nearest" else methods.BILINEAR
        out = np.empty((len(array), *size, array.shape[3]), array.dtype)
        for target, image, box in zip(out, array, boxes_B4.tolist()):
            target[:] = _resize_one(image, tuple(box), size, method)
        return out

    return on_both(batch, resize)


def _resize_one(image_HWC: np.ndarray, box: tuple[int, ...], size: tuple[int, int], method: Any) -> np.ndarray:
    pillow, channels = import_package("PIL.Image", "Resize"), image_HWC.shape[2]
    whole = image_HWC.dtype == np.uint8 and channels in (1, 3, 4)
    planes = [image_HWC[..., 0] if channels == 1 else image_HWC] if whole else np.moveaxis(image_HWC, 2, 0)
    made = []
    for plane in planes:
        source = plane if whole or plane.dtype == np.uint8 else plane.astype(np.float32)  # Pillow's mode F
        made.append(np.asarray(pillow.fromarray(np.ascontiguousarray(source)).resize(size[::-1], method, box)))
    stacked = made[0].reshape(*size, channels) if whole else np.stack(made, axis=2)
    return np.rint(stacked) if image_HWC.dtype.kind in "ui" and stacked.dtype.kind == "f" else stacked


def check_covers(shape: Sequence[int], size: Sequence[int], transform: object) -> None:
    """Raise if an image is smaller than the part to be cropped."""
    if shape[0] < size[0] or shape[1] < size[1]:
        text = f"{type(transform).__name__}: an image of {shape[0]} x {shape[1]} is smaller than {size[0]} x {size[1]}"
        raise AlchemyError(text, hint="put alchemy.images.transforms.Pad or Resize before it")
