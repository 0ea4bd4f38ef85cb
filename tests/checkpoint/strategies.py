"""Tensors of every type and shape, for hypothesis."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from alchemy.checkpoint.state_tree import DTYPES

SHAPES = st.lists(st.integers(0, 3), max_size=3)


@st.composite
def tensors(draw: Any) -> Tensor:
    dtype, shape = draw(st.sampled_from(sorted(DTYPES, key=str))), draw(SHAPES)
    size = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    raw = torch.tensor(list(draw(st.binary(min_size=size, max_size=size))), dtype=torch.uint8)
    if dtype is torch.bool:
        return (raw > 127).reshape(shape)
    return raw.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
