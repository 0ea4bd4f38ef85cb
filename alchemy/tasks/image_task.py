"""Base class for image tasks: transforms, normalization, data checks, and pictures of the hardest images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from alchemy.data.collate_images import CHANNELS, StackImages, differing_sizes
from alchemy.data.pipe_chain import walk
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.images.pictures import Hardest
from alchemy.images.read_image import read_image
from alchemy.pipeline import where_in
from alchemy.pipeline.image_transforms import TransformImages
from alchemy.pipeline.output_rows import record_file, tolerate_write_errors
from alchemy.seeds import preserve_rng_state, set_current_sample
from alchemy.tasks.data_checks import Samples
from alchemy.tasks.supervised_task import Labeled, SupervisedTask, shuffle_training

Mode = Literal["RGB", "L", "RGBA"]
CHECKED = 256  # images of each split that are read before training


class ImageTask(SupervisedTask):
    """Base class for tasks on samples with an `image`, a uint8 array [height, width] or [height, width, channels].

    `mode` is the mode of the images: "RGB", "L" (grayscale) or "RGBA". `size` resizes all images to `[height, width]`.
    `transforms` are then applied to the images of all splits, and `augment` only to those of the training split.
    `mean` and `std` normalize pixel values, which range from 0 to 1, with one number per channel or one for all.
    `hardest` is the number of images in the picture of the hardest ones.
    """

    batches: ClassVar[dict[str, int]] = {"batch_size": 64}
    reads: ClassVar[str] = "image"
    needs = ("image",)
    any_size: ClassVar[bool] = False  # whether images of different sizes can be evaluated

    def __init__(
        self,
        *,
        mode: Mode,
        size: Sequence[int] | None,
        transforms: Sequence[Any],
        augment: Sequence[Any],
        mean: Sequence[float],
        std: Sequence[float],
        hardest: int,
    ) -> None:
        super().__init__()
        self.mode, self.size = mode, None if size is None else (size[0], size[1])
        resize = [] if size is None else [{"type": "alchemy.images.transforms.Resize", "size": list(size)}]
        self.transforms, self.augment = [*resize, *transforms], list(augment)
        self.channels = CHANNELS[mode]
        self.mean, self.std = list(mean), list(std)
        self.stack = StackImages(mode=mode, mean=self.mean, std=self.std)
        self._hardest = Hardest(hardest)
        self._offset = 0  # place of the first image of a part in its batch

    # -- data
    def load_dataset(self, split: str, **kwargs: Any) -> None:
        source = self._take_source(split, kwargs)
        self.check_source(source, split)
        encoded = self.encode(source, self.transforms + (self.augment if split == "train" else []))
        any_size = self.any_size and split != "train"
        self._check_images(encoded, split, any_size=any_size)
        kwargs.setdefault("collate_fn", self.collate_options() | {"ragged": any_size})
        shuffle_training(kwargs, split)
        self._datasets[split] = (encoded, kwargs)

    def check_source(self, source: Samples, split: str) -> None:
        """Raise if the labels of a split are not those of the task; must not read all images."""

    def encoded(self, source: Samples) -> Samples:
        return self.encode(source, self.transforms)

    def encode(self, source: Samples, transforms: list[Any]) -> Samples:
        """Return the samples with transformed images."""
        return TransformImages(source, transforms=transforms) if transforms else source

    def collate_options(self) -> dict[str, Any]:
        return {
            "type": "alchemy.data.collate_images.StackImages",
            "mode": self.mode,
            "mean": self.mean,
            "std": self.std,
            "ragged": True,
        }

    def _check_images(self, encoded: Samples, split: str, *, any_size: bool) -> None:
        """Read up to CHECKED images, evenly spread over a split; raise on an image that cannot be used."""
        first: Mapping[str, Any] | None = None
        count = min(len(encoded), CHECKED)
        with preserve_rng_state():
            for index in np.linspace(0, len(encoded) - 1, count).astype(int).tolist():
                set_current_sample(0, index)
                try:
                    sample = encoded[index]
                    _check_type(encoded, index, sample)
                    self.stack([sample])
                    first = first or sample
                    if not any_size and sample["image"].shape != first["image"].shape:
                        raise differing_sizes([first, sample])
                    self.check_sample(sample)
                except AlchemyError as error:
                    problem = error.problem
                    where = problem.where or where_in(encoded, index)
                    where = "" if where in problem.message else where
                    raise AlchemyError(
                        problem.message, where=where, section=f"task.datasets.{split}", hint=problem.hint
                    ) from error

    def check_sample(self, sample: Mapping[str, Any]) -> None:
        """Raise if the task cannot use an encoded sample."""

    # -- prediction
    def question(self, item: object) -> dict[str, Any]:
        """Convert a file name, an array, or a dict with `file` or `image` to a sample."""
        if isinstance(item, Mapping):
            item = item["image"] if "image" in item else item.get("file")
        if isinstance(item, str | Path):
            return {"image": read_image(item, mode=self.mode, **self._reading), "file": str(item)}
        if not isinstance(item, np.ndarray):
            text = f"invalid input {repr(item)[:60]}, expected the name of an image file or an array"
            raise AlchemyError(text, hint="or a dict with 'file' or 'image'")
        return {"image": item, "file": ""}

    @cached_property
    def _reading(self) -> dict[str, Any]:
        """The options of alchemy's image processors that determine how a file is read."""
        splits = (self.cfg.get("datasets") or {}).values()
        pipes = [pipe for split in splits for pipe in split.get("pipes") or ()]
        readers = [pipe for pipe in pipes if str(pipe.get("type")).startswith("alchemy.pipeline.processors.")]
        return {name: pipe[name] for pipe in readers for name in ("limits", "size") if pipe.get(name)}

    # -- steps
    def predict_batch(self, batch: Any, needs_loss: bool) -> list[dict[str, Any]]:
        self._offset, rows = 0, []
        for part in split_by_size(batch):
            rows += super().predict_batch(part, needs_loss)
            self._offset = len(rows)
        return rows

    def restore_image(self, image_CHW: Tensor) -> np.ndarray:
        """Return an image of a batch as uint8 [H, W, C], without normalization."""
        return self.stack.restore(image_CHW)

    # -- the hardest images
    def begin_eval(self, split: str, **kwargs: object) -> None:
        self._hardest.begin()
        super().begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs: Any) -> dict[str, Any]:
        found = super().end_eval(split, **kwargs)
        if self.run.group.is_main:
            with tolerate_write_errors(self.run, f"images/{split}_hardest.png"):
                path = record_file(self.run, f"images/{split}_hardest.png") if self._hardest.limit else None
                picture = self._hardest.draw() if path is not None else None
                if path is not None and picture is not None:
                    write_atomic(path, picture)
                    self.run.log_image(f"{split}/hardest", picture)
        return found

    def sample_index(self, place: int) -> int:
        """Return the index of a sample of the batch that is evaluated."""
        samples, place = self.run.progress.evaluated_samples, self._offset + place
        return samples[place] if samples is not None and place < len(samples) else place


def _check_type(encoded: Samples, index: int, sample: Mapping[str, Any]) -> None:
    """Raise if a transform has changed the type of an image."""
    if not isinstance(encoded, TransformImages) or sample["image"].dtype == np.uint8:
        return
    if found := encoded.find_type_change(index):
        hint = "return uint8; the task divides by 255 and normalizes with `mean` and `std` after the transforms"
        raise AlchemyError(f"{found}, expected uint8 values from 0 to 255", hint=hint)


def split_by_size(batch: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a batch as it is, or each of its images alone if their sizes differ."""
    if isinstance(batch["image"], Tensor):
        yield batch
        return
    for place in range(len(batch["image"])):
        yield {
            name: values[place] if name in ("image", "mask") else values[place : place + 1]
            for name, values in batch.items()
        }


@runtime_checkable
class _FromPath(Protocol):
    path: str


def labels_in(source: Samples) -> list[str]:
    """Return the labels that the processor of a chain lists, or an empty list."""
    return next((list(link.labels) for link in walk(source) if isinstance(link, Labeled) and link.labels), [])


def path_of(source: Samples) -> str:
    """Return the path that the processor of a chain reads, for messages."""
    return next((str(link.path) for link in walk(source) if isinstance(link, _FromPath)), "")
