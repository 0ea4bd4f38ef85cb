"""Freeze parameters of a model for a range of updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loguru import logger

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.pipeline import BeginStepPipeline, SchedPipeline
from alchemy.pipeline.log_media import match_parameters


@SchedPipeline.register()
class Freeze(BeginStepPipeline):
    """Freezes the parameters that match the patterns, from update `start` up to, but not including, update `until`.

    Without `until`, they stay frozen. The state depends only on the number of updates, so it is correct after resuming.
    A parameter stays frozen while another Freeze covers it. Parameters that the model itself froze are left alone.
    """

    def __init__(
        self, *, pattern: str | Sequence[str], start: NonNegativeInt = 0, until: PositiveInt | None = None
    ) -> None:
        super().__init__()
        self.patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        self.start, self.until = start, until
        self.names = self._match_parameters()
        self._on = False

    def _match_parameters(self) -> set[str]:
        """Return the matching parameters that the model trains."""
        return {name for name, param in match_parameters(self.run, self.patterns).items() if param.requires_grad}

    def is_on(self, update: int) -> bool:
        """Return whether the parameters are frozen after `update` updates."""
        return self.start <= update and (self.until is None or update < self.until)

    def __call__(self, batch: object = None, **kwargs: object) -> dict[str, Any]:
        update = self.run.train_sched.num_updates
        if self.is_on(update) is not self._on:
            self._on = not self._on
            self._apply(update)
        return kwargs

    def _apply(self, update: int) -> None:
        others = [pipe for pipe in self.run.train_sched.pipes if isinstance(pipe, Freeze) and pipe.is_on(update)]
        held = set().union(*(pipe.names for pipe in others))
        logger.info("update {}: {} {}", update, ", ".join(self.patterns), "frozen" if self._on else "unfrozen")
        for name, param in self.run.model.named_parameters():
            if name in self.names:
                param.requires_grad = name not in held
