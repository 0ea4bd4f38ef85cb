"""Train with Hugging Face `accelerate`, under the names that existing projects use.

In a config: `runner = "alchemy.util.ddp.accelerate.Trainer"`, its `BasicSetup` instead of the default one, `Sharding`
in the pipes of the training data, `HFAdamW` as the optimizer, `Backward` as the handler, and `EvalESPipeline` for
evaluation.
Start several processes with `torchrun --nproc-per-node 2 -m alchemy run CFG`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, MutableMapping
from typing import Any

from loguru import logger
from rich.console import Console
from torch import nn

from alchemy.context import find_run, sym_tbl
from alchemy.errors import AlchemyError
from alchemy.legacy.backward import BackwardHandler, DefaultBackwardHandler
from alchemy.loop import evaluate
from alchemy.null_objects import SingleProcess
from alchemy.optim import AlchemyOptimizer
from alchemy.optim import HFAdamW as _HFAdamW
from alchemy.optional_packages import import_package
from alchemy.pipeline import DataPipeline, EndStepPipeline, ItrDataPipeline, SchedPipeline
from alchemy.plugins import AlchemyPlugin
from alchemy.plugins import BasicSetup as _BasicSetup
from alchemy.runner import AlchemyRunner, AlchemyTrainer
from alchemy.update import GradientUpdater

VARNAME = "accelerator"


def accelerator() -> Any:
    """Return the Accelerator of the current run."""
    found = sym_tbl().try_get_global(VARNAME)
    if found is None:
        raise AlchemyError(
            "this run has no Accelerator",
            hint='set runner = "alchemy.util.ddp.accelerate.Trainer" in the config',
        )
    return found


@AlchemyRunner.register("Trainer")
class AccelerateTrainer(AlchemyTrainer):
    """Trainer whose model and optimizer are prepared by accelerate; only the main process writes a record."""

    packages = ("accelerate",)

    def __init__(self, cfg: MutableMapping[str, Any], device_info: dict[str, Any] | None = None, **kwargs: Any) -> None:
        info = device_info or {"device": "cpu"}
        made = _make(cpu=info["device"] == "cpu")
        if made.num_processes > 1 and (run := find_run()) is not None and run.resume_from is not None:
            raise AlchemyError(
                f"cannot resume the {made.num_processes} processes started by accelerate: only the first one has "
                "a record",
                hint="start again, or use torchrun with runner = 'alchemy.runner.Trainer'",
            )
        if not made.is_main_process:
            kwargs["no_file"] = True
        self._made = made
        super().__init__(cfg, {**info, "device": str(made.device)}, **kwargs)

    def start_plugins(self) -> None:
        self.context.symbols.set_global(VARNAME, self._made)  # plugins read the process index
        super().start_plugins()

    def set_up(self) -> None:
        # accelerate synchronizes the processes itself: the rest of alchemy sees a single process
        self.context.group = self.context.metrics.group = SingleProcess()
        context, ours = self.context, accelerator()
        if ours.num_processes > 1:
            logger.info(
                "checkpoints are disabled: the {} processes started by accelerate could not be resumed",
                ours.num_processes,
            )
            context.cfg["checkpoint"] = {**context.table("checkpoint"), "enabled": False}
        super().set_up()
        context.model.model, context.optim.optimizer = ours.prepare(context.model.model, context.optim.optimizer)
        if isinstance(context.updater, GradientUpdater) and isinstance(context.model.backward, AccelerateBackward):
            # not all accelerate engines accept an initial gradient
            context.updater.differentiate = lambda loss, start: ours.backward(loss * start)  # type: ignore[method-assign]


@AlchemyPlugin.register("BasicSetup")
class AccelerateBasicSetup(AlchemyPlugin):
    """Console output in the first process of each machine, or in all processes with `--debug`."""

    def __init__(self, *, level: str = "INFO") -> None:
        super().__init__()
        if not accelerator().is_local_main_process and not self.run.debug:
            self.run.console = Console(quiet=True)
        _BasicSetup(level=level)  # type: ignore[arg-type]


@DataPipeline.register("Sharding")
class AccelerateSharding(ItrDataPipeline):
    """A pipe that gives each process every n-th sample."""

    keeps = True

    def __init__(self, datapipe: Any) -> None:
        super().__init__(datapipe)
        # integers instead of the Accelerator, since pipes are pickled for loader workers
        self.process, self.processes = accelerator().process_index, accelerator().num_processes

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.datapipe, self.process, None, self.processes)

    def __len__(self) -> int:
        return max(0, -(-(len(self.datapipe) - self.process) // self.processes))


@AlchemyOptimizer.register("HFAdamW")
class AccelerateHFAdamW(_HFAdamW):
    """HFAdamW with gradient clipping by accelerate."""

    def clip(self, max_norm: float) -> None:
        self.grad_norm = accelerator().clip_grad_norm_(list(self.params), max_norm)


@BackwardHandler.register("Backward")
class AccelerateBackward(DefaultBackwardHandler):
    """The default handler, with gradients computed by accelerate."""

    @functools.wraps(DefaultBackwardHandler.__init__)  # type: ignore[misc]
    def __init__(self, **kwargs: Any) -> None:
        if accelerator().scaler is not None:  # the scaler skips non-finite gradients and reduces the scale
            kwargs["nonfinite"] = "ignore"
        super().__init__(**kwargs)


@SchedPipeline.register("EvalESPipeline")
class AccelerateEvalESPipeline(EndStepPipeline):
    """Evaluate every `period` steps in the main process while the others wait."""

    def __init__(self, *, period: int, split: str = "dev", needs_loss: bool = True) -> None:
        super().__init__()
        self.period, self.split, self.needs_loss = period, split, needs_loss

    def __call__(self, outputs: Any = None, **kwargs: Any) -> dict[str, Any]:
        if (self.run.train_sched.cur_step + 1) % self.period == 0:
            accelerator().wait_for_everyone()
            if accelerator().is_main_process:
                evaluate(self.split, needs_loss=self.needs_loss)
            accelerator().wait_for_everyone()
        return kwargs


class AccelerateSaveModelMixin:
    """A mixin for eval pipes that save the model, which unwraps the module first."""

    def _prepare_to_save(self, model: nn.Module) -> Any:
        return accelerator().unwrap_model(model)


Trainer, BasicSetup, Sharding, HFAdamW = AccelerateTrainer, AccelerateBasicSetup, AccelerateSharding, AccelerateHFAdamW
Backward, EvalESPipeline, SaveModelMixin = AccelerateBackward, AccelerateEvalESPipeline, AccelerateSaveModelMixin
EvalStepESPipeline, AccelerateEvalStepESPipeline = AccelerateEvalESPipeline, AccelerateEvalESPipeline
BackwardHandle, AccelerateDDPBackwardHandle = AccelerateBackward, AccelerateBackward


def _make(cpu: bool) -> Any:
    accelerate = import_package("accelerate", "alchemy.util.ddp.accelerate")
    handler = import_package("accelerate.utils", "alchemy.util.ddp.accelerate").DistributedDataParallelKwargs
    return accelerate.Accelerator(cpu=cpu, kwargs_handlers=[handler(find_unused_parameters=True)])
