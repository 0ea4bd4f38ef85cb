"""Processor for image folders with one subfolder per label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from alchemy.constraints import FiniteFloat, PositiveInt
from alchemy.data.messages import in_short
from alchemy.data.tables import OnBad
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.images.read_image import SUFFIXES
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
from alchemy.pipeline.processors.labels import LabelNames, keep_labels, read_labels
from alchemy.pipeline.processors.samples import Sample, check_samples, fields_of


@DataPipeline.register()
class ImageFolder(LstDataPipeline):
    """Reads images from `path/label/name.png`; Pillow opens them on access.

    A sample has `image`, `label`, `label_id` and `file`. Images are uint8 `[height, width, channel]`, or without the
    channel if grayscale. `mode` converts them to one mode ("RGB", "L"; "": unchanged), `size = [height, width]` resizes
    them, `limits` maps 16-bit values to 8 bits, and `scale` converts them to channel-first float32 from 0 to 1. Labels
    are the sorted folder names, or `labels` if set. When the pipe is built, `check` reads the headers of all files,
    their `pixels` or nothing; `bad = "skip"` reads all pixels and skips damaged images.
    """

    begins = True
    packages = ("PIL",)

    def __init__(
        self,
        path: str | Path,
        *,
        labels: list[str] | str | None = None,
        suffixes: list[str] = SUFFIXES,
        mode: str = "RGB",
        size: tuple[PositiveInt, PositiveInt] | None = None,
        limits: tuple[FiniteFloat, FiniteFloat] | None = None,
        scale: bool = False,
        check: Check = "headers",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        import_package("PIL.Image", "ImageFolder")
        self.path, self.reader, self.suffixes = str(path), ImageReader(mode, size, limits, scale), lower_all(suffixes)
        folders = _folders_in(self.path)
        known = LabelNames([folder.name for folder in folders] if labels is None else read_labels(labels).names)
        self.labels = known.names
        samples = [sample for folder in folders for sample in self._samples(folder, known)]
        sound = check_images(check_samples(self, samples, [path]), lambda sample: sample["file"], check, bad, self.path)
        self.samples = check_samples(self, [sample for sample, _ in sound], [path])
        self.gives = fields_of(self[0])
        keep_labels(self.labels, "label_id")

    def _samples(self, folder: Path, known: LabelNames) -> Iterator[Sample]:
        if folder.name not in known.index:
            hint = did_you_mean(folder.name, known.names) or f"the labels are {in_short(known.names)}"
            raise AlchemyError(f"the folder {str(folder)!r} is not named after a label", hint=hint)
        label = known.single(folder.name)
        for file in files_below(folder, self.suffixes):
            yield {**label, "file": str(file)}

    def __getitem__(self, index: int) -> Sample:
        sample = self.samples[index]
        return {"image": self.reader(sample["file"]), **sample}

    def __len__(self) -> int:
        return len(self.samples)

    def where(self, index: int) -> str:
        return str(self.samples[index]["file"])


def _folders_in(path: str) -> list[Path]:
    """Return the subfolders that are not hidden, sorted by name."""
    folder = check_folder(path)
    found = sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))
    if not found:
        hint = "put the images of each label in a subfolder with its name"
        raise AlchemyError(f"{path!r} has no subfolders", hint=hint)
    return found
