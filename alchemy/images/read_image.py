"""Read image and mask files with Pillow; errors name the file and how to fix it."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.data.files import check_file
from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package

SUFFIXES = [".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"]  # of image files
IGNORED_PIXEL = 255  # the value of mask pixels that losses and scores ignore
END_MARKS = {b"\x89P": b"IEND", b"\xff\xd8": b"\xff\xd9"}  # by the first bytes of png and jpeg files
EXIF_ORIENTATION = 0x0112
METADATA = {"exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"}  # where Pillow finds the orientation


def read_image(
    file: str | Path,
    *,
    mode: str = "RGB",
    size: tuple[int, int] | None = None,
    limits: tuple[float, float] | None = None,
) -> np.ndarray:
    """Return an image as an array `[height, width, channels]`, without the channels if it is grayscale.

    The orientation in the EXIF data is applied. `mode` converts the image to a mode of Pillow, such as "RGB" or "L"; ""
    keeps the mode of the file. `size` is `(height, width)`. An image with more than 8 bits per pixel is converted to
    another mode only with `limits`, the values that become 0 and 255. Only the first frame of an animation is read.
    """
    with _opened(file) as image:
        if limits is not None and image.mode[0] in "IF":
            image = _to_bytes(image, limits)
        if image.mode[0] in "IF" and mode and mode[0] not in "IF":
            raise _too_deep(file, np.array(image), mode)
        if mode and image.mode != mode:
            image = image.convert(mode)
        if size is not None:
            image = image.resize((size[1], size[0]), resample=_pillow().Resampling.BILINEAR)
        return np.array(image)


def read_mask(file: str | Path, *, size: tuple[int, int] | None = None) -> np.ndarray:
    """Return the pixel values of a mask as an array `[height, width]`, or `[height, width, 3]` for an RGB image.

    The values of a palette image are the indices of its colors. `size` is `(height, width)`; a resized mask has
    no new values.
    """
    with _opened(file) as image:
        if image.mode == "1":
            image = image.convert("L").point([0] * 128 + [1] * 128)
        elif image.mode in ("LA", "PA"):
            image = image.getchannel(0)
        elif image.mode in ("RGBA", "CMYK", "YCbCr"):
            image = image.convert("RGB")
        if size is not None:
            image = image.resize((size[1], size[0]), resample=_pillow().Resampling.NEAREST)
        return np.array(image)


def check_image(file: str | Path, *, pixels: bool = False) -> tuple[int, int]:
    """Return the height and width of an image in the orientation of its EXIF data; raise if it is damaged.

    Only its header and its last bytes are read, unless they suggest that the file is truncated. With `pixels`, the
    whole image is read.
    """
    with _opened(file, pixels=pixels or _looks_truncated(file)) as image:
        width, height = image.size
        return height, width


def _looks_truncated(file: str | Path) -> bool:
    """Return whether a png or jpeg file lacks its end, or has other data after it."""
    try:
        with open(file, "rb") as stream:
            end = END_MARKS.get(stream.read(2))
            stream.seek(max(os.path.getsize(file) - 64, 0))
            return end is not None and end not in stream.read()
    except OSError:  # Pillow reports it
        return False


@contextlib.contextmanager
def _opened(file: str | Path, *, pixels: bool = True) -> Iterator[Any]:
    """Open an image in its EXIF orientation, and convert the errors of Pillow.

    Without `pixels`, only the header is read.
    """
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            warnings.filterwarnings("ignore", category=UserWarning, module="PIL")  # damaged metadata
            with pillow.open(file) as image:
                yield _turn_upright(image, pixels)
    except AlchemyError:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        text = f"{str(file)!r} has too many pixels: the limit is {pillow.MAX_IMAGE_PIXELS:,}"
        hint = "shrink the image or cut it into tiles, or set PIL.Image.MAX_IMAGE_PIXELS in your code if you trust it"
        raise AlchemyError(text, hint=hint) from error
    # Pillow raises SyntaxError for a broken png, and struct.error, KeyError or IndexError for damaged headers
    except Exception as error:
        raise _explain(file, error) from error


def _turn_upright(image: Any, pixels: bool) -> Any:
    """Apply the orientation in the EXIF data; without `pixels`, only swap height and width if needed."""
    if pixels:
        image.load()  # a png may have its EXIF data after its pixels
    if not image.info.keys() & METADATA and image.format != "TIFF":
        return image  # getexif() would search the whole file
    orientation = image.getexif().get(EXIF_ORIENTATION, 1)
    if pixels and orientation in range(2, 9):
        return import_package("PIL.ImageOps", "read_image").exif_transpose(image)
    # Pillow swaps the sides of TIFF images itself
    return _Header(image.size[::-1]) if orientation in range(5, 9) and image.format != "TIFF" else image


class _Header:
    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size


def _to_bytes(image: Any, limits: tuple[float, float]) -> Any:
    low, high = limits
    if not high > low:
        raise AlchemyError(f"limits = {[low, high]}: the second value must be larger than the first")
    values = (np.array(image).astype(np.float64) - low) * (255 / (high - low))
    return _pillow().fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


def _too_deep(file: str | Path, values: np.ndarray, mode: str) -> AlchemyError:
    text = (
        f"{str(file)!r} has more than 8 bits per pixel, which mode = {mode!r} would clip: "
        f"its values range from {values.min()} to {values.max()}"
    )
    hint = (
        "set limits to the range of all images, such as limits = [0, 4095], in [task.data] of an image task, "
        'otherwise in the processor, which can also keep the values with mode = ""'
    )
    return AlchemyError(text, hint=hint)


def _explain(file: str | Path, error: Exception) -> AlchemyError:
    path = check_file(file)  # raises if it does not exist or is a folder
    hint = 'replace or remove the file, or set bad = "skip"'
    if os.path.getsize(path) == 0:
        return AlchemyError(f"{str(file)!r} is not a readable image: the file is empty", hint=hint)
    reason = str(error)
    if "cannot identify image file" in reason:
        reason = f"its contents are in no image format that Pillow knows, or its header is damaged: {_head(path)}"
    return AlchemyError(f"{str(file)!r} is not a readable image: {reason}", hint=hint)


def _head(path: Path) -> str:
    with open(path, "rb") as file:
        return f"it begins with {file.read(8)!r}"


@functools.cache
def _pillow() -> Any:
    return import_package("PIL.Image", "read_image")
