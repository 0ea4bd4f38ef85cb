"""The batches of an epoch as the training loop takes them: where it stands, whose they are, which is the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alchemy.data.batch_sampler import NOTHING, UNKNOWN
from alchemy.data.loader import Loader
from alchemy.null_objects import ProcessGroup

UNSPLIT = (
    "no pipe splits the stream: each of {} processes reads all of it and trains on one batch in {}; put "
    "alchemy.pipeline.itr.SplitByWorker after the opener to share the reading too, or set splits = True on the class "
    "of a pipe that splits by rank itself"
)


class EpochBatches:
    """Counts the steps of an epoch; with several processes it gives each of them the same number of steps."""

    def __init__(self, loader: Loader, group: ProcessGroup, *, limit: int = 0) -> None:
        self.loader, self.group = loader, group
        place = loader.place
        self.done = place.start // place.ranks if place.per_device and loader.deal is not None else place.start
        self.total = self._agreed(_total(loader, self.done, limit))
        self._limit = limit
        self.through = False  # whether the data was read to its end
        self._company: Any = None  # a batch for the steps in which only others have one left

    def _agreed(self, total: int | None) -> int | None:
        """Shares of a stream differ in length: the epoch is as long as the longest, in all processes."""
        if self.group.size == 1 or self.loader.deal is not None:
            return total
        totals = self.group.gather(total)
        return None if None in totals else max(totals)

    @property
    def last(self) -> bool:
        """Whether no step of the epoch follows, as far as the data can tell."""
        return self.total is not None and self.done >= self.total

    @property
    def real(self) -> bool:
        return self.loader.real

    def __iter__(self) -> Iterator[Any]:
        if self._limit and self.done >= self._limit:
            return
        for batch in self._batches():
            self.done += 1
            self.through = self.last and not self._limit  # a loop that ends by a rule after the last step asks no more
            yield batch
            if self._limit and self.done >= self._limit:
                return
        self.through = True

    def _batches(self) -> Iterator[Any]:
        if self.group.size == 1 or self.loader.deal is not None:
            yield from self.loader
            return
        # streams: nobody knows who will be through first, so the processes ask each other before every step
        own = iter(self.loader)
        while self.group.any((batch := next(own, None)) is not None):
            self.loader.given = UNKNOWN if batch is not None else NOTHING
            self._company = batch if batch is not None else self._company
            # a training that is taken up here may have had its last batch before the start
            yield self.loader.skipped if self._company is None else self._company


def _total(loader: Loader, done: int, limit: int) -> int | None:
    try:
        total = len(loader) + (done if loader.deal is not None else 0)
    except (TypeError, NotImplementedError):
        return limit or None
    return min(total, limit) if limit else total
