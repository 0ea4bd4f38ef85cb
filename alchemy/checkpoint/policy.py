"""When a checkpoint is due, and which ones are the best."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError

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


class Rank(NamedTuple):
    value: float
    update: int
    name: str


class Ranks:
    """The best checkpoints so far, best first; of equal ones the older."""

    def __init__(self, count: int, mode: str) -> None:
        self.count, self.mode, self.sign = count, mode, {"max": 1.0, "min": -1.0}[mode]
        self.rows: list[Rank] = []

    def admits(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        room = len(self.rows) < self.count
        return room or (self.count > 0 and self.sign * value > self.sign * self.rows[-1].value)

    def add(self, rank: Rank) -> None:
        rows = sorted([*self.rows, rank], key=lambda row: -self.sign * row.value)  # stable: ties stay in order
        self.rows = rows[: self.count]

    def forget(self, names: Collection[str]) -> None:
        """Checkpoints that were not written after all."""
        self.rows = [row for row in self.rows if row.name not in names]

    def load(self, rows: Sequence[Sequence[Any]]) -> None:
        self.rows = [Rank(float(value), int(update), str(name)) for value, update, name in rows][: self.count]


def check_monitor(monitor: Any) -> None:
    split, slash, name = monitor.partition("/") if isinstance(monitor, str) else ("", "", "")
    if monitor != "" and not (split and slash and name):
        hint = 'give split/name, such as "dev/f1"'
        raise AlchemyError(f"monitor = {monitor!r}", section=SECTION, hint=hint)
