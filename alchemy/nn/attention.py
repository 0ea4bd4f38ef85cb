"""Multi-head attention: self-attention with a key-value cache, and cross-attention."""

# B batch size, T query tokens, S key tokens, H heads, K features per head, D = H K;
# during a search: Q tokens in a step, E tokens so far

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.errors import AlchemyError
from alchemy.nn.kv_cache import KeyValues, LayerCache
from alchemy.nn.linear import Linear

FEW = 16  # upper limit for the number of queries in a search step


class SelfAttention(nn.Module):
    """Self-attention. `rotary` applies rotary position embeddings to queries and keys."""

    def __init__(self, dim: int, heads: int, *, dropout: float = 0.0, rotary: bool = False) -> None:
        super().__init__()
        self.heads, self.dropout = _heads_of(dim, heads), dropout
        self.inner, self.out = Linear(dim, 3 * dim), Linear(dim, dim)
        self.turn_K: Tensor | None
        self.register_buffer("turn_K", _frequencies(dim // heads) if rotary else None, persistent=False)

    def forward(self, states_BTD: Tensor, *, real_B11S: Tensor | None = None, past: LayerCache | None = None) -> Tensor:
        """Attend to all tokens marked in `real_B11S`; without it, attend causally, including to tokens in `past`."""
        query, key, value = (_split(part, self.heads) for part in self.inner(states_BTD).chunk(3, dim=-1))
        if self.turn_K is not None:
            place_T = torch.arange(query.shape[2], device=query.device) if past is None else past.family.place_Q
            query, key = _rotate(query, self.turn_K, place_T), _rotate(key, self.turn_K, place_T)
        seen, mask = KeyValues(key, value), real_B11S
        if past is not None:
            seen, mask = past.add(seen), past.family.mask_B1QE
        return self.out(
            _merge_heads(_attend(query, seen, mask, causal=mask is None, dropout=self.dropout * self.training))
        )


class CrossAttention(nn.Module):
    """Cross-attention; `project` computes the keys and values of the other sequence once."""

    def __init__(self, dim: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = _heads_of(dim, heads), dropout
        self.query, self.key_value, self.out = Linear(dim, dim), Linear(dim, 2 * dim), Linear(dim, dim)

    def project(self, states_BSD: Tensor) -> KeyValues:
        return KeyValues(*(_split(part, self.heads) for part in self.key_value(states_BSD).chunk(2, dim=-1)))

    def forward(self, states_BTD: Tensor, seen: KeyValues, real_B11S: Tensor | None) -> Tensor:
        query_BHTK = _split(self.query(states_BTD), self.heads)
        return self.out(_merge_heads(_attend(query_BHTK, seen, real_B11S, dropout=self.dropout * self.training)))

    def weights(self, states_BTD: Tensor, seen: KeyValues, real_B11S: Tensor | None) -> Tensor:
        """Return the attention weights, averaged over the heads: [B, T, S]."""
        query_BHTK = _split(self.query(states_BTD), self.heads)
        scores_BHTS = query_BHTK @ seen.keys_BHSK.mT * query_BHTK.shape[-1] ** -0.5
        if real_B11S is not None:
            scores_BHTS = scores_BHTS.masked_fill(~real_B11S, -torch.inf)
        return scores_BHTS.softmax(-1).mean(1)


def _attend(
    query_BHTK: Tensor, seen: KeyValues, mask: Tensor | None, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Return the attention output; `mask` is True where a query may attend."""
    step = query_BHTK.shape[2] < FEW and not causal and not dropout and not torch.is_grad_enabled()
    if step and query_BHTK.device.type == "cpu":  # in a search step, torch's kernel would use only one thread
        scores_BHTS = (query_BHTK * query_BHTK.shape[-1] ** -0.5) @ seen.keys_BHSK.mT
        if mask is not None:
            scores_BHTS.masked_fill_(~mask, -torch.inf)
        return scores_BHTS.softmax(-1) @ seen.values_BHSK
    return F.scaled_dot_product_attention(query_BHTK, *seen, attn_mask=mask, is_causal=causal, dropout_p=dropout)


def _heads_of(dim: int, heads: int) -> int:
    if heads < 1 or dim % heads:
        raise AlchemyError(f"dim = {dim} is not a multiple of heads = {heads}")
    return heads


def _split(states_BTD: Tensor, heads: int) -> Tensor:
    """Split the features into heads: [B, H, T, K]."""
    return states_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def _merge_heads(states_BHTK: Tensor) -> Tensor:
    return states_BHTK.transpose(1, 2).flatten(-2)


def _frequencies(features: int) -> Tensor:
    """Return the rotation per position of each pair of features, in decreasing order."""
    if features % 2:
        raise AlchemyError(f"rotary positions need an even number of features per head, not {features}")
    return 10_000 ** -(torch.arange(0, features, 2) / features)


def _rotate(states_BHTK: Tensor, turn_K: Tensor, place_T: Tensor) -> Tensor:
    """Rotate pairs of features by the position of their token (Su et al. 2021)."""
    angle_TK = place_T[:, None].to(turn_K.dtype) * turn_K
    cos_TK, sin_TK = angle_TK.cos().to(states_BHTK.dtype), angle_TK.sin().to(states_BHTK.dtype)
    one, other = states_BHTK.chunk(2, dim=-1)
    return torch.cat((one * cos_TK - other * sin_TK, other * cos_TK + one * sin_TK), dim=-1)
