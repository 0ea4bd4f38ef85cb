"""Record the attention weights that modules compute, although fused kernels do not return them."""

# B batch size, H heads, T query tokens, S key tokens

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SOFTMAX = (torch.softmax, F.softmax, Tensor.softmax)


class AttentionRecorder(TorchFunctionMode):
    """Inside its `with` block, `record(weights)` is called with every matrix of attention weights, [.., T, S].

    This covers `scaled_dot_product_attention`, whose weights are computed a second time, `nn.MultiheadAttention`, and
    any softmax over the last of three or four dimensions, with which other modules compute their weights. The models
    need no changes, and outside the block nothing changes.
    """

    def __init__(self, record: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            return self._multi_head(*args, **kwargs)
        result = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self.record(attention_weights(*args, **kwargs))
        elif func in _SOFTMAX and _is_over_last(result, *args[1:2], **kwargs):
            self.record(result)
        return result

    def _multi_head(
        self, *args: Any, need_weights: bool = True, average_attn_weights: bool = True, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        attend: Callable[..., Any] = F.multi_head_attention_forward
        result, weights = attend(*args, **kwargs, need_weights=True, average_attn_weights=False)
        self.record(weights)
        if not need_weights:
            return result, None
        return result, weights.mean(-3) if average_attn_weights else weights


def attention_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the weights, without dropout, with which `scaled_dot_product_attention` averages the values."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1).nan_to_num(0.0)  # NaN: a query that may attend to nothing


def _is_over_last(result: Tensor, dim: int | None = None, **_: object) -> bool:
    return result.dim() in (3, 4) and dim in (-1, result.dim() - 1)
