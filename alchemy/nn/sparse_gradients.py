"""Sparse gradients: which optimizers support them, and how to disable them for the others."""

from __future__ import annotations

from torch import nn
from torch.optim import SGD, Adagrad, Optimizer, SparseAdam


def supports_sparse(optimizer: Optimizer) -> bool:
    """Return whether an optimizer supports sparse gradients; optimizers from other packages are assumed to do so."""
    if isinstance(optimizer, SGD | Adagrad):
        return not any(group["weight_decay"] or group["fused"] for group in optimizer.param_groups)
    return isinstance(optimizer, SparseAdam) or type(optimizer).__module__.partition(".")[0] not in ("torch", "alchemy")


def make_dense(module: nn.Module, optimizer: Optimizer) -> list[str]:
    """Disable `sparse` in the embeddings that the optimizer updates, and return their names."""
    updated = {id(param) for group in optimizer.param_groups for param in group["params"]}
    found = [
        (name, inner)
        for name, inner in module.named_modules()
        if isinstance(inner, nn.Embedding | nn.EmbeddingBag) and inner.sparse and id(inner.weight) in updated
    ]
    for _, inner in found:
        inner.sparse = False
    return [name for name, _ in found]
