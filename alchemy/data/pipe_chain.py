"""Inspect and configure chains of data pipes: links, seeds, worker shares."""

from __future__ import annotations

import contextlib
import contextvars
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

_share: contextvars.ContextVar[tuple[int, int] | None] = contextvars.ContextVar("alchemy_worker_share", default=None)


class Order:
    """A source of random numbers that depend on (seed, pass over the data) and are the same in every worker.

    The loader seeds the Order that a pipe stores as `self.order`. The numbers must not depend on the worker: if a pipe
    shuffles before the data is split, workers with different orders would skip and repeat samples.
    """

    def __init__(self) -> None:
        self.seed: int | str = 0
        self.passes = 0

    def start(self) -> random.Random:
        """Return the random number generator for a new pass; each pass has its own."""
        numbers = random.Random(f"{self.seed}/{self.passes}")
        self.passes += 1
        return numbers


class Link:
    """The interface of a link in a chain, with default implementations.

    Data pipes are links. `link_of` adapts lists and other datasets, such as torch datasets.
    """

    datapipe: Any = None  # the source; called `dataset` in torch's datasets
    dataset: Any = None
    datapipes: Sequence[Any] = ()
    datasets: Sequence[Any] = ()
    takes: Mapping[str, str] | None = None  # fields of its input, each with a dtype and an optional shape
    gives: Mapping[str, str] | None = None
    keeps: bool = False
    splits: bool = False  # whether it splits the data among workers
    ranks: tuple[int, int] = (0, 1)  # (rank, ranks) to split for, set by the loader
    order: Order | None = None
    collate: Callable[[Any], Any] | None = None  # its own collate function
    multiple: int = 1  # `collate` pads rows to a multiple of this
    digest: str | None = None  # identifies the samples when a run is resumed

    def sources(self) -> list[Any]:
        """Return the datasets that this object reads from."""
        listed = [each for each in (self.datapipes, self.datasets) if isinstance(each, list | tuple)]
        above = [self.datapipe, self.dataset, *(source for each in listed for source in each)]
        return [source for source in above if source is not None]

    def lengths(self) -> Mapping[str, np.ndarray]:
        """Return the lengths of the samples by field, for fields whose lengths are known without reading samples."""
        return {}

    def where(self, index: int) -> str:
        """Describe the origin of a sample: file and line, if they are known."""
        return f"sample {index}"

    def padding(self) -> dict[str, int]:
        """Return the padding value of each field; by default, the values defined by the previous pipes."""
        above = [link_of(source) for source in reversed(self.sources())]
        return {name: value for link in above for name, value in link.padding().items()}


class _Adapter(Link):
    """Adapts a dataset that is not a pipe, using those of its attributes that a link also has."""

    def __init__(self, data: object) -> None:
        for name, default in vars(Link).items():
            own = None if name.startswith("_") else getattr(data, name, None)
            if own is not None and (callable(own) or not callable(default)):
                vars(self)[name] = own


def link_of(data: object) -> Link:
    """Return a link for any kind of data."""
    return data if isinstance(data, Link) else _Adapter(data)


@runtime_checkable
class _Indexed(Protocol):
    def __getitem__(self, index: Any, /) -> Any: ...


def has_index(data: object) -> TypeGuard[Sequence[Any]]:
    """Return whether samples can be accessed by index; otherwise the data is a stream."""
    return isinstance(data, _Indexed) and not isinstance(data, IterableDataset)


def read_all(data: Any) -> Iterator[Any]:
    """Iterate over all samples; data with an index need not raise IndexError at its end."""
    return (data[index] for index in range(len(data))) if has_index(data) else iter(data)


@runtime_checkable
class _Batched(Protocol):
    def __getitems__(self, indices: Any, /) -> Any: ...


def make_fetcher(dataset: Any) -> Callable[[list[Any]], Any]:
    """Return a function that reads the samples of a batch, with `__getitems__` if the dataset has it."""
    return dataset.__getitems__ if isinstance(dataset, _Batched) else lambda ids: [dataset[index] for index in ids]


def walk(dataset: object) -> Iterator[Any]:
    """Yield every link of a chain, last pipe first."""
    seen: set[int] = set()
    waiting: list[Any] = [dataset]
    while waiting:
        pipe = waiting.pop(0)
        if id(pipe) not in seen:
            seen.add(id(pipe))
            yield pipe
            waiting += link_of(pipe).sources()


def seed_chain(dataset: object, seed: int, passes: int = 0) -> None:
    """Seed every shuffling pipe of a chain, each with a different seed."""
    for depth, pipe in enumerate(walk(dataset)):
        order = link_of(pipe).order
        if isinstance(order, Order):  # a project may use the name for something else
            order.seed, order.passes = f"{seed}/{depth}", passes


def worker_share() -> tuple[int, int]:
    """Return `(worker, workers)` for the worker that reads the data; `(0, 1)` without workers."""
    acting = _share.get()
    if acting is not None:
        return acting
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def reader_share(pipe: object) -> tuple[int, int]:
    """Return `(reader, readers)`, counting the workers of all processes, for a pipe that splits the data."""
    worker, workers = worker_share()
    rank, ranks = link_of(pipe).ranks
    return rank * workers + worker, ranks * workers


def assign_ranks(dataset: object, rank: int, ranks: int) -> None:
    """Set the rank of every splitting pipe; workers receive it with the pipe."""
    for pipe in walk(dataset):
        if _splits(pipe):
            pipe.ranks = (rank, ranks)


@contextlib.contextmanager
def acting_as(worker: int, workers: int) -> Iterator[None]:
    """Make `len` return the lengths that the given worker would see."""
    token = _share.set((worker, workers))
    try:
        yield
    finally:
        _share.reset(token)


def find_splitter(dataset: object) -> Any:
    """Return the nearest pipe that splits the data among workers, or None."""
    return next(filter(_splits, walk(dataset)), None)


def is_unsplit(dataset: object) -> bool:
    """Return whether the data is a stream that every worker and every process would read in full."""
    return isinstance(dataset, IterableDataset) and find_splitter(dataset) is None


def count_splits(dataset: object) -> int:
    """Return how many pipes in one branch split the data among workers; more than one would lose samples."""
    return _splits(dataset) + max(map(count_splits, link_of(dataset).sources()), default=0)


def has_worker_length(dataset: object) -> bool:
    """Return whether the chain's `len` depends on the worker, i.e. if alchemy defines all `__len__` up to the split."""
    pipe: object = dataset
    while isinstance(pipe, Link) and not _splits(pipe):
        lengths = [kind.__module__ for kind in type(pipe).__mro__ if "__len__" in vars(kind)]
        if not lengths or not lengths[0].startswith("alchemy."):
            return False
        pipe = pipe.datapipe
    return pipe is not None and _splits(pipe)


def _splits(pipe: object) -> bool:
    return link_of(pipe).splits is True  # a project may use the name for something else


def members(pipe: object) -> Mapping[str, Any]:
    """Return the attributes of a pipe; a list, which has none, is returned under the name ""."""
    try:
        return vars(pipe)
    except TypeError:
        return {"": pipe}


def title(pipe: object) -> str:
    """Return the name of a pipe for messages: its import path."""
    return f"{type(pipe).__module__}.{type(pipe).__qualname__}"
