"""Has a score stopped getting better?"""

from __future__ import annotations

import math
from typing import Any


class Plateau:
    """Counts bad scores as torch's ReduceLROnPlateau does: `see(score)` is True when patience has run out."""

    def __init__(self, *, mode: str, patience: int, threshold: float, threshold_mode: str, cooldown: int) -> None:
        self.mode, self.patience, self.threshold = mode, patience, threshold
        self.threshold_mode, self.cooldown = threshold_mode, cooldown
        self.best = math.inf if mode == "min" else -math.inf
        self.bad = self.cooling = 0

    def see(self, score: float) -> bool:
        if self._better(score):
            self.best, self.bad = score, 0
        else:
            self.bad += 1
        if self.cooling:
            self.cooling -= 1
            self.bad = 0
        if self.bad <= self.patience:
            return False
        self.bad, self.cooling = 0, self.cooldown
        return True

    def _better(self, score: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        margin = self.threshold * abs(self.best) if self.threshold_mode == "rel" else self.threshold
        return sign * score > sign * self.best + (0.0 if math.isinf(self.best) else margin)

    def state_dict(self) -> dict[str, Any]:
        # as text: infinity has no spelling in JSON
        return {"best": repr(self.best), "bad": self.bad, "cooling": self.cooling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.bad, self.cooling = float(state["best"]), int(state["bad"]), int(state["cooling"])
