"""A two-layer recurrent tagger with dropout, on ragged sequences, with a loss by sum and token count."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from alchemy.model import AlchemyModel
from alchemy.pipeline import LstDataPipeline

PAD = -100


class Sequences(LstDataPipeline):
    """`count` sequences of 2 to 7 symbols; a tag says whether the previous symbol was larger."""

    def __init__(self, *, count: int = 12) -> None:
        super().__init__()
        numbers = torch.Generator().manual_seed(0)
        self.rows = [torch.randint(0, 9, (2 + i % 6,), generator=numbers) for i in range(count)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.rows[index]
        return {"ids": ids, "tags": torch.cat([torch.zeros(1, dtype=torch.long), (ids[1:] < ids[:-1]).long()])}


def pad(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    fill = {"ids": 0, "tags": PAD}
    return {
        key: nn.utils.rnn.pad_sequence([row[key] for row in rows], batch_first=True, padding_value=fill[key])
        for key in fill
    }


class Tagger(AlchemyModel):
    """Two LSTM layers with dropout between and after them."""

    def __init__(self, *, hidden: int = 8, dropout: float = 0.3) -> None:
        super().__init__()
        self.model = nn.ModuleDict(
            {
                "embed": nn.Embedding(9, hidden),
                "rnn": nn.LSTM(hidden, hidden, num_layers=2, dropout=dropout, batch_first=True),
                "out": nn.Sequential(nn.Dropout(dropout), nn.Linear(hidden, 2)),
            }
        )

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        parts = self.module
        logits_BTC = parts["out"](parts["rnn"](parts["embed"](batch["ids"]))[0])
        outputs: dict[str, Any] = {"logits": logits_BTC}
        if needs_loss:
            loss_sum = nn.functional.cross_entropy(logits_BTC.mT, batch["tags"], ignore_index=PAD, reduction="sum")
            count = int((batch["tags"] != PAD).sum())
            outputs["loss"] = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
            outputs |= {"loss_sum": loss_sum.detach(), "count": count, "tokens": count}
        return outputs


def config(log_dir: Any = None, **changes: Any) -> dict[str, Any]:
    from tests import toy

    data = {"pipes": [{"type": "tests.recurrent.Sequences"}], "batch_size": 4, "collate_fn": "tests.recurrent.pad"}
    settings = {
        "task": {
            "type": "alchemy.task.DefaultTask",
            "datasets": {"train": {**data, "shuffle": True}, "dev": data},
        },
        "model": {"type": "tests.recurrent.Tagger"},
        "optim": {"type": "alchemy.optim.AdamW", "lr": 0.02, "max_grad_norm": 1.0},
        "sched": {"type": "alchemy.sched.LineWarmup", "epochs": 3, "num_warmup_steps": 2, "pipes": []},
        **changes,
    }
    return toy.config(log_dir, **settings)
