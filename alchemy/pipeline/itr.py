"""Iterable-style pipes: streams of any size, read sequentially."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.data.batch_sampler import count_batches
from alchemy.data.import_named import import_function
from alchemy.data.pipe_chain import Order, find_splitter, link_of, reader_share, title, walk
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, build_datapipes
from alchemy.pipeline.openers import CsvOpener, JsonlOpener, LineOpener, ParquetOpener, TsvOpener, TxtOpener

__all__ = [
    "Batch",
    "BucketBatch",
    "Concat",
    "CsvOpener",
    "Fields",
    "Filter",
    "JsonlOpener",
    "LineOpener",
    "Map",
    "ParquetOpener",
    "RepeatIter",
    "Sample",
    "Shuffle",
    "SplitByWorker",
    "Take",
    "TsvOpener",
    "TxtOpener",
    "WithLength",
]


@DataPipeline.register()
class Batch(ItrDataPipeline):
    """Groups samples into lists of `batch_size` for the collate function."""

    def __init__(self, datapipe: object, batch_size: PositiveInt = 1, drop_last: bool = False) -> None:
        super().__init__(datapipe)
        self.batch_size, self.drop_last = batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        samples = iter(self.datapipe)
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        return count_batches(length_of(self), self.batch_size, self.drop_last)


@DataPipeline.register()
class BucketBatch(ItrDataPipeline):
    """Groups samples of similar length: sorts buffers of `buffer_size` samples by the length of `key` to form batches.

    The order of the batches within a buffer is a function of (seed, epoch).
    """

    order: Order

    def __init__(
        self,
        datapipe: object,
        *,
        batch_size: PositiveInt,
        key: str,
        buffer_size: PositiveInt = 1000,
        drop_last: bool = False,
    ) -> None:
        super().__init__(datapipe)
        self.batch_size, self.buffer_size, self.key, self.drop_last = batch_size, buffer_size, key, drop_last
        self.order = Order()

    def __iter__(self) -> Iterator[list[Any]]:
        numbers = self.order.start()
        samples = iter(self.datapipe)
        while buffer := list(itertools.islice(samples, self.buffer_size)):
            numbers.shuffle(buffer)  # otherwise the same samples of equal length would share a batch in every epoch
            buffer.sort(key=lambda sample: len(field_of(sample, self.key, self)))
            batches = [buffer[start : start + self.batch_size] for start in range(0, len(buffer), self.batch_size)]
            numbers.shuffle(batches)
            for batch in batches:
                if len(batch) == self.batch_size or not self.drop_last:
                    yield batch

    def __len__(self) -> int:
        full, rest = divmod(length_of(self), self.buffer_size)
        whole, last = (count_batches(count, self.batch_size, self.drop_last) for count in (self.buffer_size, rest))
        return full * whole + last


@DataPipeline.register()
class Shuffle(ItrDataPipeline):
    """Shuffles samples with a buffer of `buffer_size`.

    The order is a function of (seed, epoch), which the loader sets. It is the same in every worker, so a Shuffle can be
    placed before or after SplitByWorker.
    """

    keeps = True
    order: Order

    def __init__(self, datapipe: object, buffer_size: PositiveInt = 1000) -> None:
        super().__init__(datapipe)
        self.buffer_size = buffer_size
        self.order = Order()

    def __iter__(self) -> Iterator[Any]:
        numbers = self.order.start()
        buffer: list[Any] = []
        for sample in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
            else:
                place = numbers.randrange(self.buffer_size)
                yield buffer[place]
                buffer[place] = sample
        numbers.shuffle(buffer)
        yield from buffer

    def __len__(self) -> int:
        return length_of(self)


@DataPipeline.register()
class SplitByWorker(ItrDataPipeline):
    """Assigns each loader worker of each process its share: with n workers in total, every n-th sample."""

    keeps = True
    splits = True

    def __init__(self, datapipe: object) -> None:
        super().__init__(datapipe)

    def __iter__(self) -> Iterator[Any]:
        reader, readers = reader_share(self)
        return itertools.islice(self.datapipe, reader, None, readers)

    def __len__(self) -> int:
        reader, readers = reader_share(self)
        return max(0, -(-(length_of(self) - reader) // readers))


@DataPipeline.register()
class WithLength(ItrDataPipeline):
    """Sets the total number of samples over all workers, for streams of unknown length."""

    keeps = True

    def __init__(self, datapipe: object, length: NonNegativeInt) -> None:
        super().__init__(datapipe)
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.datapipe)

    def __len__(self) -> int:
        return _share_of(self.length, self)


@DataPipeline.register()
class Map(ItrDataPipeline):
    """Applies `fn(sample, **args)`; with `field`, maps that field and puts the result in `to` (default: `field`)."""

    maps = True

    def __init__(
        self, datapipe: object, fn: object, *, args: dict[str, Any] | None = None, field: str = "", to: str = ""
    ) -> None:
        super().__init__(datapipe)
        self.fn, self.args, self.field, self.to = function_of(fn, args, "Map"), args or {}, field, to

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield map_sample(self, sample)

    def __len__(self) -> int:
        return length_of(self)


@DataPipeline.register()
class Filter(ItrDataPipeline):
    """Keeps the samples for which `fn(sample, **args)` is true; with `field`, `fn` gets only that field."""

    keeps = True

    def __init__(self, datapipe: object, fn: object, *, args: dict[str, Any] | None = None, field: str = "") -> None:
        super().__init__(datapipe)
        self.fn, self.args, self.field = function_of(fn, args, "Filter"), args or {}, field

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            if self.fn(field_of(sample, self.field, self) if self.field else sample):
                yield sample


@DataPipeline.register()
class Take(ItrDataPipeline):
    """Keeps the first `n` samples, counted over all workers."""

    keeps = True

    def __init__(self, datapipe: object, n: PositiveInt) -> None:
        super().__init__(datapipe)
        filters = (pipe for pipe in walk(datapipe) if isinstance(pipe, Filter))
        if find_splitter(next(filters, None)) is not None:
            hint = "put Take before SplitByWorker"
            raise AlchemyError(
                "Take cannot follow a Filter after SplitByWorker: no worker knows how many samples the others keep",
                hint=hint,
            )
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.datapipe, _share_of(self.n, self))

    def __len__(self) -> int:
        return min(_share_of(self.n, self), length_of(self))


@DataPipeline.register()
class Concat(ItrDataPipeline):
    """Concatenates sources: the preceding pipe, if any, then each chain in `pipes`.

    `{ type = "alchemy.pipeline.itr.Concat", pipes = [[{ type = .. }, { type = .. }], [{ type = .. }]] }`
    """

    def __init__(self, datapipe: object = None, *, pipes: list[Any]) -> None:
        super().__init__(datapipe)
        self.datapipes = [_chain(pipe, number) for number, pipe in enumerate(pipes)]
        if datapipe is None and not self.datapipes:
            raise AlchemyError("Concat has no sources", hint="set 'pipes' to a list of chains")

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.sources())

    def __len__(self) -> int:
        return sum(length_of(self, source) for source in self.sources())


class RepeatIter(Iterator[Any]):
    """An iterator that restarts `iterable` whenever it ends; it stops only if `iterable` is empty."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self.iterable = iterable
        self._items: Iterator[Any] = iter(())

    def __next__(self) -> Any:
        for item in self._items:
            return item
        self._items = iter(self.iterable)
        return next(self._items)


