"""Processor for pairs of images and segmentation masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from loguru import logger

from alchemy.constraints import FiniteFloat, PositiveInt
from alchemy.data.files import check_file, read_lines
from alchemy.data.messages import in_short
from alchemy.data.tables import OnBad
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.images.mask_classes import MaskClasses
from alchemy.images.read_image import IGNORED_PIXEL, SUFFIXES, read_mask
from alchemy.optional_packages import import_package
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.image_files import (
    Check,
    ImageReader,
    check_folder,
    check_images,
    files_below,
    lower_all,
)
from alchemy.pipeline.processors.labels import keep_labels, read_labels
from alchemy.pipeline.processors.samples import Sample, check_samples, fields_of

SAMPLED = 200  # masks whose values are checked when the pipe is built
ENOUGH = 10  # masks without any class but the first: an error, not a coincidence


@DataPipeline.register()
class ImageMasks(LstDataPipeline):
    """Reads images from the folder `path` and masks with the same names, apart from the extension, from `mask_path`.

    A sample has `image`, `mask` (class ids as uint8 `[height, width]`, 255 for ignored pixels) and `file`. `labels`
    names the classes. By default, the pixel values of a mask are the ids; `values` lists another value or a color
    `[red, green, blue]` for each class, such as `[0, 255]`, and `ignored` is the value of pixels without a class.
    `mask_suffix` is what the name of a mask has in addition to that of its image, such as `_mask`. `ids` selects
    images by name: a list, or a file with one name per line. Images are read and checked as in `ImageFolder`; images
    and masks that differ in size are errors.
    """

    begins = True
    packages = ("PIL",)

    def __init__(
        self,
        path: str | Path,
        *,
        mask_path: str | Path,
        labels: list[str] | str,
        values: list[Any] | None = None,
        ignored: int | list[int] | None = IGNORED_PIXEL,
        mask_suffix: str = "",
        ids: list[str] | str | None = None,
        suffixes: list[str] = SUFFIXES,
        mode: str = "RGB",
        size: tuple[PositiveInt, PositiveInt] | None = None,
        limits: tuple[FiniteFloat, FiniteFloat] | None = None,
        scale: bool = False,
        check: Check = "headers",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        import_package("PIL.Image", "ImageMasks")
        self.path, self.mask_path, self.mask_suffix, self.size = str(path), str(mask_path), mask_suffix, size
        self.suffixes, self.reader = lower_all(suffixes), ImageReader(mode, size, limits, scale)
        self.labels = read_labels(labels).names
        self.classes = MaskClasses(len(self.labels), values, ignored)
        pairs = self._find_pairs(ids)
        self.pairs = self._check_pairs(pairs, check, bad)
        self.gives = fields_of(self[0])
        keep_labels(self.labels, "mask")

    def _find_pairs(self, ids: list[str] | str | None) -> list[tuple[str, str]]:
        images, masks = (_by_name(folder, self.suffixes) for folder in (self.path, self.mask_path))
        check_samples(self, list(map(str, images)), [self.path])  # type: ignore[arg-type]
        wanted = list(images) if ids is None else _select(images, ids, self.path)
        lost = [name for name in wanted if f"{name}{self.mask_suffix}" not in masks]
        if lost:
            text = f"{len(lost)} of {len(wanted)} images have no mask in {self.mask_path!r}: {in_short(lost, 3)}"
            want = f"{lost[0]}{self.mask_suffix}"
            near = (
                did_you_mean(want, masks) or f"expected {want!r} with one of the extensions {in_short(self.suffixes)}"
            )
            raise AlchemyError(text, where=images[lost[0]], hint=f"{near}; or select images with ids")
        spare = len(masks) - len(images)
        if ids is None and spare > 0:
            logger.warning("{}: {} masks have no image in {}", self.mask_path, spare, self.path)
        return [(images[name], masks[f"{name}{self.mask_suffix}"]) for name in wanted]

    def _check_pairs(self, pairs: list[tuple[str, str]], check: Check, bad: OnBad) -> list[tuple[str, str]]:
        found = check_images(pairs, lambda pair: pair[0], check, bad, self.path)
        whole = check_images(found, lambda item: item[0][1], check, bad, self.mask_path)
        for ((image, mask), first), second in whole:
            _check_sizes(image, mask, first, second)
        kept = [pair for (pair, _), _ in whole]
        check_samples(self, kept, [self.path])  # type: ignore[arg-type]
        step = 1 if check == "pixels" else max(len(kept) // SAMPLED, 1)
        if check != "none":
            self._check_values([mask for _, mask in kept[::step]])
        return kept

    def _check_values(self, masks: Sequence[str]) -> None:
        """Read masks to check their values; those of the classes may be missing, but not all of them."""
        seen = set()
        for mask in masks:
            seen |= set(np.unique(self._mask(mask)).tolist())
        if self.classes.values is None and len(self.labels) > 1 and seen <= {0, IGNORED_PIXEL} and len(seen) > 1:
            text = f"the masks in {self.mask_path!r} have only the values 0 and 255, and 255 is ignored"
            hint = "set values = [0, 255] if 255 is a class, or ignored to another value"
            if len(masks) >= ENOUGH:
                raise AlchemyError(text, hint=hint)
            logger.warning("{}; {}", text, hint)

    def _mask(self, file: str) -> np.ndarray:
        return self.classes.to_ids(read_mask(file, size=self.size), file)

    def __getitem__(self, index: int) -> Sample:
        image_file, mask_file = self.pairs[index]
        image, mask = self.reader(image_file), self._mask(mask_file)
        shape = image.shape[-2:] if self.reader.scale else image.shape[:2]
        _check_sizes(image_file, mask_file, shape, mask.shape)
        return {"image": image, "mask": mask, "file": image_file}

    def __len__(self) -> int:
        return len(self.pairs)

    def where(self, index: int) -> str:
        return self.pairs[index][0]


def _check_sizes(image: str, mask: str, first: Sequence[int], second: Sequence[int]) -> None:
    if tuple(first) != tuple(second):
        text = (
            f"the image {image!r} has {first[0]} x {first[1]} pixels, but its mask {mask!r} {second[0]} x {second[1]}"
        )
        raise AlchemyError(text, hint="save both with the same size; one of them may have been rotated or cropped")


def _by_name(path: str, suffixes: Sequence[str]) -> dict[str, str]:
    """Return the files of a folder by their path in it, without the extension."""
    folder, found = check_folder(path), dict[str, str]()
    for file in files_below(folder, suffixes):
        name = file.relative_to(folder).with_suffix("").as_posix()
        if name in found:
            hint = "rename or remove one of them, or set suffixes to the extensions to read"
            raise AlchemyError(f"{found[name]!r} and {str(file)!r} have the same name", hint=hint)
        found[name] = str(file)
    return found


def _select(images: dict[str, str], ids: list[str] | str, path: str) -> list[str]:
    """Return the names of the selected images, in the order of `ids`; names may have the extension of the file."""
    file = "" if isinstance(ids, list) else str(check_file(ids))
    rows = enumerate(ids, 1) if isinstance(ids, list) else read_lines(file)
    wanted: dict[str, int] = {}
    for number, row in rows:
        name = row.strip()
        short = name if name in images else Path(name).with_suffix("").as_posix() if name else ""
        where = f"{file}:{number}" if file else ""
        if name and short not in images:
            raise AlchemyError(f"{path!r} has no image {name!r}", where=where, hint=did_you_mean(name, images))
        if short in wanted:
            raise AlchemyError(f"duplicate image {name!r}, first on line {wanted[short]}", where=where)
        if name:
            wanted[short] = number
    if not wanted:
        raise AlchemyError(f"{file or 'ids'} selects no images", hint="write one name per line")
    return list(wanted)
