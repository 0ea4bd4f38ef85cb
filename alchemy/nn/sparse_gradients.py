"""Which optimizers take sparse gradients, and embeddings that give dense ones to all others."""

from __future__ import annotations

from torch import nn
from torch.optim import SGD, Adagrad, Optimizer, SparseAdam


def takes_sparse(optimizer: Optimizer) -> bool:
    """Whether it can step with sparse gradients; one that torch does not know is trusted to."""
    if isinstance(optimizer, SGD | Adagrad):
        return not any(group["weight_decay"] or group["fused"] for group in optimizer.param_groups)
    return isinstance(optimizer, SparseAdam) or type(optimizer).__module__.partition(".")[0] not in ("torch", "alchemy")


def make_dense(module: nn.Module, optimizer: Optimizer) -> list[str]:
    """Turns off `sparse` of the embeddings that the optimizer updates; returns their names."""
    updated = {id(param) for group in optimizer.param_groups for param in group["params"]}
    found = [
        (name, inner)
        for name, inner in module.named_modules()
        if isinstance(inner, nn.Embedding | nn.EmbeddingBag) and inner.sparse and id(inner.weight) in updated
    ]
    for _, inner in found:
        inner.sparse = False
    return [name for name, _ in found]
