"""Residual networks (He et al. 2016) of basic or bottleneck blocks."""

# B batch, C channels, H height, W width, K classes

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from alchemy.constraints import Fraction, PositiveInt
from alchemy.nn.conv_blocks import Norm, channels_last, init_convs, make_norm, pool_globally


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; the first convolution has the stride."""

    expansion = 1

    def __init__(self, inputs: int, width: int, *, stride: int = 1, norm: Norm = "batch") -> None:
        super().__init__()
        bias = norm == "none"
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=bias)
        self.bn1 = make_norm(norm, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=bias)
        self.bn2 = make_norm(norm, width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, width, stride, norm)

    def forward(self, states_BCHW: Tensor) -> Tensor:
        inner_BCHW = self.relu(self.bn1(self.conv1(states_BCHW)))
        added_BCHW: Tensor = self.bn2(self.conv2(inner_BCHW)) + self.downsample(states_BCHW)
        return self.relu(added_BCHW)


class Bottleneck(nn.Module):
    """A 3x3 convolution with the stride between two 1x1 convolutions, the last of which has four times the width."""

    expansion = 4

    def __init__(self, inputs: int, width: int, *, stride: int = 1, norm: Norm = "batch") -> None:
        super().__init__()
        bias, outputs = norm == "none", width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=bias)
        self.bn1 = make_norm(norm, width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=bias)
        self.bn2 = make_norm(norm, width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=bias)
        self.bn3 = make_norm(norm, outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride, norm)

    def forward(self, states_BCHW: Tensor) -> Tensor:
        inner_BCHW = self.relu(self.bn1(self.conv1(states_BCHW)))
        inner_BCHW = self.relu(self.bn2(self.conv2(inner_BCHW)))
        added_BCHW: Tensor = self.bn3(self.conv3(inner_BCHW)) + self.downsample(states_BCHW)
        return self.relu(added_BCHW)


def _shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    """Return the identity, or a 1x1 convolution if the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=norm == "none"), make_norm(norm, outputs))


class ResNet(nn.Module):
    """A ResNet with one stage for each number in `blocks`; the defaults are those of ResNet-18.

    `stem = "large"` divides the resolution by four before the first stage (7x7 convolution and max pooling), as for
    photos; `stem = "small"` keeps it (3x3 convolution), as for CIFAR or MNIST. ResNet-50 is `bottleneck = true` with
    `blocks = [3, 4, 6, 3]`. The parameters are named as in torchvision, so its weight files can be loaded.

    >>> import torch
    >>> net = ResNet(classes=10, channels=1, blocks=[1, 1], widths=[16, 32], stem="small")
    >>> net(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        classes: PositiveInt,
        channels: PositiveInt = 3,
        blocks: Sequence[PositiveInt] = (2, 2, 2, 2),
        widths: Sequence[PositiveInt] = (64, 128, 256, 512),
        bottleneck: bool = False,
        stem: Literal["large", "small"] = "large",
        norm: Norm = "batch",
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        kind = Bottleneck if bottleneck else BasicBlock
        size, stride = (7, 2) if stem == "large" else (3, 1)
        self.conv1 = nn.Conv2d(channels, widths[0], size, stride, padding=size // 2, bias=norm == "none")
        self.bn1 = make_norm(norm, widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem == "large" else nn.Identity()
        self.stages = [f"layer{number}" for number in range(1, len(blocks) + 1)]
        inputs = widths[0]
        for number, (name, count, width) in enumerate(zip(self.stages, blocks, widths, strict=True)):
            strides = [2 if number else 1] + [1] * (count - 1)
            layers = []
            for step in strides:
                layers.append(kind(inputs, width, stride=step, norm=norm))
                inputs = width * kind.expansion
            self.add_module(name, nn.Sequential(*layers))
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(inputs, classes)
        init_convs(self)
        _start_as_identity(self)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        states_BCHW: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(channels_last(image_BCHW)))))
        for name in self.stages:
            states_BCHW = self.get_submodule(name)(states_BCHW)
        logits_BK: Tensor = self.fc(self.dropout(pool_globally(states_BCHW)))
        return logits_BK


def _start_as_identity(net: ResNet) -> None:
    """Set the last scale of every block to zero, so that a deep network trains from the first step."""
    for module in net.modules():
        if isinstance(module, BasicBlock | Bottleneck):
            last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
            if isinstance(last, nn.BatchNorm2d | nn.GroupNorm):
                nn.init.zeros_(last.weight)
