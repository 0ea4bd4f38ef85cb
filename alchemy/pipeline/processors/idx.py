"""Processor for images and labels in idx files, the MNIST format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from alchemy.data.files import check_file, open_bytes, readable
from alchemy.data.stacked import StackedSamples
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.labels import keep_labels, read_labels
from alchemy.pipeline.processors.samples import Sample, fields_of

DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
CUT = "the file is truncated or damaged: download it again"


@DataPipeline.register()
class IdxImages(LstDataPipeline):
    """Reads images and labels from two idx files.

    A sample has `image`, `label_id`, and `label` if `labels` is set. Images are `[height, width]` arrays with the
    values from the file; with `scale = true`, they are channel-first float32 arrays from 0 to 1.
    """

    begins = True

    def __init__(
        self,
        path: str | Path,
        *,
        label_path: str | Path = "",
        labels: list[str] | str | None = None,
        scale: bool = False,
    ) -> None:
        super().__init__()
        self.path, self.label_path, self.scale = str(path), str(label_path), scale
        self.images = _read_idx(path)
        if not len(self.images):
            raise AlchemyError(f"IdxImages found no samples in {path}")
        self.labels = read_labels(labels).names
        self.targets = self._targets(self.label_path) if label_path else [{}] * len(self.images)
        self.gives = fields_of(self[0])
        keep_labels(self.labels, "label_id")

    def _targets(self, path: str) -> list[Sample]:
        found = _read_idx(path)
        if found.ndim != 1 or len(found) != len(self.images):
            text = f"{len(self.images)} images, but labels of shape {list(found.shape)}"
            raise AlchemyError(text, where=path, hint="do the two files belong to the same dataset?")
        numbers = sorted(set(found.tolist()))
        if self.labels and not 0 <= numbers[0] <= numbers[-1] < len(self.labels):
            wrong = numbers[-1] if numbers[0] >= 0 else numbers[0]
            text = f"item {found.tolist().index(wrong)} has the label {wrong}, expected 0 to {len(self.labels) - 1}"
            raise AlchemyError(text, where=path, hint="list one label per class")
        # one dict per label, not per image
        fields = {n: {"label": self.labels[n], "label_id": n} if self.labels else {"label_id": n} for n in numbers}
        return [fields[number] for number in found.tolist()]

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        return {"image": scale_image(image) if self.scale else image, **self.targets[index]}

    def __getitems__(self, indices: Sequence[int]) -> StackedSamples:
        images = self.images[np.array(indices, np.int64)]
        if self.scale:
            images = np.stack(list(map(scale_image, images)))
        # iterating over the indices of a loader seeds the random number generators
        samples = [{"image": image, **self.targets[index]} for image, index in zip(images, indices)]
        return StackedSamples(samples, {"image": images})

    def __len__(self) -> int:
        return len(self.images)

    def where(self, index: int) -> str:
        return f"{self.path} item {range(len(self))[index]}"


def _read_idx(path: str | Path) -> np.ndarray:
    """Read an idx file: two zero bytes, the type, the number of axes, their lengths, and the values of the array."""
    path = check_file(path)
    with readable(path, 1), open_bytes(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in DTYPES:
            raise AlchemyError(
                f"{str(path)!r} is not an idx file", hint="an idx file starts with two zero bytes and a type"
            )
        axes = file.read(4 * head[3])
        body = file.read()
    if len(axes) < 4 * head[3]:
        text = f"the header ends after {4 + len(axes)} bytes, expected {4 + 4 * head[3]} for {head[3]} axes"
        raise AlchemyError(text, where=str(path), hint=CUT)
    shape = [int.from_bytes(axes[begin : begin + 4], "big") for begin in range(0, len(axes), 4)]
    dtype = np.dtype(DTYPES[head[2]])
    if len(body) != math.prod(shape) * dtype.itemsize:
        text = f"{len(body)} bytes follow the header, expected {math.prod(shape) * dtype.itemsize} for {shape}"
        raise AlchemyError(text, where=str(path), hint=CUT)
    array = np.frombuffer(body, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def scale_image(image: np.ndarray) -> np.ndarray:
    """Convert an image to float32 from 0 to 1 with the channel first, as convolutions expect."""
    if image.dtype.kind not in "bu" or image.ndim not in (2, 3):
        text = f"scale = true needs unsigned integers with a height and a width, got {image.dtype}"
        hint = "other values have no fixed range: scale them in a later pipe"
        raise AlchemyError(f"{text} of shape {image.shape}", hint=hint)
    channels = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    return channels.astype(np.float32) / np.float32(1 if image.dtype == bool else np.iinfo(image.dtype).max)
