"""Processor for image folders with one subfolder per label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from loguru import logger

from alchemy.constraints import PositiveInt
from alchemy.data.messages import in_short
from alchemy.data.tables import OnBad
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.optional_packages import import_package
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.idx import scale_image
from alchemy.pipeline.processors.labels import LabelNames, keep_labels, read_labels
from alchemy.pipeline.processors.samples import Sample, check_samples, fields_of


@DataPipeline.register()
class ImageFolder(LstDataPipeline):
    """Reads images from `path/label/name.png`; Pillow opens them on access.

    A sample has `image`, `label`, `label_id` and `file`. Images are uint8 `[height, width, channel]`, or without the
    channel if grayscale. `mode` converts them to one mode ("RGB", "L"; "": unchanged), `size = [height, width]` resizes
    them, and `scale` converts them to channel-first float32 from 0 to 1. Labels are the sorted folder names, or
    `labels` if set. `bad = "skip"` opens every file once to skip damaged images.
    """

    begins = True
    packages = ("PIL",)

    def __init__(
        self,
        path: str,
        *,
        labels: list[str] | str | None = None,
        suffixes: list[str] = [".png", ".jpg", ".jpeg"],
        mode: str = "RGB",
        size: tuple[PositiveInt, PositiveInt] | None = None,
        scale: bool = False,
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        import_package("PIL.Image", "ImageFolder")
        self.path, self.mode, self.size, self.scale = path, mode, size, scale
        self.suffixes = [suffix.lower() for suffix in suffixes]
        folders = _folders_in(path)
        known = LabelNames([folder.name for folder in folders] if labels is None else read_labels(labels).names)
        self.labels = known.names
        samples = [sample for folder in folders for sample in self._samples(folder, known)]
        self.samples = check_samples(self, samples if bad == "error" else self._skip_damaged(samples), [path])
        self.gives = fields_of(self[0])
        keep_labels(self.labels, "label_id")

    def _samples(self, folder: Path, known: LabelNames) -> Iterator[Sample]:
        if folder.name not in known.index:
            hint = did_you_mean(folder.name, known.names) or f"the labels are {in_short(known.names)}"
            raise AlchemyError(f"the folder {str(folder)!r} is not named after a label", hint=hint)
        label = known.single(folder.name)
        for file in _files_below(folder):
            if file.suffix.lower() in self.suffixes:
                yield {**label, "file": str(file)}

    def _skip_damaged(self, samples: list[Sample]) -> list[Sample]:
        """Return the samples whose images can be opened."""
        sound, damaged = [], []
        for sample in samples:
            try:
                self._image(sample["file"])
                sound.append(sample)
            except AlchemyError as error:
                damaged.append(error.problem.message)
        if damaged:
            logger.warning("{}: skipped {} images, the first: {}", self.path, len(damaged), damaged[0])
        return sound

    def _image(self, file: str) -> np.ndarray:
        pillow = import_package("PIL.Image", file)
        try:
            with pillow.open(file) as opened:
                if opened.mode[0] in "IF" and self.mode and self.mode[0] not in "IF":
                    hint = 'set mode = "" to keep its values, and scale = true to scale them to [0, 1]'
                    text = f"{file!r} has more than 8 bits per pixel, which mode = {self.mode!r} would clip"
                    raise AlchemyError(text, hint=hint)
                image = opened.convert(self.mode) if self.mode else opened
                return np.array(image.resize((self.size[1], self.size[0])) if self.size else image)
        # pillow raises SyntaxError for a broken png
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            hint = 'fix or remove it, or set bad = "skip"'
            raise AlchemyError(f"{file!r} is not a readable image: {error}", hint=hint) from error

    def __getitem__(self, index: int) -> Sample:
        sample = self.samples[index]
        image = self._image(sample["file"])
        return {"image": scale_image(image) if self.scale else image, **sample}

    def __len__(self) -> int:
        return len(self.samples)

    def where(self, index: int) -> str:
        return str(self.samples[index]["file"])


def _folders_in(path: str) -> list[Path]:
    """Return the subfolders that are not hidden, sorted by name."""
    if not Path(path).is_dir():
        hint = "relative paths are resolved from the current folder"
        raise AlchemyError(f"folder not found: {path!r}", hint=hint)
    found = sorted(folder for folder in Path(path).iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if not found:
        hint = "put the images of each label in a subfolder with its name"
        raise AlchemyError(f"{path!r} has no subfolders", hint=hint)
    return found


def _files_below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield all non-hidden files at any depth, sorted by name; follow folder links but not cycles."""
    above |= {folder.resolve()}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            yield entry
        elif entry.resolve() not in above:
            yield from _files_below(entry, above)
