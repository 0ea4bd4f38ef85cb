"""Pipes of the training schedule: when to evaluate, when to freeze. BE, EE, BS, ES: begin/end of an epoch/step."""

from __future__ import annotations

from typing import Any

from loguru import logger

from alchemy.constraints import PositiveInt
from alchemy.context import Run
from alchemy.loop import evaluate
from alchemy.pipeline import BeginEpochPipeline, BeginStepPipeline, EndEpochPipeline, EndStepPipeline, SchedPipeline

__all__ = [
    "EndEvalEEPipeline",
    "EvalAtFinishEEPipeline",
    "EvalAtStartBEPipeline",
    "EvalEEPipeline",
    "EvalESPipeline",
    "EvalEpochEEPipeline",
    "EvalStepESPipeline",
    "InitEvalBEPipeline",
    "SetRequiresGradBSPipeline",
]


class _Evaluating(SchedPipeline):
    """Evaluates a split, at a time that a subclass chooses."""

    def __init__(self, split: str = "dev", needs_loss: bool = True) -> None:
        super().__init__()
        self.split, self.needs_loss = split, needs_loss

    def evaluate(self, when: str) -> None:
        sched = self.run.train_sched
        logger.debug("evaluation of {} {}, {}, step {}", self.split, when, self.run.epoch_name, sched.cur_step)
        evaluate(self.split, needs_loss=self.needs_loss)


@SchedPipeline.register("InitEvalBEPipeline")
class EvalAtStartBEPipeline(_Evaluating, BeginEpochPipeline):
    """Evaluates once, before the first step."""

    def __call__(self, **kwargs: object) -> dict[str, Any]:
        if self.run.train_sched.cur_step < 0:
            self.evaluate("at the start")
        return kwargs


@SchedPipeline.register("EndEvalEEPipeline")
class EvalAtFinishEEPipeline(_Evaluating, EndEpochPipeline):
    """Evaluates once, after the last epoch."""

    def __call__(self, **kwargs: object) -> dict[str, Any]:
        if is_last_epoch(self.run):
            self.evaluate("at the end")
        return kwargs


@SchedPipeline.register("EvalStepESPipeline")
class EvalESPipeline(_Evaluating, EndStepPipeline):
    """Evaluates every `period` steps."""

    def __init__(self, period: PositiveInt, split: str = "dev", needs_loss: bool = True) -> None:
        super().__init__(split, needs_loss)
        self.period = period

    def __call__(self, outputs: object = None, **kwargs: object) -> dict[str, Any]:
        if (self.run.train_sched.cur_step + 1) % self.period == 0:
            self.evaluate(f"every {self.period} steps")
        return kwargs


@SchedPipeline.register("EvalEpochEEPipeline")
class EvalEEPipeline(_Evaluating, EndEpochPipeline):
    """Evaluates every `period` epochs."""

    def __init__(self, period: PositiveInt = 1, split: str = "dev", needs_loss: bool = True) -> None:
        super().__init__(split, needs_loss)
        self.period = period

    def __call__(self, **kwargs: object) -> dict[str, Any]:
        if (self.run.train_sched.cur_epoch + 1) % self.period == 0:
            self.evaluate(f"every {self.period} epochs")
        return kwargs


@SchedPipeline.register()
class SetRequiresGradBSPipeline(BeginStepPipeline):
    """Calls `model.set_requires_grad(requires_grad, mode, **kw)` before step `step`: freezes a part, or thaws it.

    A training that is taken up after that step applies it at once, after those of earlier steps.
    """

    def __init__(self, step: int, requires_grad: bool, mode: str, **kwargs: Any) -> None:
        super().__init__()
        self.step, self.requires_grad, self.mode = step, requires_grad, mode
        self.kwargs = {key: value for key, value in kwargs.items() if key != "type"}
        self.done = False

    def __call__(self, batch: object = None, **kwargs: object) -> dict[str, Any]:
        if not self.done and self.run.train_sched.cur_step >= self.step:
            for pipe in (*self._before(), self):
                pipe.apply()
        return kwargs

    def _before(self) -> list[SetRequiresGradBSPipeline]:
        """Those of earlier steps; after a resume they are due as well, and may stand further down in the list."""
        pipes = self.run.train_sched.pipes
        before = [pipe for pipe in pipes if isinstance(pipe, SetRequiresGradBSPipeline) and pipe.step < self.step]
        return sorted(before, key=lambda pipe: pipe.step)

    def apply(self) -> None:
        """Freezes or thaws, the first time that it is called."""
        if not self.done:
            self.done = True
            logger.info("step {}: requires_grad of {!r} is set to {}", self.step, self.mode, self.requires_grad)
            self.run.model.set_requires_grad(requires_grad=self.requires_grad, mode=self.mode, **self.kwargs)


# the names of the first generation
InitEvalBEPipeline = EvalAtStartBEPipeline
EndEvalEEPipeline = EvalAtFinishEEPipeline
EvalStepESPipeline = EvalESPipeline
EvalEpochEEPipeline = EvalEEPipeline


def is_last_epoch(run: Run) -> bool:
    """Whether no epoch follows: the schedule is through, or somebody has asked the run to stop."""
    sched = run.train_sched
    epochs = sched.epochs or run.table("sched").get("epochs")
    if run.stop_request.reason is not None or run.limits.max_batches or sched.finished:
        return True
    return epochs is not None and sched.cur_epoch + 1 >= epochs
