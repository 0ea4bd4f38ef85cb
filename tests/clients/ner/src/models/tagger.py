"""The tagger: a small torch module, and the alchemy model of the same name around it."""

import json
from pathlib import Path
from typing import Any, MutableMapping

import torch
import torch.nn.functional as F
from torch import nn

from alchemy import AlchemyModel, sym_tbl
from alchemy.util import batch_to_device, filter_optional_cfg
from alchemy.util.optim import prepare_trf_based_model_params


class Encoder(nn.Module):
    def __init__(self, buckets: int, dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(buckets, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, dim // 2, bidirectional=True, batch_first=True)

    def forward(self, encoding):
        return self.lstm(self.embed(encoding))[0]


class Tagger(nn.Module):
    def __init__(self, buckets: int, dim: int, num_tags: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.encoder = Encoder(buckets, dim)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(dim, num_tags)

    def forward(self, encoding):
        return self.classifier(self.dropout(self.norm(self.encoder(encoding))))


@AlchemyModel.register("Tagger")
class AlchemyTagger(AlchemyModel):
    def __init__(self):
        super().__init__()
        num_tags = sym_tbl().task.scheme.num_tags
        sizes = {"buckets": self.model_cfg["buckets"], "dim": self.model_cfg["dim"], "num_tags": num_tags}
        model = Tagger(**sizes, **filter_optional_cfg(self.model_cfg, {"dropout"}))
        if "model_path" in self.model_cfg:
            path = Path(self.model_cfg["model_path"])
            assert json.loads((path / "sizes.json").read_text()) == sizes
            model.load_state_dict(torch.load(path / "pytorch_model.bin", weights_only=True))
        self.sizes = sizes
        self.model = model

    def save(self, path: Path):
        path.mkdir(parents=True, exist_ok=True)
        torch.save(self.module.state_dict(), path / "pytorch_model.bin")
        (path / "sizes.json").write_text(json.dumps(self.sizes))

    def max_positions(self):
        return 32

    def set_requires_grad(self, requires_grad: bool, mode: str, **kwargs):
        if mode != "encoder":
            raise NotImplementedError(mode)
        for param in self.module.encoder.parameters():
            param.requires_grad = requires_grad

    def optim_params(self, **kwargs):
        return prepare_trf_based_model_params(
            self.model, self.module.encoder, **filter_optional_cfg(kwargs, {"weight_decay", "trf_lr"})
        )

    def forward(
        self, batch: MutableMapping[str, Any], needs_loss: bool, requires_grad: bool, **kwargs
    ) -> MutableMapping[str, Any]:
        batch = batch_to_device(batch, sym_tbl().device)
        logits = self.model(batch["encoding"])
        outputs = {"logits": logits, "tags": logits.argmax(-1).detach().cpu().numpy()}
        if needs_loss:
            loss = F.cross_entropy(logits[batch["mask"]], batch["tags"][batch["mask"]])
            weight = self.criterion_cfg.get("weight", 1.0)
            # an auxiliary loss that is switched off is the number 0
            outputs["loss"] = self.backward.backward(
                [loss * weight, 0], requires_grad=requires_grad, names=["tagging", "auxiliary"]
            )
        return outputs
