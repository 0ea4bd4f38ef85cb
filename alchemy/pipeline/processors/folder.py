"""Folders of images, with a folder for each label."""

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
from alchemy.pipeline.processors.idx import scaled
from alchemy.pipeline.processors.labels import LabelNames, keep_labels, read_labels
from alchemy.pipeline.processors.samples import Sample, checked_samples, fields_of


@DataPipeline.register()
class ImageFolder(LstDataPipeline):
    """The images below a folder, `path/label/name.png`, opened with pillow when they are asked for.

    A sample has `image`, `label`, `label_id` and `file`. Images are uint8 `[height, width, channel]`, grey ones without
    the channel; `mode` makes all of one kind ("RGB", "L"; "": as they are), `size = [height, width]` of one size,
    `scale` float32 from 0 to 1 with the channel in front. Labels are the names of the folders, sorted,
    or those in `labels`. `bad = "skip"` opens every file once, to leave out what is damaged.
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
        self.samples = checked_samples(self, samples if bad == "error" else self._sound(samples), [path])
        self.gives = fields_of(self[0])
        keep_labels(self.labels, "label_id")

    def _samples(self, folder: Path, known: LabelNames) -> Iterator[Sample]:
        if folder.name not in known.index:
            hint = did_you_mean(folder.name, known.names) or f"the labels are {in_short(known.names)}"
            raise AlchemyError(f"the folder {str(folder)!r} has the name of no label", hint=hint)
        label = known.single(folder.name)
        for file in _files_below(folder):
            if file.suffix.lower() in self.suffixes:
                yield {**label, "file": str(file)}

    def _sound(self, samples: list[Sample]) -> list[Sample]:
        """The samples whose images can be opened."""
        sound, damaged = [], []
        for sample in samples:
            try:
                self._image(sample["file"])
                sound.append(sample)
            except AlchemyError as error:
                damaged.append(error.problem.message)
        if damaged:
            logger.warning("{}: {} images were skipped, the first: {}", self.path, len(damaged), damaged[0])
        return sound

    def _image(self, file: str) -> np.ndarray:
        pillow = import_package("PIL.Image", file)
        try:
            with pillow.open(file) as opened:
                if opened.mode[0] in "IF" and self.mode and self.mode[0] not in "IF":
                    hint = 'set mode = "" to have its numbers, and scale = true to have them from 0 to 1'
                    text = f"{file!r} has pixels of more than 8 bits, which mode = {self.mode!r} would cut"
                    raise AlchemyError(text, hint=hint)
                image = opened.convert(self.mode) if self.mode else opened
                return np.array(image.resize((self.size[1], self.size[0])) if self.size else image)
        # a SyntaxError is what pillow calls a broken png
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            hint = 'mend or remove it, or set bad = "skip"'
            raise AlchemyError(f"{file!r} is not a readable image: {error}", hint=hint) from error

    def __getitem__(self, index: int) -> Sample:
        sample = self.samples[index]
        image = self._image(sample["file"])
        return {"image": scaled(image) if self.scale else image, **sample}

    def __len__(self) -> int:
        return len(self.samples)

    def where(self, index: int) -> str:
        return str(self.samples[index]["file"])


def _folders_in(path: str) -> list[Path]:
    """The folders of a folder, by name; those that begin with a point are not meant."""
    if not Path(path).is_dir():
        hint = "relative paths are seen from the folder that you run in"
        raise AlchemyError(f"there is no folder {path!r}", hint=hint)
    found = sorted(folder for folder in Path(path).iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if not found:
        hint = "the images of each label are in a folder of its name"
        raise AlchemyError(f"{path!r} has no folders in it", hint=hint)
    return found


def _files_below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """All files at any depth, by name, but hidden ones; links to folders are followed, and not in circles."""
    above |= {folder.resolve()}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            yield entry
        elif entry.resolve() not in above:
            yield from _files_below(entry, above)
