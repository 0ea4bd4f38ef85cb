"""Actions of only one of several processes: request the end, or leave a part of the model unused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch import nn

from alchemy.pipeline import EndEpochPipeline, EndStepPipeline, EvalPipeline, SchedPipeline
from alchemy.plugins.base import AlchemyPlugin
from alchemy.stop import StopRule
from tests.dist.leaving import recorded
from tests.dist.parts import Model, append, file_of
from tests.dist.work import tell

HERE = __name__ if __name__ != "__main__" else "tests.dist.alone"
STEP = 5  # in the second epoch of four


@SchedPipeline.register()
class Trace(EndStepPipeline):
    """Record every update of this rank, and request the end in one of them."""

    def __init__(self, *, into: str, who: int = -1) -> None:
        super().__init__()
        self.into, self.who = into, who

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        append(file_of(self.into, "updates"), self.run.update)
        if self.run.group.rank == self.who and self.run.update == STEP:
            self.run.stop(f"rank {self.who} has seen enough")
        return kwargs


@EvalPipeline.register()
class Enough(EvalPipeline):
    """Request the end after the first evaluation, in the last rank."""

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.run.group.rank:
            self.run.stop("a score of rank 1")
        return kwargs


@SchedPipeline.register()
class EnoughEE(EndEpochPipeline):
    """The same after the first epoch."""

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        if self.run.group.rank:
            self.run.stop("an epoch of rank 1")
        return kwargs


class Own(StopRule):
    """A rule that applies only in the last rank."""

    def check(self, run: Any) -> str:
        return "a rule of rank 1" if run.group.rank and run.update >= STEP else ""


class Listener(AlchemyPlugin):
    """Receive metrics only in the first rank, and stop after a few."""

    def log(self, values: Any, update: int) -> None:
        if update == STEP:
            self.run.stop("the listener has heard enough")


class Spare(Model):
    """A model with an unused layer."""

    def __init__(self, *, into: str, targets: str = "tags", means: bool = False, dropout: float = 0.0) -> None:
        super().__init__(into=into, targets=targets, means=means, dropout=dropout)
        self.model.spare = nn.Linear(2, 2).double()


def stopping(out: Path) -> dict[str, dict[str, Any]]:
    """Three epochs of four updates, with an evaluation at the end of each."""
    found = {}
    rules = {"rule": {"type": "alchemy.stop.Updates", "updates": STEP}, "own rule": {"type": f"{HERE}.Own"}}
    for name in ("pipe", "score", "epoch", "listener", *rules):
        cfg = found[name] = recorded(out, name, dropout=0.0)
        trace = {"type": f"{HERE}.Trace", "into": str(out / name), "who": 1 if name == "pipe" else -1}
        last = f"{HERE}.EnoughEE" if name == "epoch" else "alchemy.pipeline.sched.EvalEEPipeline"
        cfg["sched"]["pipes"] = [trace, {"type": last}]
        cfg["task"]["evalpipes"] = [{"type": f"{HERE}.Enough"}] if name == "score" else []
        cfg["plugins"] += [{"type": f"{HERE}.Listener"}] if name == "listener" else []
        cfg["stop"] = {"any": [rules[name]] if name in rules else []}
    return found


def work(out: Path) -> None:
    for name, cfg in stopping(out).items():
        tell(out, name, cfg)
    for name, found in (("found", {}), ("not looked for", {"find_unused_parameters": False})):
        tell(out, f"all used, {name}", recorded(out, f"all used, {name}", ddp=found))
        unused = recorded(out, f"unused, {name}", ddp=found)
        unused["model"]["type"] = f"{HERE}.Spare"
        tell(out, f"unused, {name}", unused)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
