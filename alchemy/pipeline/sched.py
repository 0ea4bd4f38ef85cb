"""Schedule pipes that evaluate or freeze during training; BE, EE, BS and ES stand for begin/end of epoch/step."""

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


class _EvalSchedPipeline(SchedPipeline):
    """Base class for pipes that evaluate a split; a subclass decides when."""

    def __init__(self, split: str = "dev", needs_loss: bool = True) -> None:
        super().__init__()
        self.split, self.needs_loss = split, needs_loss

    def evaluate(self, when: str) -> None:
        sched = self.run.train_sched
        logger.debug("evaluating {} {}, {}, step {}", self.split, when, self.run.epoch_name, sched.cur_step)
        evaluate(self.split, needs_loss=self.needs_loss)


@SchedPipeline.register("InitEvalBEPipeline")
class EvalAtStartBEPipeline(_EvalSchedPipeline, BeginEpochPipeline):
    """Evaluates once before the first step."""

    def __call__(self, **kwargs: object) -> dict[str, Any]:
        if self.run.train_sched.cur_step < 0:
            self.evaluate("at the start")
        return kwargs


@SchedPipeline.register("EndEvalEEPipeline")
class EvalAtFinishEEPipeline(_EvalSchedPipeline, EndEpochPipeline):
    """Evaluates once after the last epoch."""

    def __call__(self, **kwargs: object) -> dict[str, Any]:
        if is_last_epoch(self.run):
            self.evaluate("at the end")
        return kwargs


@SchedPipeline.register("EvalStepESPipeline")
class EvalESPipeline(_EvalSchedPipeline, EndStepPipeline):
    """Evaluates every `period` steps."""

    def __init__(self, period: PositiveInt, split: str = "dev", needs_loss: bool = True) -> None:
        super().__init__(split, needs_loss)
        self.period = period

    def __call__(self, outputs: object = None, **kwargs: object) -> dict[str, Any]:
        if (self.run.train_sched.cur_step + 1) % self.period == 0:
            self.evaluate(f"every {self.period} steps")
        return kwargs


@SchedPipeline.register("EvalEpochEEPipeline")
class EvalEEPipeline(_EvalSchedPipeline, EndEpochPipeline):
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
    """Calls `model.set_requires_grad(requires_grad, mode, **kw)` before step `step` to freeze or unfreeze part of it.

    If a run resumes after that step, the call is made immediately, after the calls for earlier steps.
    """

    def __init__(self, step: int, requires_grad: bool, mode: str, **kwargs: Any) -> None:
        super().__init__()
        self.step, self.requires_grad, self.mode = step, requires_grad, mode
        self.kwargs = {key: value for key, value in kwargs.items() if key != "type"}
        self.done = False

    def __call__(self, batch: object = None, **kwargs: object) -> dict[str, Any]:
        if not self.done and self.run.train_sched.cur_step >= self.step:
            for pipe in (*self._earlier_pipes(), self):
                pipe.apply()
        return kwargs

    def _earlier_pipes(self) -> list[SetRequiresGradBSPipeline]:
        """Return the pipes for earlier steps, which also apply after resuming, sorted by step."""
        pipes = self.run.train_sched.pipes
        before = [pipe for pipe in pipes if isinstance(pipe, SetRequiresGradBSPipeline) and pipe.step < self.step]
        return sorted(before, key=lambda pipe: pipe.step)

    def apply(self) -> None:
        """Freeze or unfreeze the part on the first call; do nothing afterwards."""
        if not self.done:
            self.done = True
            logger.info("step {}: set requires_grad of {!r} to {}", self.step, self.mode, self.requires_grad)
            self.run.model.set_requires_grad(requires_grad=self.requires_grad, mode=self.mode, **self.kwargs)


# legacy names
InitEvalBEPipeline = EvalAtStartBEPipeline
EndEvalEEPipeline = EvalAtFinishEEPipeline
EvalStepESPipeline = EvalESPipeline
EvalEpochEEPipeline = EvalEEPipeline


def is_last_epoch(run: Run) -> bool:
    """Return whether this is the last epoch: the schedule is finished, or a stop was requested."""
    sched = run.train_sched
    epochs = sched.epochs or run.table("sched").get("epochs")
    if run.stop_request.reason is not None or run.limits.max_batches or sched.finished:
        return True
    return epochs is not None and sched.cur_epoch + 1 >= epochs
