# ruff: noqa
"""Overrides every method of the bases that alchemy documents, and calls `super()` in each."""

import json
from typing import Any, Dict, Iterator

import torch

from alchemy import AlchemyModel, AlchemyOptimizer, AlchemyRunner, AlchemyTask, AlchemyTrainScheduler, sym_tbl
from alchemy.model import BackwardHandler, DefaultBackwardHandler
from alchemy.optim import AdamW
from alchemy.pipeline import (
    BeginEpochPipeline,
    BeginStepPipeline,
    DataPipeline,
    EndEpochPipeline,
    EndStepPipeline,
    EvalPipeline,
    ItrDataPipeline,
    LstDataPipeline,
    OutputPipeline,
    SchedPipeline,
)
from alchemy.plugins import AlchemyPlugin
from alchemy.runner import Tester, Trainer
from alchemy.sched import LineWarmup
from alchemy.util import merge_max_position_constraints
from alchemy.util.collate_fn import CollateFn, DefaultCollateFn

from .models.tagger import AlchemyTagger
from .task.ner import SuperNerTask

CALLS = set()


def called(part: Any, name: str) -> None:
    CALLS.add("{}.{}".format(type(part).__name__, name))


@AlchemyTask.register()
class EveryTask(SuperNerTask):
    def __init__(self):
        called(self, "__init__")
        super().__init__()

    def max_positions(self):
        called(self, "max_positions")
        # the base of all tasks knows no limit
        return merge_max_position_constraints(AlchemyTask.max_positions(self), super().max_positions())

    def collate_fn(self, kwargs: Dict[str, Any]):
        return CollateFn.from_registry("src.every.EveryCollate", type="src.every.EveryCollate")

    def load_dataset(self, split: str, **kwargs):
        called(self, "load_dataset")
        super().load_dataset(split, **kwargs)

    def dataset(self, split: str):
        called(self, "dataset")
        return super().dataset(split)

    def step(self, batch):
        called(self, "step")
        return super().step(batch)

    def eval_step(self, batch, needs_loss: bool = True):
        called(self, "eval_step")
        return super().eval_step(batch, needs_loss=needs_loss)

    def begin_eval(self, split: str, **kwargs):
        called(self, "begin_eval")
        super().begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs):
        called(self, "end_eval")
        return super().end_eval(split, **kwargs)


@AlchemyModel.register()
class EveryModel(AlchemyTagger):
    def __init__(self):
        called(self, "__init__")
        super().__init__()

    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        called(self, "forward")
        # read here and nowhere else
        batch["encoding"] = batch["encoding"] * self.model_cfg["read_in_forward"]
        return super().forward(batch, needs_loss=needs_loss, requires_grad=requires_grad, **kwargs)

    def optim_params(self, **kwargs):
        called(self, "optim_params")
        assert AlchemyModel.optim_params(self, **kwargs)
        return super().optim_params(**kwargs)

    def max_positions(self):
        called(self, "max_positions")
        return merge_max_position_constraints(AlchemyModel.max_positions(self), super().max_positions())

    def set_requires_grad(self, requires_grad: bool, mode: str, **kwargs):
        called(self, "set_requires_grad")
        super().set_requires_grad(requires_grad, mode, **kwargs)

    def train(self, mode: bool = True):
        called(self, "train")
        return super().train(mode)

    def eval(self):
        called(self, "eval")
        return super().eval()

    def to(self, *args, **kwargs):
        called(self, "to")
        return super().to(*args, **kwargs)

    def save(self, path):
        called(self, "save")
        super().save(path)
        AlchemyModel.save(self, path / "base", self.model)


@BackwardHandler.register()
class EveryHandler(DefaultBackwardHandler):
    def __init__(self, period: int = 1, **kwargs) -> None:
        called(self, "__init__")
        super().__init__(period=period)

    def backward(self, losses, weights=None, requires_grad=True, names=None) -> float:
        called(self, "backward")
        return super().backward(losses, weights, requires_grad, names)


@AlchemyOptimizer.register()
class EveryOptimizer(AdamW):
    def __init__(self):
        called(self, "__init__")
        super().__init__()

    @property
    def params(self):
        called(self, "params")
        return super().params

    @property
    def param_groups(self):
        called(self, "param_groups")
        return super().param_groups

    def get_lr(self):
        called(self, "get_lr")
        return super().get_lr()

    def zero_grad(self):
        called(self, "zero_grad")
        super().zero_grad()

    def multiply_grads(self, c):
        called(self, "multiply_grads")
        super().multiply_grads(c)

    def step(self):
        called(self, "step")
        super().step()

    def reset(self, **kwargs):
        called(self, "reset")
        super().reset(**kwargs)


@AlchemyOptimizer.register()
class EveryTorchOptimizer(AlchemyOptimizer):
    """With an optimizer of torch, made anew at every reset."""

    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self, **kwargs):
        called(self, "reset")
        super().reset(**kwargs)
        self.optimizer = torch.optim.SGD(sym_tbl().model.optim_params(**self.cfg), lr=kwargs.get("lr", self.cfg["lr"]))


