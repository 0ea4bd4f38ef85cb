# ruff: noqa
"""Things that happen at certain steps and epochs of the training."""

import copy
import json
from typing import Any, Dict, MutableMapping

import torch
from loguru import logger

from alchemy import sym_tbl
from alchemy.pipeline import (
    BeginEpochPipeline,
    BeginStepPipeline,
    EndEpochPipeline,
    EndStepPipeline,
    SchedPipeline,
)
from alchemy.runner import evaluate


@SchedPipeline.register("EvalEpochEEPipeline")
class EvalEpochEEPipeline(EndEpochPipeline):
    def __init__(self, period: int, split: str = "dev", **kwargs) -> None:
        super().__init__()
        self.period = period
        self.split = split

    def __call__(self, **kwargs) -> Dict[str, Any]:
        cur_epoch = sym_tbl().train_sched.cur_epoch
        if (cur_epoch + 1) % self.period == 0:
            logger.info(
                "EvalEpoch at epoch {} step {}".format(
                    sym_tbl().train_sched.cur_epoch,
                    sym_tbl().train_sched.cur_step
                )
            )
            evaluate(self.split)
        return kwargs


@SchedPipeline.register()
class WordDropoutBSPipeline(BeginStepPipeline):
    """Changes the batch in place, before the model sees it."""

    def __init__(self, p: float, **kwargs) -> None:
        super().__init__()
        self.p = p

    def __call__(self, batch: MutableMapping[str, Any], **kwargs) -> Dict[str, Any]:
        batch["encoding"] = batch["encoding"].masked_fill(torch.rand(batch["encoding"].shape) < self.p, 0)
        batch["dropped"] = True
        return kwargs


@SchedPipeline.register()
class SwapModelBEPipeline(BeginEpochPipeline):
    """Goes on with a copy of the model, its own optimizer state and a schedule that starts anew."""

    def __init__(self, epoch: int, lr: float, **kwargs) -> None:
        super().__init__()
        self.epoch = epoch
        self.lr = lr

    def __call__(self, **kwargs) -> Dict[str, Any]:
        if sym_tbl().train_sched.cur_epoch == self.epoch:
            sym_tbl().model.model = copy.deepcopy(sym_tbl().model.model)
            sym_tbl().optim.reset(lr=self.lr)
            sym_tbl().train_sched.reset_lr_sched()
            sym_tbl().set_global("swapped_at", sym_tbl().train_sched.cur_step)
        return kwargs


@SchedPipeline.register("Diary")
class DiaryPipeline(BeginEpochPipeline, EndStepPipeline, EndEpochPipeline):
    """Of three kinds at once: writes what it is called with."""

    def __init__(self, **kwargs) -> None:
        super().__init__()

    def __call__(self, outputs=None, **kwargs) -> Dict[str, Any]:
        sched = sym_tbl().train_sched
        row = {"epoch": sched.cur_epoch, "step": sched.cur_step, "in_epoch": sched.cur_step_this_epoch}
        row.update({} if outputs is None else {"loss": outputs["loss"]})
        row["lr"] = sym_tbl().optim.get_lr()
        row["pbar"] = sym_tbl().contains_global("pbar")
        record_dir = sym_tbl().record_dir
        if record_dir is not None:
            with (record_dir / "diary.jsonl").open("a", encoding="utf8") as wf:
                wf.write(json.dumps(row) + "\n")
        return kwargs
