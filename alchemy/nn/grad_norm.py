"""Gradient norm and gradient clipping."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def norm_of(params: Sequence[nn.Parameter]) -> Tensor | None:
    """Return the norm of all gradients as a 0-d tensor on their device, or None if there are no gradients."""
    grads = [param.grad for param in params if param.grad is not None]
    if not grads:
        return None
    try:
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    except RuntimeError:  # sparse gradients, or several devices
        return _norm_one_by_one([param for param in params if param.grad is not None])


def clip_factor(max_norm: float, norm: Tensor) -> float | Tensor | None:
    """Return the factor that clips gradients with this norm to `max_norm`, or None if they need no clipping.

    Does not synchronize with a device. On the CPU, reading the norm is free, and clipping is usually not needed.
    """
    if norm.device.type != "cpu":
        return (max_norm / (norm + 1e-6)).clamp_(max=1.0)
    factor = max_norm / (norm.item() + 1e-6)
    return factor if factor < 1.0 else None


def scale_grads(grads: list[Tensor], scale: float | Tensor, norm: Tensor) -> None:
    """Multiply gradients in place, including sparse gradients and gradients on several devices."""
    if any(grad.is_sparse or grad.device != grads[0].device for grad in grads):
        for grad in grads:
            factor = scale.to(grad.device) if isinstance(scale, Tensor) else scale
            (grad._values() if grad.is_sparse else grad).mul_(factor)
    else:
        factor = scalar_like(scale, norm)
        torch._foreach_mul_(grads, factor)


def scalar_like(value: float | Tensor, like: Tensor) -> float | Tensor:
    """Convert a factor to the form that scales gradients fastest: a tensor of their dtype if that is exact."""
    if isinstance(value, Tensor):
        return value.to(like.device)
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return value
    return torch.scalar_tensor(value, dtype=like.dtype)


def _norm_one_by_one(params: list[nn.Parameter]) -> Tensor:
    """Return the norm of gradients that cannot be processed as one list."""
    values = []
    for param in params:
        assert param.grad is not None
        if param.grad.is_sparse:
            param.grad = param.grad.coalesce()  # otherwise, entries for the same row would be counted separately
        values.append(param.grad._values() if param.grad.is_sparse else param.grad)
    norms = [torch.linalg.vector_norm(value).to(values[0].device) for value in values]
    return torch.linalg.vector_norm(torch.stack(norms))
