"""A monitored metric: read its value from the scores and compare two values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.key_rules import check_monitor_name
from alchemy.metrics.scalars import numbers_in


@dataclass(frozen=True)
class Monitor:
    """A `split/score` metric with the mode "max" or "min"; only improvements larger than `min_delta` count.

    >>> Monitor("dev/loss", "min").is_better(0.5, than=0.7)
    True
    """

    name: str
    mode: str = "max"
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        for _, text, hint in check_monitor_name(self.name):
            raise AlchemyError(text, hint=hint)
        if self.mode not in ("max", "min"):
            raise AlchemyError(f"mode must be 'max' or 'min', got {self.mode!r}")
        if not self.min_delta >= 0:  # also rejects NaN
            raise AlchemyError(f"min_delta must be >= 0, got {self.min_delta}")

    @property
    def split(self) -> str:
        return self.name.partition("/")[0]

    @property
    def score(self) -> str:
        return self.name.partition("/")[2]

    def is_better(self, value: float, than: float | None) -> bool:
        """Return whether `value` is finite and better than `than`; any finite value is better than None."""
        if not math.isfinite(value) or than is None:
            return math.isfinite(value)
        return (value - than if self.mode == "max" else than - value) > self.min_delta

    def read(self, scores: Mapping[str, object]) -> float:
        """Return the value of the metric in the scores of its split.

        Returns NaN if the loss is not finite: such a model is broken regardless of its other scores and is never best.
        """
        numbers = numbers_in(scores)
        if self.score not in numbers:
            hint = did_you_mean(self.score, numbers) or f"the evaluation returned {', '.join(numbers) or 'no metrics'}"
            raise AlchemyError(f"monitor = {self.name!r} is not among the scores of {self.split!r}", hint=hint)
        return numbers[self.score] if math.isfinite(numbers.get("loss", 0.0)) else math.nan
