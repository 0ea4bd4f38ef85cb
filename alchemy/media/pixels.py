"""Convert images of all common layouts and types to 8-bit RGB."""

# C channels, H height, W width

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alchemy.images.pictures import draw_grid, shrink, to_rgb
from alchemy.media.snapshot import is_tensor, to_array
from alchemy.optional_packages import import_package

CHANNELS = (1, 3, 4)
LARGEST = 2048  # pixels per side; larger images are shrunk
MOST = 256  # images per grid


def to_pixels(image: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """Return an image as uint8 [H, W, 3], and remarks on how its values were changed.

    Tensors are [H, W] or [C, H, W]; arrays may also be [H, W, C]. Floats range from 0 to 1: if a value is outside, the
    image is scaled to its own range, which is returned as `range`. NaN and infinities become black, and `nan` is their
    number.

    >>> to_pixels(np.array([[0.0, 0.5], [1.0, np.nan]]))[0][..., 0].tolist()
    [[0, 128], [255, 0]]
    """
    if hasattr(image, "convert") and image.mode[0] not in "IF":  # a PIL image, unless it has more than 8 bits
        return shrink(np.asarray(image.convert("RGB")), LARGEST), {}
    pixels, remarks = _to_bytes(_channels_last(to_array(image), first=is_tensor(image)))
    return shrink(to_rgb(pixels), LARGEST), remarks


def split_images(images: Any) -> list[Any]:
    """Return the images of a list or of a batch [N, ...]; a grid shows at most `MOST` of them."""
    if not isinstance(images, Sequence) and np.ndim(images) not in (3, 4):
        raise ValueError(f"expected a list of images or a batch [N, C, H, W], got shape {tuple(np.shape(images))}")
    if not len(images):
        raise ValueError("there are no images")
    return list(images[:MOST])


def draw_images(images: Sequence[Any], captions: Sequence[str] = (), columns: int = 0) -> bytes:
    """Return a PNG file with a grid of images, in rows of `columns` (0: as many as fit)."""
    names = [*captions, *[""] * (len(images) - len(captions))]
    return draw_grid([(to_pixels(image)[0], name) for image, name in zip(images, names)], columns)


def png_size(data: bytes) -> dict[str, int]:
    """Return the width and height of a PNG file."""
    return {"width": int.from_bytes(data[16:20], "big"), "height": int.from_bytes(data[20:24], "big")}


def to_png(pixels: np.ndarray) -> bytes:
    """Return pixels [H, W, 3] as a PNG file."""
    from io import BytesIO

    file = BytesIO()
    import_package("PIL.Image", "an image").fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _channels_last(image: np.ndarray, *, first: bool) -> np.ndarray:
    """Return an image as [H, W] or [H, W, C]; `first` if its channels come first whenever that is possible."""
    shape = image.shape
    if 0 in shape or image.ndim not in (2, 3) or (image.ndim == 3 and not {shape[0], shape[2]} & set(CHANNELS)):
        raise ValueError(f"expected an image [H, W], [C, H, W] or [H, W, C] with 1, 3 or 4 channels, got {shape}")
    if image.ndim == 3 and shape[0] in CHANNELS and (first or shape[2] not in CHANNELS):
        return np.moveaxis(image, 0, 2)
    return image


def _to_bytes(image: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    if image.dtype == np.bool_:
        return image.astype(np.uint8) * 255, {}
    if image.dtype == np.uint16:
        return (image >> 8).astype(np.uint8), {}
    if np.issubdtype(image.dtype, np.integer):
        return image.clip(0, 255).astype(np.uint8), {}
    if not np.issubdtype(image.dtype, np.floating):
        raise ValueError(f"expected an image of integers or floats, got {image.dtype}")
    remarks: dict[str, Any] = {}
    image = image.astype(np.float64)  # the range of large values overflows in other types
    finite = np.isfinite(image)
    if not finite.all():
        remarks["nan"] = int(finite.size - finite.sum())
    low, high = (float(end(image[finite])) for end in (np.min, np.max)) if finite.any() else (0.0, 1.0)
    if low < 0 or high > 1:
        remarks["range"] = [low, high]
        image = (image - low) / max(high - low, 1e-30)
    return (np.where(finite, image, 0.0) * 255).round().astype(np.uint8), remarks
