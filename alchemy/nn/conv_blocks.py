"""Normalization, padding and initialization shared by the convolutional networks."""

# B batch, C channels, H height, W width

from __future__ import annotations

from math import gcd
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["batch", "group", "none"]
CHANNELS_PER_GROUP = 8


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """Return a normalization layer for feature maps.

    `"batch"` normalizes over the samples of a step, so a loss depends on the other samples; `"group"` normalizes each
    sample on its own, in groups of at least eight channels.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "group":
        return nn.GroupNorm(gcd(channels, max(1, channels // CHANNELS_PER_GROUP)), channels)
    return nn.Identity()


def conv_norm_relu(inputs: int, outputs: int, norm: Norm, kernel: int = 3) -> list[nn.Module]:
    """Return the layers of a convolution that keeps the size, its normalization and its activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=norm == "none")
    return [conv, make_norm(norm, outputs), nn.ReLU(inplace=True)]


def init_convs(net: nn.Module) -> None:
    """Initialize the convolutions for ReLU activations."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def pad_to_multiple(image_BCHW: Tensor, multiple: int) -> Tensor:
    """Repeat the last row and column until height and width are multiples of a number."""
    height, width = image_BCHW.shape[-2:]
    right, bottom = -width % multiple, -height % multiple
    return F.pad(image_BCHW, (0, right, 0, bottom), mode="replicate") if right or bottom else image_BCHW


def pool_globally(states_BCHW: Tensor) -> Tensor:
    """Return the mean of every channel over all positions, as `[B, C]`."""
    return states_BCHW.mean(dim=(2, 3))


def channels_last(image_BCHW: Tensor) -> Tensor:
    """Return the same image in the memory layout in which convolutions on the CPU take about two thirds of the time.

    All following layers keep the layout; the weights and their files are not affected.
    """
    if not image_BCHW.is_cpu:
        return image_BCHW
    batch, channels, height, width = image_BCHW.shape
    if channels == 1:  # both layouts are the same in memory, and only the strides tell them apart
        return image_BCHW.reshape(batch, height, width, 1).permute(0, 3, 1, 2)
    return image_BCHW.contiguous(memory_format=torch.channels_last)
