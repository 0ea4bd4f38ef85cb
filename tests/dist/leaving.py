"""Parts that end a distributed run in one or all of its processes, and checks of the result."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from alchemy.pipeline import EndEpochPipeline, EndStepPipeline, EvalPipeline, SchedPipeline
from tests.dist.parts import UNSPLIT, Model, append, config

# places of the signal; four steps per epoch
PLACES: dict[str, dict[str, Any]] = {
    "step": {"step": 5},
    "window": {"step": 4, "period": 3},
    "step of a stream": {"step": 5, "train": UNSPLIT},
    "evaluation": {"evaluation": 2, "eval_every": 0},
    "evaluation in a window": {"evaluation": 3, "period": 3, "eval_every": 2},
}


def leave(run: Any, how: str, who: str) -> None:
    """Send a signal to this process, if it is the one to leave: `first`, `last` or `all`.

    `launcher` is the process that started this one. A resumed run does not leave.
    """
    leaves = {"first": run.group.is_main, "last": run.group.rank == run.group.size - 1, "all": True}
    if run.resume_from is not None:
        return
    if who == "launcher" and run.group.is_main:
        os.kill(os.getppid(), signal.Signals[how])
    elif leaves.get(who):
        os.kill(os.getpid(), signal.Signals[how])


@SchedPipeline.register()
class LeaveAt(EndStepPipeline):
    """Leave after a step, counted from 0."""

    def __init__(self, *, step: int, how: str = "SIGTERM", who: str = "last") -> None:
        super().__init__()
        self.step, self.how, self.who = step, how, who

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        if self.run.train_sched.cur_step == self.step:
            leave(self.run, self.how, self.who)
        return kwargs


@EvalPipeline.register()
class LeaveEval(EvalPipeline):
    """Leave in an evaluation, counted from 1."""

    def __init__(self, *, evaluation: int) -> None:
        super().__init__()
        self.evaluation = evaluation

    def begin_eval(self, split: str, **kwargs: Any) -> None:
        self.evaluation -= 1
        if not self.evaluation:
            leave(self.run, "SIGTERM", "last")

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        return kwargs


@SchedPipeline.register()
class Note(EndEpochPipeline):
    """Write to the record, if there is one, as a custom pipe does."""

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        if self.run.record_dir is not None:
            append(self.run.record_dir / "notes.jsonl", {"epoch": self.run.train_sched.cur_epoch})
        return kwargs


class Failing(Model):
    """Fail at a step, in one process only."""

    def __init__(self, *, into: str, step: int, targets: str = "tags", means: bool = False) -> None:
        super().__init__(into=into, targets=targets, means=means)
        self.step = step

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        if self.run.train_sched.cur_step == self.step and self.run.group.rank == self.run.group.size - 1:
            raise ValueError("no such word")
        return super().forward(batch, needs_loss, requires_grad, **kwargs)


def recorded(
    out: Path,
    name: str,
    *,
    period: int = 1,
    eval_every: int = 0,
    dropout: float = 0.3,
    step: int = -1,
    evaluation: int = -1,
    train: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Three epochs of four steps with dropout and a record; leave at a step or in an evaluation, if given."""
    plugins = [{"type": "alchemy.plugins.FileLogger", "log_dir": str(out / "records" / name)}]
    cfg = config("tokens", out / name, period=period, plugins=plugins, train=train or {"batch_size": 4}, **changes)
    every: dict[str, Any] = {"type": "alchemy.pipeline.sched.EvalEEPipeline"}
    if eval_every:
        every = {"type": "alchemy.pipeline.sched.EvalESPipeline", "period": eval_every}
    cfg["model"]["dropout"] = dropout
    # equal runs need equal parts: one that never leaves has the same
    cfg["sched"] |= {
        "epochs": 3,
        "pipes": [{"type": f"{__name__}.LeaveAt", "step": step}, {"type": f"{__name__}.Note"}, every],
    }
    cfg["task"]["evalpipes"] = [{"type": "tests.dist.leaving.LeaveEval", "evaluation": evaluation}]
    cfg["ema"] = {"decay": 0.9}
    cfg["optim"] = {"type": "alchemy.optim.AdamW", "lr": 0.05, "max_grad_norm": 1.0}
    return cfg
