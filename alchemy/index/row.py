"""A record as a row of the index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A record as the index knows it. Times are in seconds since the epoch."""

    id: int
    path: str
    name: str
    tag: str
    purpose: str
    tags: str
    notes: str
    status: str
    reason: str
    host: str
    started: float | None
    ended: float | None
    heartbeat: float | None
    seconds: float | None  # while it was active, up to the heartbeat: without the time between two generations
    kind: str
    parent: str
    variant: str
    sweep: str
    point: int | None
    seed: str
    gen: int
    cmd: str
    cfg_hash: str
    fold_hash: str
    code_hash: str
    git: str
    best_metric: str
    best_value: float | None
    best_update: int | None
    updates: int | None
    cause: str  # why the run ended early, in one line
    signature: str  # equal for runs that ended early for the same reason
    problem: str

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def elapsed(self) -> float | None:
        """The duration in seconds; for a run that is active, until now."""
        if self.status != "running" or self.heartbeat is None or self.seconds is None:
            return self.seconds
        return self.seconds + max(0.0, time.time() - self.heartbeat)

    @property
    def tag_list(self) -> list[str]:
        return [tag for tag in self.tags.split(",") if tag]

    @property
    def age(self) -> tuple[float, str]:
        """Sorts records by when they started, the oldest first."""
        return self.started or 0.0, self.name

    @property
    def rank(self) -> tuple[bool, bool, float, str]:
        """Sorts runs by what to show of several: the highest is finished, is not a rerun, and started last."""
        return self.status == "finished", not (self.parent and self.kind == "train"), *self.age


COLUMNS = ", ".join(f"r.{name}" for name in Row._fields)  # of the table `records r`


def fold_key(number: int, kind: str, fold_hash: str, code_hash: str) -> tuple[str, str, str]:
    """Return a key that is equal for runs that differ only in their seed: same kind, config and code.

    A record whose config is not known has a key of its own, by its `number`.
    """
    return kind, fold_hash or str(number), code_hash


def drop_repeats(rows: Sequence[Row]) -> list[Row]:
    """Keep one run of each config, code and seed: repeating a run is not an independent measurement.

    A run that has not finished is also left out if one with the same config and seed has, with whatever code.
    """
    finished = {_seed_key(row) for row in rows if row.status == "finished"}
    rows = [row for row in rows if row.status == "finished" or _seed_key(row) not in finished]
    chosen: dict[object, Row] = {}
    for row in sorted(rows, key=lambda row: row.rank):
        chosen[*fold_key(row.id, row.kind, row.fold_hash, row.code_hash), row.seed or row.id] = row
    kept = {row.id for row in chosen.values()}
    return [row for row in rows if row.id in kept]


def _seed_key(row: Row) -> tuple[str, str, str]:
    return *fold_key(row.id, row.kind, row.fold_hash, "")[:2], row.seed or str(row.id)
