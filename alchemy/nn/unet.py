"""U-Net (Ronneberger et al. 2015) for segmentation: any depth and any image size."""

# B batch, C channels, H height, W width, K classes

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeInt, PositiveInt
from alchemy.nn.conv_blocks import Norm, channels_last, conv_norm_relu, init_convs, pad_to_multiple


class UNet(nn.Module):
    """An encoder that halves the resolution `depth` times, and a decoder that reads every resolution of the encoder.

    The first level has `width` channels, and each further level twice as many, up to `max_width`. Images whose sides
    are not multiples of `2 ** depth` are padded by repeating their border, and the logits are cropped to their size.

    >>> UNet(classes=2, channels=1, width=8, depth=3)(torch.zeros(2, 1, 45, 61)).shape
    torch.Size([2, 2, 45, 61])
    """

    def __init__(
        self,
        *,
        classes: PositiveInt,
        channels: PositiveInt = 3,
        width: PositiveInt = 32,
        depth: NonNegativeInt = 4,
        max_width: PositiveInt = 512,
        convs: PositiveInt = 2,
        up: Literal["bilinear", "transposed"] = "bilinear",
        norm: Norm = "batch",
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        widths = [min(width * 2**level, max(width, max_width)) for level in range(depth + 1)]
        inputs = [channels, *widths[:-1]]
        self.depth = depth
        self.down = nn.ModuleList(_level(*pair, convs, norm) for pair in zip(inputs, widths))
        self.rise, self.up = nn.ModuleList(), nn.ModuleList()
        for upper, lower in reversed(list(pairwise(widths))):
            self.rise.append(nn.ConvTranspose2d(lower, upper, 2, stride=2) if up == "transposed" else _Enlarge())
            self.up.append(_level(upper + (upper if up == "transposed" else lower), upper, convs, norm))
        self.dropout = nn.Dropout2d(dropout)  # at the lowest resolution
        self.out = nn.Conv2d(widths[0], classes, 1)
        init_convs(self)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        height, width = image_BCHW.shape[-2:]
        states_BCHW = channels_last(pad_to_multiple(image_BCHW, 2**self.depth))
        passed: list[Tensor] = []
        for level in self.down:
            if passed:
                states_BCHW = F.max_pool2d(states_BCHW, 2)
            states_BCHW = level(states_BCHW)
            passed.append(states_BCHW)
        states_BCHW = self.dropout(passed.pop())
        for rise, level in zip(self.rise, self.up):
            states_BCHW = level(torch.cat([passed.pop(), rise(states_BCHW)], dim=1))
        logits_BKHW: Tensor = self.out(states_BCHW)
        return logits_BKHW[..., :height, :width]


class _Enlarge(nn.Module):
    """Doubles height and width by bilinear interpolation."""

    def forward(self, states_BCHW: Tensor) -> Tensor:
        return F.interpolate(states_BCHW, scale_factor=2, mode="bilinear", align_corners=False)


def _level(inputs: int, width: int, convs: int, norm: Norm) -> nn.Sequential:
    layers = conv_norm_relu(inputs, width, norm)
    for _ in range(convs - 1):
        layers += conv_norm_relu(width, width, norm)
    return nn.Sequential(*layers)