class ScheduleCalls:
    def __iter__(self) -> Iterator[int]:
        called(self, "__iter__")
        yield from super().__iter__()

    def begin_train_step(self, batch, **kwargs):
        called(self, "begin_train_step")
        return super().begin_train_step(batch, **kwargs)

    def end_train_step(self, outputs, **kwargs):
        called(self, "end_train_step")
        return super().end_train_step(outputs, **kwargs)

    def end_train_epoch(self, **kwargs):
        called(self, "end_train_epoch")
        return super().end_train_epoch(**kwargs)

    def step_lr(self):
        called(self, "step_lr")
        super().step_lr()


@AlchemyTrainScheduler.register()
class EverySchedule(ScheduleCalls, LineWarmup):
    def __init__(self):
        called(self, "__init__")
        super().__init__()

    def reset_lr_sched(self, **kwargs):
        called(self, "reset_lr_sched")
        super().reset_lr_sched(**kwargs)


@AlchemyTrainScheduler.register()
class EveryTorchSchedule(ScheduleCalls, AlchemyTrainScheduler):
    """With a scheduler of torch, made anew at every reset."""

    def __init__(self):
        called(self, "__init__")
        super().__init__()
        self.reset_lr_sched()

    def reset_lr_sched(self, **kwargs):
        called(self, "reset_lr_sched")
        super().reset_lr_sched(**kwargs)
        self.lr_sched = torch.optim.lr_scheduler.ConstantLR(sym_tbl().optim.optimizer, factor=0.5, total_iters=3)


class RunnerCalls:
    def __init__(self, cfg, device_info, **kwargs):
        called(self, "__init__")
        super().__init__(cfg, device_info, **kwargs)

    def __enter__(self):
        called(self, "__enter__")
        return super().__enter__()

    def __exit__(self, exc_type, exc_val, exc_tb):
        called(self, "__exit__")
        return super().__exit__(exc_type, exc_val, exc_tb)

    def run(self):
        called(self, "run")
        return super().run()


@AlchemyRunner.register()
class EveryTrainer(RunnerCalls, Trainer):
    pass


@AlchemyRunner.register()
class EveryTester(RunnerCalls, Tester):
    pass


@DataPipeline.register()
class EveryItr(ItrDataPipeline):
    def __init__(self, datapipe, **kwargs):
        called(self, "__init__")
        super().__init__(datapipe)
        self.require_single_source()

    def require_single_source(self):
        called(self, "require_single_source")
        super().require_single_source()

    def __iter__(self):
        called(self, "__iter__")
        yield from self.datapipe


@DataPipeline.register()
class EveryLst(LstDataPipeline):
    def __init__(self, datapipe, **kwargs):
        called(self, "__init__")
        super().__init__(list(datapipe))

    def __getitem__(self, index):
        called(self, "__getitem__")
        return self.datapipe[index]

    def __len__(self):
        called(self, "__len__")
        return len(self.datapipe)

    def __iter__(self):
        called(self, "__iter__")
        return super().__iter__()


@OutputPipeline.register()
class EveryOutput(OutputPipeline):
    def __init__(self, **kwargs):
        called(self, "__init__")
        super().__init__()

    def __call__(self, outputs, inputs):
        called(self, "__call__")
        return outputs


@EvalPipeline.register()
class EveryEval(EvalPipeline):
    def __init__(self, **kwargs):
        called(self, "__init__")
        super().__init__()

    def begin_eval(self, split: str, **kwargs):
        called(self, "begin_eval")
        super().begin_eval(split, **kwargs)

    def __call__(self, split: str, **kwargs) -> Dict[str, Any]:
        called(self, "__call__")
        return kwargs


@SchedPipeline.register()
class EverySched(BeginEpochPipeline, EndEpochPipeline, BeginStepPipeline, EndStepPipeline):
    def __init__(self, **kwargs):
        called(self, "__init__")
        super().__init__()

    def __call__(self, *args, **kwargs) -> Dict[str, Any]:
        called(self, "__call__")
        if sym_tbl().train_sched.cur_step == 5 and not args:
            sym_tbl().optim.multiply_grads(1.0)
            sym_tbl().optim.reset(lr=0.02)
            sym_tbl().train_sched.reset_lr_sched()
        return kwargs


@CollateFn.register()
class EveryCollate(DefaultCollateFn):
    def __init__(self, **kwargs):
        called(self, "__init__")
        super().__init__(**kwargs)

    def __call__(self, batch):
        called(self, "__call__")
        return super().__call__(batch)


class PluginCalls:
    def __init__(self, **kwargs):
        called(self, "__init__")
        super().__init__()


@AlchemyPlugin.register()
class EveryPlugin(PluginCalls, AlchemyPlugin):
    """Of the newer generation."""

    def exit(self):
        called(self, "exit")
        super().exit()
        if sym_tbl().record_dir is not None:
            (sym_tbl().record_dir / "calls.json").write_text(json.dumps(sorted(CALLS)))


@AlchemyPlugin.register()
class EveryOldPlugin(PluginCalls, AlchemyPlugin):
    def __enter__(self):
        called(self, "__enter__")
        return super().__enter__()

    def __exit__(self, et, ev, tb):
        called(self, "__exit__")
        return super().__exit__(et, ev, tb)
