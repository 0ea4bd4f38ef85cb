"""ConvNeXt (Liu et al. 2022): depthwise convolutions and per-pixel layers, without batch normalization."""

# B batch, C channels, H height, W width, K classes

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeFloat, PositiveInt
from alchemy.nn.conv_blocks import channels_last, pad_to_multiple, pool_globally

EPS = 1e-6


class ChannelNorm(nn.LayerNorm):
    """Layer normalization over the channels of every pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=EPS)

    def forward(self, states_BCHW: Tensor) -> Tensor:
        states_BHWC = states_BCHW.permute(0, 2, 3, 1)
        return super().forward(states_BHWC).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A 7x7 depthwise convolution and a per-pixel layer of four times the width, added to the input.

    `scale` is the initial factor of the branch (0: none); `drop_path` is the chance that a sample skips the branch in
    training.
    """

    gamma: Tensor | None

    def __init__(self, width: int, *, scale: float = 1e-6, drop_path: float = 0.0) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * width, width)
        self.register_parameter("gamma", nn.Parameter(torch.full((width,), float(scale))) if scale else None)
        self.drop_path = drop_path

    def forward(self, states_BCHW: Tensor) -> Tensor:
        inner_BHWC = self.norm(self.dwconv(states_BCHW).permute(0, 2, 3, 1))
        inner_BHWC = self.pwconv2(self.act(self.pwconv1(inner_BHWC)))
        if self.gamma is not None:
            inner_BHWC = inner_BHWC * self.gamma
        return states_BCHW + self._skip(inner_BHWC.permute(0, 3, 1, 2))

    def _skip(self, branch_BCHW: Tensor) -> Tensor:
        """Zero the branch of random samples, and scale the others so that the mean is kept."""
        if not self.drop_path or not self.training:
            return branch_BCHW
        keep = 1 - self.drop_path
        kept_B = torch.rand(len(branch_BCHW), 1, 1, 1, device=branch_BCHW.device) < keep
        return branch_BCHW * kept_B / keep


class ConvNeXt(nn.Module):
    """A ConvNeXt with one stage for each number in `blocks`; the defaults are those of ConvNeXt-T.

    `patch` is the size of the patches that the first layer reads: 4 for photos, 1 or 2 for small images. `drop_path`
    rises linearly from 0 in the first block to its value in the last. The parameters are named as in the published
    weight files.

    >>> net = ConvNeXt(classes=10, channels=1, blocks=[1, 1], widths=[16, 32], patch=2)
    >>> net(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        classes: PositiveInt,
        channels: PositiveInt = 3,
        blocks: Sequence[PositiveInt] = (3, 3, 9, 3),
        widths: Sequence[PositiveInt] = (96, 192, 384, 768),
        patch: PositiveInt = 4,
        scale: NonNegativeFloat = 1e-6,
        drop_path: Fraction = 0.0,
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        rates = iter([drop_path * index / max(1, sum(blocks) - 1) for index in range(sum(blocks))])
        self.downsample_layers, self.stages = nn.ModuleList(), nn.ModuleList()
        inputs = channels
        for number, (count, width) in enumerate(zip(blocks, widths, strict=True)):
            size = 2 if number else patch
            conv = nn.Conv2d(inputs, width, size, stride=size)
            self.downsample_layers.append(
                nn.Sequential(ChannelNorm(inputs), conv) if number else nn.Sequential(conv, ChannelNorm(width))
            )
            self.stages.append(
                nn.Sequential(*[ConvNeXtBlock(width, scale=scale, drop_path=next(rates)) for _ in range(count)])
            )
            inputs = width
        self.patch = patch
        self.norm = nn.LayerNorm(inputs, eps=EPS)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(inputs, classes)
        _init_weights(self)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        states_BCHW = channels_last(image_BCHW)
        for number, (downsample, stage) in enumerate(zip(self.downsample_layers, self.stages)):
            states_BCHW = pad_to_multiple(states_BCHW, 2 if number else self.patch)
            states_BCHW = stage(downsample(states_BCHW))
        logits_BK: Tensor = self.head(self.dropout(self.norm(pool_globally(states_BCHW))))
        return logits_BK


def _init_weights(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
