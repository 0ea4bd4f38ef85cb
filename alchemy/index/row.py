"""A record as a row of the index."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Row:
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
    seconds: float | None
    kind: str
    parent: str
    variant: str
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
        return time.time() - self.started if self.status == "running" and self.started is not None else self.seconds

    @property
    def tag_list(self) -> list[str]:
        return [tag for tag in self.tags.split(",") if tag]


COLUMNS = ", ".join(f"r.{field.name}" for field in fields(Row))  # of the table `records r`
