"""When a checkpoint is due, and which scores are the best."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from alchemy.checkpoint.manifest import Where
from alchemy.checkpoint.monitor import Monitor

SECTION = "checkpoint"


class Every:
    """`every = 500` counts updates; `every = {updates = 500, epochs = 1, minutes = 30}` takes what comes first."""

    def __init__(self, every: int | Mapping[str, float]) -> None:
        table = every if isinstance(every, Mapping) else {"updates": every}
        self.updates, self.epochs = int(table.get("updates", 0)), int(table.get("epochs", 0))
        self.seconds = 60.0 * table.get("minutes", math.inf)
        self.begin(0)

    def begin(self, update: int) -> None:
        """Counts from here, at the start, after a resume and after each save."""
        self.next_update: float = (update // self.updates + 1) * self.updates if self.updates else math.inf
        self.next_time = time.monotonic() + self.seconds

    def is_due_at_epoch(self, epoch: int) -> bool:
        return bool(self.epochs) and (epoch + 1) % self.epochs == 0


class _Rank(NamedTuple):
    value: float
    update: int
    name: str  # of the checkpoint; empty where none is kept


class Score(NamedTuple):
    """The monitored value of an evaluation, where it was made, and all its numbers."""

    value: float
    where: Where
    numbers: Mapping[str, float]


class Watch:
    """The best scores of one number so far, best first; of equal ones the older.

    `keep` of them have a checkpoint each, with 0 only the best value is known. `names` are folders of `checkpt/` that
    get the weights of the best one.
    """

    def __init__(self, monitor: Monitor, keep: int = 1, names: Sequence[str] = ()) -> None:
        self.monitor, self.keep, self.names = monitor, keep, tuple(names)
        self.rows: list[_Rank] = []
        self.latest: Score | None = None
        self.due: Score | None = None  # one of the best, whose checkpoint is still to be written
        self.leader: Score | None = None  # the last one that came first
        self._before: list[_Rank] = []  # until it is known that the checkpoint of the last one was written

    @property
    def key(self) -> str:
        """The name of its rows in a state."""
        gain = f" by {self.monitor.min_delta:g}" if self.monitor.min_delta else ""
        return f"{self.monitor.mode} {self.monitor.name}{gain}"

    def join(self, other: Watch) -> None:
        """Serves another wish for the same number, too."""
        self.keep, self.names = max(self.keep, other.keep), (*self.names, *other.names)

    def admits(self, value: float) -> bool:
        """Whether a score is one of the best."""
        full = len(self.rows) >= max(self.keep, 1)
        return self.monitor.is_better(value, self.rows[-1].value if full else None)

    def leads(self, value: float) -> bool:
        """Whether a score is the best of all."""
        return self.monitor.is_better(value, self.rows[0].value if self.rows else None)

    def add(self, score: Score, name: str = "") -> None:
        """Ranks a score that was admitted, with the name of its checkpoint."""
        if self.leads(score.value):
            self.leader = score
        sign = -1.0 if self.monitor.mode == "max" else 1.0
        rows = [*self.rows, _Rank(score.value, score.where.update, name)]
        self._before, self.rows = self.rows, sorted(rows, key=lambda row: sign * row.value)[: max(self.keep, 1)]

    def forget(self, names: Collection[str]) -> None:
        """Restores the ranks from before a checkpoint that was not written; drops those that were deleted."""
        is_lost = any(row.name in names for row in self.rows if row not in self._before)
        self.rows = [row for row in (self._before if is_lost else self.rows) if row.name not in names]

    def load(self, rows: Sequence[Sequence[Any]], leader: Sequence[Any] | None = None) -> None:
        self.rows = [_Rank(float(value), int(update), str(name)) for value, update, name in rows][: max(self.keep, 1)]
        if leader is not None:
            value, where, numbers = leader
            self.leader = Score(value, Where(*where), numbers)
