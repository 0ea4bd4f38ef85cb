"""Dropout whose mask costs a sixth of torch's on the CPU, where one thread draws a number for every feature."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# a feature is dropped by 16 random bits, so its probability is one of so many; the scale follows from the one taken
STEPS = 2**16


class Dropout(nn.Dropout):
    """As `nn.Dropout`, with one draw of 64 bits for four features on the CPU; elsewhere, and compiled, torch's own."""

    def forward(self, input: Tensor) -> Tensor:
        dropped = round(self.p * STEPS)
        if torch.compiler.is_compiling() or not (self.training and 0 < dropped < STEPS and self._suits(input)):
            return super().forward(input)
        drawn = torch.empty(-(-input.numel() // 4), dtype=torch.int64, device=input.device).random_(-(2**63), None)
        bits = drawn.view(torch.int16)[: input.numel()].view(input.shape)
        kept = bits >= dropped - STEPS // 2
        return input * kept.to(input.dtype).mul_(STEPS / (STEPS - dropped))

    def _suits(self, states: Tensor) -> bool:
        return states.device.type == "cpu" and type(states) in (Tensor, nn.Parameter) and not self.inplace
