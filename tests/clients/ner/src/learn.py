"""Optimizer, schedule and backward handler of the project's own, each reading its table itself."""

import torch

from alchemy import AlchemyOptimizer, AlchemyTrainScheduler, sym_tbl
from alchemy.model import BackwardHandler
from alchemy.util import filter_optional_cfg


@AlchemyOptimizer.register("Adam")
class MyAdam(AlchemyOptimizer):
    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self, **kwargs):
        cfg = dict(self.cfg)
        cfg.update(kwargs)
        self.max_grad_norm = cfg["max_grad_norm"]
        self.optimizer = torch.optim.Adam(
            sym_tbl().model.optim_params(**cfg), **filter_optional_cfg(cfg, {"lr", "betas", "weight_decay"})
        )


@AlchemyTrainScheduler.register("Cosine")
class MyCosine(AlchemyTrainScheduler):
    def __init__(self):
        super().__init__()
        self.reset_lr_sched()

    def reset_lr_sched(self, **kwargs):
        cfg = dict(self.cfg)
        cfg.update(kwargs)
        self.lr_sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            sym_tbl().optim.optimizer, T_max=cfg["num_training_steps"]
        )


@BackwardHandler.register("Plain")
class PlainBackward(BackwardHandler):
    def __init__(self, **kwargs) -> None:
        super().__init__()

    def backward(self, losses, weights=None, requires_grad=True, names=None) -> float:
        losses = [losses] if isinstance(losses, torch.Tensor) else losses
        loss = sum(losses) if weights is None else sum(l * w for l, w in zip(losses, weights))
        if requires_grad:
            sym_tbl().optim.zero_grad()
            loss.backward()
            sym_tbl().optim.step()
            sym_tbl().train_sched.step_lr()
        return loss.item()
