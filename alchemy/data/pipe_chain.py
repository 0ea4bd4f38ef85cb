"""A chain of data pipes seen from outside: its links, its order, its share for each worker."""

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
    """Random numbers for a pipe: a function of (seed, pass over the data), the same in every worker.

    A pipe that keeps one as `self.order` is seeded by the loader. It must not depend on the worker: where a pipe
    shuffles before the data is split, workers with orders of their own would lose and repeat samples.
    """

    def __init__(self) -> None:
        self.seed: int | str = 0
        self.passes = 0

    def start(self) -> random.Random:
        """The numbers of a new pass; each pass has others."""
        numbers = random.Random(f"{self.seed}/{self.passes}")
        self.passes += 1
        return numbers


class Link:
    """What a chain asks of its links, and the answers of one that has nothing to say.

    Data pipes are links. Any other data set, of torch or of a project, and a list are seen through `link_of`.
    """

    datapipe: Any = None  # what it reads from; torch's own data sets have it as `dataset`
    dataset: Any = None
    datapipes: Sequence[Any] = ()
    datasets: Sequence[Any] = ()
    takes: Mapping[str, str] | None = None  # the fields of its samples, each with a dtype and perhaps a shape
    gives: Mapping[str, str] | None = None
    keeps: bool = False
    splits: bool = False  # it gives each worker a part
    ranks: tuple[int, int] = (0, 1)  # (rank, ranks) that it splits for: set by the loader
    order: Order | None = None
    collate: Callable[[Any], Any] | None = None  # it makes its batches itself
    multiple: int = 1  # of tokens, to which such a one pads rows
    digest: str | None = None  # what a resume knows the samples by

    def sources(self) -> list[Any]:
        """What it reads from."""
        listed = [each for each in (self.datapipes, self.datasets) if isinstance(each, list | tuple)]
        above = [self.datapipe, self.dataset, *(source for each in listed for source in each)]
        return [source for source in above if source is not None]

    def lengths(self) -> Mapping[str, np.ndarray]:
        """How long the samples are, by field, as far as that is known without reading them."""
        return {}

    def where(self, index: int) -> str:
        """The place of a sample in words: file and line, where they are known."""
        return f"sample {index}"

    def padding(self) -> dict[str, int]:
        """What rows of a field are filled up with, as far as the pipes know it: those before, unless one says more."""
        above = [link_of(source) for source in reversed(self.sources())]
        return {name: value for link in above for name, value in link.padding().items()}


class _Seen(Link):
    """A data set that is no pipe: what it has under the names of a link is taken for that."""

    def __init__(self, data: object) -> None:
        for name, default in vars(Link).items():
            own = None if name.startswith("_") else getattr(data, name, None)
            if own is not None and (callable(own) or not callable(default)):
                vars(self)[name] = own


def link_of(data: object) -> Link:
    """Data of any kind as a link."""
    return data if isinstance(data, Link) else _Seen(data)


@runtime_checkable
class _Indexed(Protocol):
    def __getitem__(self, index: Any, /) -> Any: ...


def has_index(data: object) -> TypeGuard[Sequence[Any]]:
    """Whether samples can be asked for by number; else the data is a stream."""
    return isinstance(data, _Indexed) and not isinstance(data, IterableDataset)


def read_all(data: Any) -> Iterator[Any]:
    """All samples, one after the other; data with an index need not raise IndexError at its end."""
    return (data[index] for index in range(len(data))) if has_index(data) else iter(data)


@runtime_checkable
class _Batched(Protocol):
    def __getitems__(self, indices: Any, /) -> Any: ...


def fetcher(dataset: Any) -> Callable[[list[Any]], Any]:
    """What reads the samples of a batch: the data set at once, if it can, else one by one."""
    return dataset.__getitems__ if isinstance(dataset, _Batched) else lambda ids: [dataset[index] for index in ids]


def walk(dataset: object) -> Iterator[Any]:
    """Every link of a chain, the last pipe first."""
    seen: set[int] = set()
    waiting: list[Any] = [dataset]
    while waiting:
        pipe = waiting.pop(0)
        if id(pipe) not in seen:
            seen.add(id(pipe))
            yield pipe
            waiting += link_of(pipe).sources()


def seed_chain(dataset: object, seed: int, passes: int = 0) -> None:
    """Gives every shuffling pipe of a chain its seed, each another one."""
    for depth, pipe in enumerate(walk(dataset)):
        order = link_of(pipe).order
        if isinstance(order, Order):  # a project may mean something else by it
            order.seed, order.passes = f"{seed}/{depth}", passes


def worker_share() -> tuple[int, int]:
    """`(worker, workers)` for whom the data is read now; `(0, 1)` without workers."""
    acting = _share.get()
    if acting is not None:
        return acting
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def reader_share(pipe: object) -> tuple[int, int]:
    """The same over all processes of a run, for a pipe that splits the data."""
    worker, workers = worker_share()
    rank, ranks = link_of(pipe).ranks
    return rank * workers + worker, ranks * workers


def share_out(dataset: object, rank: int, ranks: int) -> None:
    """Tells every splitting pipe for which of several processes it reads; travels to the workers with it."""
    for pipe in walk(dataset):
        if _splits(pipe):
            pipe.ranks = (rank, ranks)


@contextlib.contextmanager
def acting_as(worker: int, workers: int) -> Iterator[None]:
    """Inside, lengths are those that the given worker would see."""
    token = _share.set((worker, workers))
    try:
        yield
    finally:
        _share.reset(token)


def splitter_of(dataset: object) -> Any:
    """The pipe that gives each worker a part of its own, the nearest one; None where each reads all."""
    return next(filter(_splits, walk(dataset)), None)


def is_unsplit(dataset: object) -> bool:
    """Whether the data is a stream of which every worker and every process would read all."""
    return isinstance(dataset, IterableDataset) and splitter_of(dataset) is None


def times_split(dataset: object) -> int:
    """How many pipes of one line split the data among the workers; more than one loses samples."""
    return _splits(dataset) + max(map(times_split, link_of(dataset).sources()), default=0)


def counts_its_share(dataset: object) -> bool:
    """Whether `len` of the chain follows the share: true while every length up to the split is one of ours."""
    pipe: object = dataset
    while isinstance(pipe, Link) and not _splits(pipe):
        lengths = [kind.__module__ for kind in type(pipe).__mro__ if "__len__" in vars(kind)]
        if not lengths or not lengths[0].startswith("alchemy."):
            return False
        pipe = pipe.datapipe
    return pipe is not None and _splits(pipe)


def _splits(pipe: object) -> bool:
    return link_of(pipe).splits is True  # a project may mean something else by it


def members(pipe: object) -> Mapping[str, Any]:
    """What a pipe holds, by name; a list, which has no names, as a whole."""
    try:
        return vars(pipe)
    except TypeError:
        return {"": pipe}


def title(pipe: object) -> str:
    """How a pipe is called in messages: its import path."""
    return f"{type(pipe).__module__}.{type(pipe).__qualname__}"
