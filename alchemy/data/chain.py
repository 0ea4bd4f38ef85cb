"""A chain of data pipes seen from outside: its links, its order, its share for each worker."""

from __future__ import annotations

import contextlib
import contextvars
import random
from collections.abc import Iterator
from typing import Any

from torch.utils.data import get_worker_info

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


def sources(pipe: Any) -> list[Any]:
    """What a pipe or a torch data set reads from."""
    above = [getattr(pipe, "datapipe", None), getattr(pipe, "dataset", None)]
    for name in ("datapipes", "datasets"):
        listed = getattr(pipe, name, None)
        above += listed if isinstance(listed, list | tuple) else []
    return [source for source in above if source is not None]


def walk(dataset: Any) -> Iterator[Any]:
    """Every link of a chain, the last pipe first."""
    seen: set[int] = set()
    waiting = [dataset]
    while waiting:
        pipe = waiting.pop(0)
        if id(pipe) not in seen:
            seen.add(id(pipe))
            yield pipe
            waiting += sources(pipe)


def seed_chain(dataset: Any, seed: int, passes: int = 0) -> None:
    """Gives every shuffling pipe of a chain its seed, each another one."""
    for depth, pipe in enumerate(walk(dataset)):
        order = getattr(pipe, "order", None)
        if isinstance(order, Order):
            order.seed, order.passes = f"{seed}/{depth}", passes


def worker_share() -> tuple[int, int]:
    """`(worker, workers)` for whom the data is read now; `(0, 1)` without workers."""
    acting = _share.get()
    if acting is not None:
        return acting
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def reader_share(pipe: Any) -> tuple[int, int]:
    """The same over all processes of a run, for a pipe that splits the data."""
    worker, workers = worker_share()
    rank, ranks = getattr(pipe, "ranks", (0, 1))
    return rank * workers + worker, ranks * workers


def share_out(dataset: Any, rank: int, ranks: int) -> None:
    """Tells every splitting pipe for which of several processes it reads; travels to the workers with it."""
    for pipe in walk(dataset):
        if getattr(pipe, "splits", False) is True:
            pipe.ranks = (rank, ranks)


@contextlib.contextmanager
def acting_as(worker: int, workers: int) -> Iterator[None]:
    """Inside, lengths are those that the given worker would see."""
    token = _share.set((worker, workers))
    try:
        yield
    finally:
        _share.reset(token)


def splits_by_worker(dataset: Any) -> bool:
    """Whether some pipe gives each worker a part of its own."""
    return any(getattr(pipe, "splits", False) is True for pipe in walk(dataset))


def times_split(dataset: Any) -> int:
    """How many pipes of one line split the data among the workers; more than one loses samples."""
    above = sources(dataset)
    return (getattr(dataset, "splits", False) is True) + max(map(times_split, above), default=0)


def counts_its_share(dataset: Any) -> bool:
    """Whether `len` of the chain follows the share: true while every length up to the split is one of ours."""
    pipe = dataset
    while pipe is not None and getattr(pipe, "splits", False) is not True:
        length = getattr(type(pipe), "__len__", None)
        if length is None or not length.__module__.startswith("alchemy.") or not getattr(pipe, "counts_share", True):
            return False
        pipe = getattr(pipe, "datapipe", None)
    return pipe is not None


def title(pipe: Any) -> str:
    """How a pipe is called in messages: its import path."""
    return f"{type(pipe).__module__}.{type(pipe).__qualname__}"
