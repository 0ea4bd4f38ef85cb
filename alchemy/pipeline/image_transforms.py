"""A pipe that transforms images and their masks, a whole batch at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from alchemy.data.batch_sampler import Ids
from alchemy.data.import_named import import_named
from alchemy.data.padding import value_text
from alchemy.data.pipe_chain import make_fetcher, title, walk
from alchemy.data.stacked import StackedSamples, stack_arrays
from alchemy.errors import AlchemyError, BadSample
from alchemy.images.draws import Draws
from alchemy.images.transforms.base import Arrays, ImageBatch, ImageTransform, join_arrays
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before, where_in
from alchemy.pipeline.itr import field_of
from alchemy.pipeline.lst import check_list
from alchemy.seeds import current_seed, mark_drawn, mix, sample_stream

__all__ = ["TransformImages", "build_transforms"]

EXPECTED = "expected arrays [height, width] or [height, width, channels]; masks have no channels"


@DataPipeline.register()
class TransformImages(LstDataPipeline):
    """Applies `transforms` to the images in `field`, and to the masks in `mask` if the samples have them.

    A transform is an `alchemy.images.transforms.ImageTransform` or any function `fn(image) -> image`. The random
    numbers of a sample depend only on (seed, epoch, index).
    """

    maps = True
    where = where_before

    def __init__(
        self, datapipe: object, *, transforms: list[dict[str, Any]], field: str = "image", mask: str = "mask"
    ) -> None:
        super().__init__(check_list(datapipe, "TransformImages"))
        self.transforms, self.field, self.mask = transforms, field, mask
        self.built = build_transforms(transforms)
        # pipes of the same chain draw different numbers
        self.number = sum(isinstance(pipe, TransformImages) for pipe in walk(datapipe))

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]
        return self._transform([self.datapipe[index]], current_seed(), [index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        samples = make_fetcher(self.datapipe)(indices)  # type: ignore[arg-type]
        return self._transform(samples, indices.seed if isinstance(indices, Ids) else current_seed(), indices)

    def __len__(self) -> int:
        return len(self.datapipe)

    def _transform(self, samples: list[Any], seed: int, indices: Sequence[int]) -> list[Any]:
        draws = Draws(mix(seed, self.number), indices)
        try:
            batch, gray = self._make_batch(samples)
            for transform in self.built:
                batch = transform(batch, draws)
        except AlchemyError as error:
            row = error.row if isinstance(error, BadSample) else 0
            problem = error.problem
            where = problem.where or where_in(self.datapipe, indices[row])
            raise AlchemyError(problem.message, where=where, hint=problem.hint) from error
        if draws.used:
            mark_drawn()
        return self._replace(samples, batch, gray)

    def find_type_change(self, index: int) -> str:
        """Return which transform changed the dtype of an image and what it returned, for messages; "" if none did."""
        batch, _ = self._make_batch([self.datapipe[index]])
        draws, found = Draws(mix(current_seed(), self.number), [index]), ""
        for transform in self.built:
            before, batch = batch.images[0].dtype, transform(batch, draws)
            image = batch.images[0]
            if image.dtype != before:
                name = _function_name(transform.function if isinstance(transform, _ImageFunction) else transform)
                low, high = float(image.min()), float(image.max())
                found = f"{name} returned {image.dtype} values from {low:.4g} to {high:.4g}"
        return found

    def _make_batch(self, samples: list[Any]) -> tuple[ImageBatch, bool]:
        """Return the images with channels and their masks, and whether the images had no channels."""
        images = self._stack(self.field, samples)
        gray = images[0].ndim == 2
        masks = self._stack(self.mask, samples, 2) if self.mask in samples[0] else None
        batch = ImageBatch(add_channel(images) if gray else images, masks)
        check_sizes(batch)
        return batch, gray

    def _stack(self, name: str, samples: list[Any], axes: int = 0) -> Arrays:
        """Return the arrays of a field, stacked if their sizes are equal."""
        if isinstance(samples, StackedSamples) and name in samples.stacked:
            arrays: Any = samples.stacked[name]
        else:
            arrays = [field_of(sample, name, self) for sample in samples]
            for row, array in enumerate(arrays):
                if not isinstance(array, np.ndarray) or array.ndim not in (2, 3) or array.ndim != arrays[0].ndim:
                    raise BadSample(f"{title(self)}: the field {name!r} is {value_text(array)}", row=row, hint=EXPECTED)
            stacked = stack_arrays(arrays)
            arrays = arrays if stacked is None else stacked
        if arrays[0].ndim not in ((axes,) if axes else (2, 3)):
            text = f"{title(self)}: the field {name!r} has the shape {arrays[0].shape}"
            raise BadSample(text, row=0, hint=EXPECTED)
        return arrays

    def _replace(self, samples: list[Any], batch: ImageBatch, gray: bool) -> list[Any]:
        """Return copies of the samples with the new images and masks."""
        new = {self.field: drop_channel(batch.images) if gray else batch.images}
        if batch.masks is not None:
            new[self.mask] = batch.masks
        made = [sample.copy() for sample in samples]
        for name, arrays in new.items():
            for sample, array in zip(made, arrays, strict=True):
                sample[name] = array
        kept = samples.stacked if isinstance(samples, StackedSamples) else {}
        stacked = {name: array for name, array in {**kept, **new}.items() if isinstance(array, np.ndarray)}
        return StackedSamples(made, stacked)


class _ImageFunction(ImageTransform):
    """Applies a function to each image `[H, W, C]`, or `[H, W]` if it is grayscale; masks stay unchanged.

    `alchemy.seeds.sample_rng` gives the function random numbers of its own.
    """

    def __init__(self, function: Callable[[np.ndarray], Any]) -> None:
        self.function = function

    def __call__(self, images: ImageBatch, draws: Draws) -> ImageBatch:
        draws.calls += 1
        made = []
        for row, (index, image) in enumerate(zip(np.array(draws.indices).tolist(), images.images)):
            with sample_stream(mix(draws.seed, draws.calls), index):
                out = np.asarray(self.function(image[..., 0] if image.shape[2] == 1 else image))
            out = out[..., None] if out.ndim == 2 else out
            if out.ndim != 3 or (images.masks is not None and out.shape[:2] != image.shape[:2]):
                text = f"{_function_name(self.function)} returned the shape {out.shape} for an image of {image.shape}"
                hint = "a function that changes the size or moves pixels does not change masks: use an ImageTransform"
                raise BadSample(text, row=row, hint=hint if images.masks is not None else EXPECTED)
            made.append(out[None])
        return ImageBatch(join_arrays(made), images.masks)


def build_transforms(tables: Sequence[dict[str, Any]]) -> list[ImageTransform]:
    """Build transforms from tables with a `type`; a function is applied to each image."""
    built = [import_named(table, what=f"transforms.{place}") for place, table in enumerate(tables)]
    wrong = [part for part in built if not callable(part)]
    if wrong:
        hint = "use a transform from alchemy.images.transforms, or the import path of a function"
        raise AlchemyError(f"transforms: {wrong[0]!r} is not callable", hint=hint)
    return [part if isinstance(part, ImageTransform) else _ImageFunction(part) for part in built]


def check_sizes(batch: ImageBatch) -> None:
    """Raise if an image and its mask differ in size."""
    for row, (image, mask) in enumerate(zip(batch.images, batch.masks) if batch.masks is not None else ()):
        if image.shape[:2] != mask.shape:
            text = f"an image of {image.shape[0]} x {image.shape[1]} has a mask of {mask.shape[0]} x {mask.shape[1]}"
            raise BadSample(text, row=row, hint="resize both in an earlier pipe")


@runtime_checkable
class _Named(Protocol):
    """A function or a class, whereas an instance has no name of its own."""

    __module__: str
    __qualname__: str


def _function_name(function: object) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    named = inner if isinstance(inner, _Named) else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def add_channel(arrays: Arrays) -> Arrays:
    return arrays[..., None] if isinstance(arrays, np.ndarray) else [array[..., None] for array in arrays]


def drop_channel(arrays: Arrays) -> Arrays:
    """Remove the channel of grayscale images, unless a function has added channels."""
    if any(array.shape[-1] != 1 for array in arrays[:1]):
        return arrays
    return arrays[..., 0] if isinstance(arrays, np.ndarray) else [array[..., 0] for array in arrays]
