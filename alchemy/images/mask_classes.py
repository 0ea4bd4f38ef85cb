"""Convert the pixel values of masks to class ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.images.read_image import IGNORED_PIXEL

Pixel = int | Sequence[int]  # a gray value or palette index, or the red, green and blue of a color


@dataclass(frozen=True)
class MaskClasses:
    """The classes of masks: their number, the pixel value of each (by default its id), and the value to ignore."""

    count: int
    values: Sequence[Pixel] | None = None
    ignored: Pixel | None = IGNORED_PIXEL

    def __post_init__(self) -> None:
        if not 1 <= self.count <= IGNORED_PIXEL:
            raise AlchemyError(f"masks can have 1 to {IGNORED_PIXEL} classes, not {self.count}")
        if self.values is not None and len(self.values) != self.count:
            text = f"values has {len(self.values)} pixel values for {self.count} classes"
            raise AlchemyError(text, hint="list one pixel value, or one color, for each class")
        codes = [_code(value) for value in self.pixel_values()]
        if len(set(codes)) < len(codes):
            raise AlchemyError(f"values has a duplicate: {list(self.values or [])}")

    def pixel_values(self) -> list[Pixel]:
        return list(range(self.count)) if self.values is None else list(self.values)

    def to_ids(self, pixels: np.ndarray, file: str) -> np.ndarray:
        """Return a mask of class ids as uint8 `[height, width]`; ignored pixels are 255."""
        codes = _to_codes(pixels, self.pixel_values(), file)
        known = [_code(value) for value in self.pixel_values()]
        table = dict(zip(known, range(self.count)))
        if self.ignored is not None:
            table.setdefault(_code(self.ignored), IGNORED_PIXEL)
        if codes.dtype == np.uint8:
            ids, valid = _lookup_tables(table)
            if not valid[codes].all():
                raise self._unknown(codes, valid[codes], file)
            return ids[codes]
        ordered = np.array(sorted(table))
        places = np.minimum(np.searchsorted(ordered, codes), len(ordered) - 1)
        valid = ordered[places] == codes
        if not valid.all():
            raise self._unknown(codes, valid, file)
        return np.array([table[code] for code in ordered.tolist()], np.uint8)[places]

    def _unknown(self, codes: np.ndarray, valid: np.ndarray, file: str) -> AlchemyError:
        wrong, counts = np.unique(codes[~valid], return_counts=True)
        row, column = (int(place[0]) for place in np.nonzero(~valid))
        names = [_code_text(int(code), self.pixel_values()) for code in wrong[:5]]
        text = (
            f"the mask {file!r} has {int(counts.sum()):,} pixels that belong to no class: {', '.join(names)}"
            f"{', ..' if len(wrong) > 5 else ''}, the first in row {row}, column {column}"
        )
        listed = ", ".join(map(str, self.pixel_values()[:8])) + (", .." if self.count > 8 else "")
        hint = f"the classes are {listed}; list all classes, set values to their pixel values, or correct the mask"
        return AlchemyError(text, hint=hint)


def _code(value: Pixel) -> int:
    """Return a gray value, or a color as one number."""
    if isinstance(value, int):
        return value
    if len(value) != 3 or not all(isinstance(part, int) for part in value):
        raise AlchemyError(f"values: {value!r} is neither a number nor a color", hint="write [red, green, blue]")
    return value[0] << 16 | value[1] << 8 | value[2]


def _code_text(code: int, values: Sequence[Pixel]) -> str:
    return str(code) if isinstance(values[0], int) else str([code >> 16, code >> 8 & 255, code & 255])


def _to_codes(pixels: np.ndarray, values: Sequence[Pixel], file: str) -> np.ndarray:
    colors = not isinstance(values[0], int)
    if pixels.ndim == 3 and not colors and pixels.shape[2] == 3 and (pixels == pixels[..., :1]).all():
        return pixels[..., 0]  # gray values, saved as colors
    if (pixels.ndim == 3) != colors or pixels.dtype.kind not in "ui":
        kind = "colors" if pixels.ndim == 3 else "gray values or palette indices"
        hint = "set values to one color [red, green, blue] per class" if pixels.ndim == 3 else "set values to numbers"
        raise AlchemyError(f"the mask {file!r} has {kind}", hint=hint)
    if not colors:
        return pixels
    wide = pixels.astype(np.int32)
    return wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def _lookup_tables(table: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    ids, valid = np.zeros(256, np.uint8), np.zeros(256, bool)
    for code, number in table.items():
        if 0 <= code < 256:
            ids[code], valid[code] = number, True
    return ids, valid
