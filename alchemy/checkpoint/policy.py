"""Decide when to save a checkpoint, and rank the best scores."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from alchemy.checkpoint.manifest import Where
from alchemy.checkpoint.monitor import Monitor

SECTION = "checkpoint"


class Every:
    """The save interval: `500` (updates), or the first to elapse of `{updates = 500, epochs = 1, minutes = 30}`."""

    def __init__(self, every: int | Mapping[str, float]) -> None:
        table = every if isinstance(every, Mapping) else {"updates": every}
        self.updates, self.epochs = int(table.get("updates", 0)), int(table.get("epochs", 0))
        self.seconds = 60.0 * table.get("minutes", math.inf)
        self.restart(0)

    def restart(self, update: int) -> None:
        """Restart the interval. Called at the start, after resuming and after each save."""
        self.next_update: float = (update // self.updates + 1) * self.updates if self.updates else math.inf
        self.next_time = time.monotonic() + self.seconds

    def is_due_at_epoch(self, epoch: int) -> bool:
        return bool(self.epochs) and (epoch + 1) % self.epochs == 0


class _Rank(NamedTuple):
    value: float
    update: int
    name: str  # checkpoint name; empty if no checkpoint is kept


class Score(NamedTuple):
    """The monitored value of an evaluation, its position in the run, and all its metrics."""

    value: float
    where: Where
    numbers: Mapping[str, float]


class Watch:
    """The best scores of one metric so far, best first; among equal scores, the oldest ranks highest.

    Each of the `keep` best scores has a checkpoint; with 0, only the best value is tracked. `names` are the folders in
    `checkpt/` for the best weights.
    """

    def __init__(self, monitor: Monitor, keep: int = 1, names: Sequence[str] = ()) -> None:
        self.monitor, self.keep, self.names = monitor, keep, tuple(names)
        self.rows: list[_Rank] = []
        self.latest: Score | None = None
        self.due: Score | None = None  # one of the best scores, whose checkpoint has not been written yet
        self.leader: Score | None = None  # the last score to become the best
        self._before: list[_Rank] = []  # the previous ranks, kept until the checkpoint of the last score is written

    @property
    def key(self) -> str:
        """The key of this watch's rows in a saved state."""
        gain = f" by {self.monitor.min_delta:g}" if self.monitor.min_delta else ""
        return f"{self.monitor.mode} {self.monitor.name}{gain}"

    def merge(self, other: Watch) -> None:
        """Merge another watch for the same metric into this one."""
        self.keep, self.names = max(self.keep, other.keep), (*self.names, *other.names)

    def admits(self, value: float) -> bool:
        """Return whether a score ranks among the best."""
        full = len(self.rows) >= max(self.keep, 1)
        return self.monitor.is_better(value, self.rows[-1].value if full else None)

    def leads(self, value: float) -> bool:
        """Return whether a score is the best so far."""
        return self.monitor.is_better(value, self.rows[0].value if self.rows else None)

    def add(self, score: Score, name: str = "") -> None:
        """Add an admitted score to the ranking, with the name of its checkpoint."""
        if self.leads(score.value):
            self.leader = score
        sign = -1.0 if self.monitor.mode == "max" else 1.0
        rows = [*self.rows, _Rank(score.value, score.where.update, name)]
        self._before, self.rows = self.rows, sorted(rows, key=lambda row: sign * row.value)[: max(self.keep, 1)]

    def forget(self, names: Collection[str]) -> None:
        """Restore the ranking from before a failed checkpoint, and drop checkpoints that were deleted."""
        is_lost = any(row.name in names for row in self.rows if row not in self._before)
        self.rows = [row for row in (self._before if is_lost else self.rows) if row.name not in names]

    def load(self, rows: Sequence[Sequence[Any]], leader: Sequence[Any] | None = None) -> None:
        self.rows = [_Rank(float(value), int(update), str(name)) for value, update, name in rows][: max(self.keep, 1)]
        if leader is not None:
            value, where, numbers = leader
            self.leader = Score(value, Where(*where), numbers)
