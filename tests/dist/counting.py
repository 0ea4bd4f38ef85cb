"""Count the messages between the processes of a training run."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from alchemy.pipeline import EndStepPipeline, SchedPipeline
from tests.dist.parts import append, file_of

COUNTED = "tests.dist.counting.Count"


@SchedPipeline.register()
class Count(EndStepPipeline):
    """Write the number of updates, gradient reductions and other messages after each step.

    Counting begins after the first step, when DDP is set up.
    """

    def __init__(self, *, into: str) -> None:
        super().__init__()
        self.path, self.sent = file_of(into, "sent"), {"gradients": 0, "others": 0}
        self.counts = False

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        if not self.counts and self.run.group.size > 1:
            self.counts = True
            self.run.model.model.register_comm_hook(None, self._gradients)
            self.run.exits.callback(setattr, dist, "all_reduce", dist.all_reduce)
            dist.all_reduce = self._others(dist.all_reduce)
        append(self.path, {"update": self.run.update, **self.sent})
        return kwargs

    def _gradients(self, state, bucket):  # DDP reads annotations, but not as strings
        self.sent["gradients"] += 1
        self.sent["others"] -= 1  # the hook itself
        return allreduce_hook(state, bucket)

    def _others(self, all_reduce: Any) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            self.sent["others"] += 1
            return all_reduce(*args, **kwargs)

        return counting
