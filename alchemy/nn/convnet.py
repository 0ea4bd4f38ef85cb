"""A small convolutional network for images of about 28x28 to 64x64 pixels."""

# B batch, C channels, H height, W width, K classes

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.constraints import Fraction, PositiveInt
from alchemy.nn.conv_blocks import Norm, channels_last, conv_norm_relu, init_convs, pool_globally


class SmallCNN(nn.Module):
    """Stages of 3x3 convolutions with max pooling between them, global average pooling and a linear layer.

    `widths` are the channels of the stages, and each stage has `convs` convolutions. The image may have any size.

    >>> import torch
    >>> SmallCNN(classes=10, channels=1)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        classes: PositiveInt,
        channels: PositiveInt = 3,
        widths: Sequence[PositiveInt] = (32, 64, 128),
        convs: PositiveInt = 2,
        norm: Norm = "batch",
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        self.stages = nn.ModuleList()
        for width in widths:
            layers: list[nn.Module] = []
            for _ in range(convs):
                layers += conv_norm_relu(channels, width, norm)
                channels = width
            self.stages.append(nn.Sequential(*layers))
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(channels, classes)
        init_convs(self)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        states_BCHW = self.stages[0](channels_last(image_BCHW))
        for stage in self.stages[1:]:
            states_BCHW = stage(F.max_pool2d(states_BCHW, 2, ceil_mode=True))
        logits_BK: Tensor = self.out(self.dropout(pool_globally(states_BCHW)))
        return logits_BK
