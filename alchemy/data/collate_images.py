"""A collate function for images, whose sizes may differ."""

# B batch, C channels, H height, W width

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from alchemy.data.collate import CollateFn, Pad
from alchemy.data.columns import Image, Mask
from alchemy.data.stacked import StackedSamples, StackedValues, stack_arrays
from alchemy.errors import AlchemyError

CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}


@CollateFn.register()
class StackImages(CollateFn):
    """Stacks uint8 images into a float32 tensor `image` [B, C, H, W], normalized by `mean` and `std`.

    Images are [H, W] or [H, W, C]; with `mode = "RGB"`, the channel of a grayscale image is repeated. `mean` and `std`
    refer to values from 0 to 1, with one number per channel or one for all. A `mask` field becomes an int64 tensor
    [B, H, W]. With `ragged`, images of different sizes become a list of batches with one image each; otherwise, they
    are an error. Other fields are collated by `alchemy.data.collate.Pad`.
    """

    def __init__(
        self,
        *,
        mode: Literal["RGB", "L", "RGBA"] = "RGB",
        mean: list[float] = [0.5],
        std: list[float] = [0.5],
        ragged: bool = False,
    ) -> None:
        super().__init__()
        self.mode, self.ragged, channels = mode, ragged, CHANNELS[mode]
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, channels):
                text = f"{name} has {len(values)} numbers, but images with mode = {mode!r} have {channels} channels"
                raise AlchemyError(text, hint="give one number for each channel, or one for all")
        if min(std) <= 0:
            raise AlchemyError(f"std = {std}: expected positive numbers")
        self.mean, self.std = (values * channels if len(values) == 1 else values for values in (mean, std))
        self._image, self._mask, self._others = Image(mean=self.mean, std=self.std), Mask(), Pad()

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        skipped = [name for name in ("image", "mask") if name in batch[0]]
        others = [{name: value for name, value in sample.items() if name not in skipped} for sample in batch]
        images = _stack(batch, "image")
        if images is None and not self.ragged:
            raise differing_sizes(batch)
        masks = _stack(batch, "mask") if "mask" in skipped else None
        out: dict[str, Any]
        if images is not None:
            out = self._collate(images, masks)
        else:
            parts = [self._collate(*(sample[name][None] for name in skipped)) for sample in batch]
            out = {name: [part[name] for part in parts] for name in skipped}
        return out | (self._others([*others]) if others[0] else {})

    def _collate(self, images: np.ndarray, masks: np.ndarray | None = None) -> dict[str, Tensor]:
        out = self._image("image", _with_rows(self._check(images)))
        return out if masks is None else out | self._mask("mask", _with_rows(masks))

    def _check(self, images: np.ndarray) -> np.ndarray:
        """Return images [B, H, W] or [B, H, W, C] as [B, H, W, C] with the channels of the mode."""
        if images.dtype != np.uint8:
            text = f"an image has the type {images.dtype}, expected uint8 values from 0 to 255"
            hint = "omit scale = true, and for more than 8 bits per pixel, set limits in [task.data] or the processor"
            raise AlchemyError(text, hint=hint)
        images = images[..., None] if images.ndim == 3 else images
        if images.shape[-1] == 1 and self.mode == "RGB":
            return np.broadcast_to(images, (*images.shape[:-1], 3))
        if images.shape[-1] != CHANNELS[self.mode]:
            text = f"an image has {images.shape[-1]} channels, but mode = {self.mode!r} means {CHANNELS[self.mode]}"
            raise AlchemyError(text, hint="set the same `mode` in [task] and in the processor")
        return images

    def restore(self, image_CHW: Tensor) -> np.ndarray:
        """Return the uint8 image [H, W, C] that a normalized image was computed from."""
        mean, std = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        values = (image_CHW.detach().cpu().float() * std + mean) * 255
        return values.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()


def differing_sizes(batch: list[Mapping[str, Any]]) -> AlchemyError:
    """Return the error for images of different sizes in a batch."""
    first = batch[0]
    other = next(sample for sample in batch if sample["image"].shape != first["image"].shape)
    names = [str(sample.get("file", "an image")) for sample in (first, other)]
    one, two = (" x ".join(map(str, sample["image"].shape)) for sample in (first, other))
    hint = (
        "set size = [HEIGHT, WIDTH] in [task] to resize all images, "
        "or add a Resize, CenterCrop or RandomCrop to `transforms` or `augment`"
    )
    return AlchemyError(f"{names[0]} has {one} pixels, but {names[1]} has {two}: a batch needs one size", hint=hint)


def _stack(batch: list[Mapping[str, Any]], name: str) -> np.ndarray | None:
    """Return the arrays of a field as one array, or None if their shapes differ."""
    if isinstance(batch, StackedSamples) and name in batch.stacked:
        return batch.stacked[name]
    return stack_arrays([sample[name] for sample in batch])


def _with_rows(array: np.ndarray) -> StackedValues:
    return StackedValues(array, array)
