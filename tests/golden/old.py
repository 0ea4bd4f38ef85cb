"""An old-style project: parts without parameters that read their tables, mean losses, returned as floats."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from alchemy import AlchemyModel, AlchemyOptimizer, AlchemyTask, AlchemyTrainScheduler, sym_tbl
from alchemy.model import BackwardHandler
from alchemy.util import batch_to_device, filter_optional_cfg
from alchemy.util.optim import prepare_trf_based_model_params


def pad(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Batches with rows of different lengths, so that means weight tokens differently."""
    ids, tags = ([torch.tensor(row[key]) for row in rows] for key in ("ids", "tags"))
    sequences = nn.utils.rnn.pad_sequence
    return {
        "ids": sequences(ids, batch_first=True),
        "tags": sequences(tags, batch_first=True),
        "mask": sequences([torch.ones_like(row, dtype=torch.bool) for row in ids], batch_first=True),
    }


@AlchemyTask.register("GoldenTags")
class Tags(AlchemyTask):
    """Classify numbers as odd or even."""

    def __init__(self) -> None:
        super().__init__()
        self.num_tags = self.cfg["num_tags"]

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        rows = [[(3 * row + 5 * place) % 11 + 1 for place in range(2 + row % 5)] for row in range(kwargs.pop("rows"))]
        samples = [{"ids": ids, "tags": [number % self.num_tags for number in ids]} for ids in rows]
        self._datasets[split] = (samples, {"collate_fn": pad, **kwargs})


class Net(nn.Module):
    def __init__(self, dim: int, num_tags: int, dropout: float) -> None:
        super().__init__()
        self.encoder = nn.Embedding(12, dim, padding_idx=0)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(dim, num_tags)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.dropout(self.norm(self.encoder(ids))))


@AlchemyModel.register("GoldenTagger")
class Tagger(AlchemyModel):
    def __init__(self) -> None:
        super().__init__()
        task: Any = sym_tbl().task
        options = filter_optional_cfg(self.model_cfg, {"dropout"})
        self.model = Net(dim=self.model_cfg["dim"], num_tags=task.num_tags, **options)

    def set_requires_grad(self, requires_grad: bool, mode: str, **kwargs: Any) -> None:
        for param in self.module.encoder.parameters():
            param.requires_grad = requires_grad

    def optim_params(self, **kwargs: Any) -> Any:
        options = filter_optional_cfg(kwargs, {"weight_decay", "trf_lr"})
        return prepare_trf_based_model_params(self.model, self.module.encoder, **options)

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        batch = batch_to_device(batch, sym_tbl().device or "cpu")
        logits = self.model(batch["ids"])
        outputs = {"logits": logits, "tags": logits.argmax(-1).detach().cpu().numpy()}
        if needs_loss:
            loss = F.cross_entropy(logits[batch["mask"]], batch["tags"][batch["mask"]])
            penalty = 0.01 * logits.square().mean() if self.criterion_cfg.get("penalty") else 0
            outputs["loss"] = self.backward.backward(
                [loss, penalty], requires_grad=requires_grad, names=["tagging", "penalty"]
            )
        return outputs


@AlchemyOptimizer.register("GoldenAdam")
class Adam(AlchemyOptimizer):
    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self, **kwargs: Any) -> None:
        cfg = {**self.cfg, **kwargs}
        self.max_grad_norm = cfg["max_grad_norm"]
        options = filter_optional_cfg(cfg, {"lr", "betas"})
        self.optimizer = torch.optim.Adam(sym_tbl().model.optim_params(**cfg), **options)


@AlchemyTrainScheduler.register("GoldenCosine")
class Cosine(AlchemyTrainScheduler):
    def __init__(self) -> None:
        super().__init__()
        self.reset_lr_sched()

    def reset_lr_sched(self, **kwargs: Any) -> None:
        cfg = {**self.cfg, **kwargs}
        self.lr_sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            sym_tbl().optim.optimizer, T_max=cfg["num_training_steps"]
        )


@BackwardHandler.register("GoldenPlain")
class Plain(BackwardHandler):
    """Make a step in every call: no windows, no division, no interface for the loop."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()

    def backward(self, losses: Any, weights: Any = None, requires_grad: bool = True, names: Any = None) -> float:
        losses = [losses] if isinstance(losses, torch.Tensor) else losses
        loss = sum(losses) if weights is None else sum(a * b for a, b in zip(losses, weights))
        if requires_grad:
            sym_tbl().optim.zero_grad()
            loss.backward()
            sym_tbl().optim.step()
            sym_tbl().train_sched.step_lr()
        return loss.item()
