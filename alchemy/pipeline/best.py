"""The best value of a monitored number, and how long ago it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from loguru import logger

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.metrics.numbers import numbers_in


class Best:
    """Keeps the best of the numbers it is shown; a number that is not finite is never better."""

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        self.monitor, self.mode, self.min_delta = monitor, mode, min_delta
        self.value: float | None = None
        self.at: dict[str, int] = {}
        self.waited = 0  # validations since the best one
        self._warned = False

    def show(self, value: float, at: Mapping[str, int]) -> bool:
        """Whether `value` is better than all before it."""
        if not self._is_better(value):
            self.waited += 1
            return False
        self.value, self.at, self.waited = value, dict(at), 0
        return True

    def _is_better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.value is None:
            return True
        gain = value - self.value if self.mode == "max" else self.value - value
        return gain > self.min_delta

    def read(self, split: str, scores: Mapping[str, Any], *, quiet: bool = False) -> float:
        """The monitored number among the scores of a split: `accuracy`, or in full `dev/accuracy`.

        NaN where the loss is not finite: such a model is broken, whatever its other scores, and never the best.
        """
        numbers = numbers_in(scores)
        name = self.monitor.removeprefix(f"{split}/")
        if name not in numbers:
            there = ", ".join(numbers) or "no number"
            hint = did_you_mean(name, numbers) or f"the pipes before it gave {there}"
            raise AlchemyError(f"monitor = {self.monitor!r} is not among the scores of {split!r}", hint=hint)
        loss = numbers.get("loss", 0.0)
        if math.isfinite(loss):
            return numbers[name]
        if not self._warned and not quiet:
            self._warned = True
            logger.warning("the loss of {} is {}: no such model is taken as the best one", split, loss)
        return math.nan

    def overdue(self, name: str, patience: int, times: str = "evaluations") -> str:
        """Why to stop, once `patience` numbers in a row were no better; never with a patience of 0 or less."""
        if patience <= 0 or self.waited < patience:
            return ""
        best = "was never finite" if self.value is None else f"has not passed {self.value:.4g}"
        return f"{name} {best} for {self.waited} {times}"

    def name(self, split: str) -> str:
        return f"{split}/{self.monitor.removeprefix(f'{split}/')}"

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "at": dict(self.at), "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.value, self.at, self.waited = state["value"], dict(state["at"]), state["waited"]
