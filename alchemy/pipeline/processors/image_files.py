"""Image files of processors: how they are read, found in folders and checked before training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from loguru import logger

from alchemy.errors import AlchemyError
from alchemy.images.read_image import check_image, read_image
from alchemy.optional_packages import import_package
from alchemy.pipeline.processors.idx import scale_image

T = TypeVar("T")
Check = Literal["headers", "pixels", "none"]


@dataclass(frozen=True)
class ImageReader:
    """How a processor reads its images: the options of `read_image`, and whether to scale the values."""

    mode: str
    size: tuple[int, int] | None
    limits: tuple[float, float] | None
    scale: bool

    def __post_init__(self) -> None:
        modes = import_package("PIL.Image", "reading images").MODES
        if self.mode and self.mode not in modes:
            hint = 'use "RGB" for color, "L" for grayscale, or "" to keep the mode of the file'
            raise AlchemyError(f"mode = {self.mode!r} is not a mode of Pillow", hint=hint)

    def __call__(self, file: str) -> np.ndarray:
        image = read_image(file, mode=self.mode, size=self.size, limits=self.limits)
        return scale_image(image) if self.scale else image


def check_images(
    items: Sequence[T], file_of: Callable[[T], str], check: Check, bad: str, what: str
) -> list[tuple[T, tuple[int, int]]]:
    """Return the items with the sizes of their images; raise for a damaged file, or with `bad = "skip"`, skip it."""
    if check == "none" and bad == "error":
        return [(item, (0, 0)) for item in items]
    sound, damaged = [], []
    for item in items:
        try:
            # a file that is not to be skipped may turn out to be damaged only when it is used
            sound.append((item, check_image(file_of(item), pixels=check == "pixels" or bad == "skip")))
        except AlchemyError as error:
            if bad == "error":
                raise
            damaged.append(error.problem.message)
    if damaged:
        logger.warning("{}: skipped {} images, the first: {}", what, len(damaged), damaged[0])
    return sound


def check_folder(path: str) -> Path:
    """Return a folder as a Path; raise if it does not exist."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        hint = "it is a file" if folder.exists() else "relative paths are resolved from the current folder"
        raise AlchemyError(f"folder not found: {path!r}", hint=hint)
    return folder


def files_below(folder: Path, suffixes: Sequence[str], above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield non-hidden files at any depth, sorted by name; follow folder links but not cycles."""
    above |= {folder.resolve()}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            if entry.suffix.lower() in suffixes:
                yield entry
        elif entry.resolve() not in above:
            yield from files_below(entry, suffixes, above)


def lower_all(suffixes: Sequence[str]) -> list[str]:
    """Return file suffixes in lower case, each with a dot."""
    return [f".{suffix.lstrip('.')}".lower() for suffix in suffixes]
