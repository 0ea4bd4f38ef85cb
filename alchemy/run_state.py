"""Limits, stop requests and progress of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from alchemy.checkpoint.manifest import Best


@dataclass
class Limits:
    """Limits set on the command line; 0 means no limit."""

    max_batches: int = 0  # --fast-dev-run: batches per epoch or evaluation
    overfit: int = 0  # --overfit: number of batches to repeat


@dataclass
class StopRequest:
    """A request to end the loop. A request from one process takes effect once it has been sent to all processes."""

    reason: str | None = None  # the same in all processes; the first reason wins
    signal: int | None = None  # the same in all processes
    own_reason: str | None = None  # not yet sent to the other processes
    own_signal: int = 0  # not yet sent to the other processes

    @property
    def is_made(self) -> bool:
        """Whether the loop should end at the next step boundary."""
        return self.signal is not None or self.reason is not None

    @property
    def text(self) -> str:
        """The reason why the run ended early."""
        return self.reason or "" if self.signal is None else f"signal {self.signal}: ended at the next step"


@dataclass
class Progress:
    """Progress of a run: scores, current position and time spent."""

    scores: dict[str, dict[str, Any]] = field(default_factory=dict)  # last evaluation of each split
    scored_at: dict[str, int] = field(default_factory=dict)  # the update at which each split was last evaluated
    epoch_steps: int | None = None  # steps per epoch, if the dataset has a length
    window: list[Any] = field(default_factory=list)  # sample ids of each step since the last update
    evaluated_samples: list[int] | None = None  # sample ids of the current evaluation batch, if known
    eval_seconds: float = 0.0  # spent on evaluations, excluded from the time per step
    tracking_seconds: float = 0.0  # spent on writing metrics to the record and to loggers
    best: Best | None = None  # best value of the monitored metric; set when the run ends
    epoch: str = ""  # of the best evaluation, or of the last one if there is no best; counted from 1: "7/12"