@DataPipeline.register()
class Sample(ItrDataPipeline):
    """Draws `epoch_items` samples per epoch from several sources, chosen at random with weights `ratios`.

    `datapipe` is a list or table of chains, and `ratios` is a list or table of their weights. A source that ends is
    restarted. Every epoch reads all sources from the beginning, so add a Shuffle to long sources.
    """

    order: Order

    def __init__(
        self,
        datapipe: list[Any] | dict[str, Any],
        ratios: list[float] | dict[str, float],
        epoch_items: PositiveInt,
    ) -> None:
        super().__init__()
        sources, weights = _by_key(datapipe), _by_key(ratios)
        if not isinstance(sources, Mapping) or not isinstance(weights, Mapping) or sources.keys() != weights.keys():
            hint = "set one ratio per source: a list if 'datapipe' is a list, else a table with the same keys"
            raise AlchemyError("Sample: 'ratios' does not match the sources in 'datapipe'", hint=hint)
        self.datapipes = [_chain(source, number) for number, source in enumerate(sources.values())]
        self.ratios, self.epoch_items = [weights[key] for key in sources], epoch_items
        if not self.ratios or min(self.ratios) < 0 or not sum(self.ratios):
            raise AlchemyError(f"Sample: 'ratios' must be non-negative and not all 0, got {ratios!r}")
        self.order = Order()

    def __iter__(self) -> Iterator[Any]:
        numbers = self.order.start()
        sources = [RepeatIter(source) for source in self.datapipes]
        for _ in range(len(self)):
            yield from itertools.islice(numbers.choices(sources, self.ratios)[0], 1)

    def __len__(self) -> int:
        return _share_of(self.epoch_items, self)


