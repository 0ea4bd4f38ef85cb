"""Iterate over the batches of an epoch, with the same number of steps in every process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alchemy.data.batch_sampler import NOTHING, UNKNOWN
from alchemy.data.loader import Loader
from alchemy.null_objects import ProcessGroup

UNSPLIT = (
    "no pipe splits the stream: each of {} processes reads all of it and trains on one out of every {} batches; put "
    "alchemy.pipeline.itr.SplitByWorker after the opener so that each process reads only its share, or set "
    "splits = True on the class of a pipe that already splits by rank"
)


class EpochBatches:
    """Iterates over the batches of an epoch and counts steps; all processes have the same number of steps."""

    def __init__(self, loader: Loader, group: ProcessGroup, *, limit: int = 0) -> None:
        self.loader, self.group = loader, group
        place = loader.place
        self.done = place.start // place.ranks if place.per_device and loader.index_sampler is not None else place.start
        self.total = self._agree_on_total(_count_steps(loader, self.done, limit))
        self._limit = limit
        self.exhausted = False  # whether the data has been read to the end
        self._filler: Any = None  # a batch for steps in which only other processes have batches left

    def _agree_on_total(self, total: int | None) -> int | None:
        """Return the largest total across all processes, because the shares of a stream may differ in length."""
        if self.group.size == 1 or self.loader.index_sampler is not None:
            return total
        totals = self.group.gather(total)
        return None if None in totals else max(totals)

    @property
    def last(self) -> bool:
        """Whether this is the last step of the epoch; always False if the length of the data is unknown."""
        return self.total is not None and self.done >= self.total

    @property
    def real(self) -> bool:
        return self.loader.real

    def __iter__(self) -> Iterator[Any]:
        if self._limit and self.done >= self._limit:
            return
        for batch in self._batches():
            self.done += 1
            self.exhausted = self.last and not self._limit  # a stopping rule may end the loop after the last step
            yield batch
            if self._limit and self.done >= self._limit:
                return
        self.exhausted = True

    def _batches(self) -> Iterator[Any]:
        if self.group.size == 1 or self.loader.index_sampler is not None:
            yield from self.loader
            return
        # shares of a stream may end at different steps, so the processes synchronize before every step
        own = iter(self.loader)
        while self.group.any((batch := next(own, None)) is not None):
            self.loader.last_samples = UNKNOWN if batch is not None else NOTHING
            self._filler = batch if batch is not None else self._filler
            # in a resumed run, the last batch of this process may precede the start position
            yield self.loader.skipped if self._filler is None else self._filler


def _count_steps(loader: Loader, done: int, limit: int) -> int | None:
    try:
        total = len(loader) + (done if loader.index_sampler is not None else 0)
    except (TypeError, NotImplementedError):
        return limit or None
    return min(total, limit) if limit else total