@DataPipeline.register()
class Fields(ItrDataPipeline):
    """Selects the fields in `keep` (all fields if empty) and renames some of them: `rename = { old = "new" }`."""

    maps = True

    def __init__(
        self, datapipe: object, *, keep: list[str] | None = None, rename: dict[str, str] | None = None
    ) -> None:
        super().__init__(datapipe)
        self.keep, self.rename = keep or [], rename or {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sample in self.datapipe:
            for name in (*self.keep, *self.rename):
                field_of(sample, name, self)
            names = [name for name in sample if not self.keep or name in self.keep or name in self.rename]
            yield {self.rename.get(name, name): sample[name] for name in names}

    def padding(self) -> dict[str, int]:
        return {self.rename.get(name, name): value for name, value in super().padding().items()}

    def __len__(self) -> int:
        return length_of(self)


def length_of(pipe: object, source: Any = None) -> int:
    """Return the number of samples in a pipe's source; like `len`, raise TypeError if it is unknown."""
    source = link_of(pipe).datapipe if source is None else source
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        hint = "put alchemy.pipeline.itr.WithLength after it"
        raise TypeError(f"{title(pipe)} has no length because {title(source)} has none; {hint}") from None


def _share_of(total: int, pipe: DataPipeline) -> int:
    """Return how many of `total` samples reach `pipe` in this worker if an earlier pipe splits the data."""
    splitter = find_splitter(pipe)
    reader, readers = (0, 1) if splitter is None else reader_share(splitter)
    return max(0, -(-(total - reader) // readers))


def function_of(fn: object, args: Mapping[str, Any] | None, what: str) -> Any:
    """Return the function that a config names, with its keyword arguments bound."""
    return import_function(fn, args or {}, what=f"{what}: fn")


def field_of(sample: Any, name: str, pipe: object) -> Any:
    try:
        return sample[name]
    except (KeyError, TypeError, IndexError):
        there = ", ".join(map(str, sample)) if isinstance(sample, Mapping) else f"a {type(sample).__name__}, not a dict"
        raise AlchemyError(f"{title(pipe)}: a sample has no field {name!r}; it has {there}") from None


def map_sample(pipe: Any, sample: Any) -> Any:
    """Apply the `fn` of a Map to a sample without modifying the sample."""
    if not pipe.field:
        return pipe.fn(sample)
    return {**sample, pipe.to or pipe.field: pipe.fn(field_of(sample, pipe.field, pipe))}


def _by_key(values: Any) -> Any:
    return dict(enumerate(values)) if isinstance(values, list) else values


def _chain(pipe: Any, number: int) -> Any:
    if isinstance(pipe, Mapping):
        pipe = [pipe]
    if isinstance(pipe, list) and pipe and isinstance(pipe[0], Mapping) and "type" in pipe[0]:
        return build_datapipes(pipe, section=f"datapipe.{number}")
    return pipe
