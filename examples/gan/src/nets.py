"""The two networks of the GAN, in plain PyTorch."""

# B batch, Z noise, C channels, H height, W width

from itertools import pairwise
from math import ceil

import torch
from torch import Tensor, nn


class Generator(nn.Module):
    """Noise to images with values from -1 to 1, in two stages that double the size.

    Group normalization is used because it treats each image separately. With batch normalization, an update would
    depend on how its batch is divided among processes.
    """

    def __init__(self, *, noise: int, width: int, size: int, channels: int) -> None:
        super().__init__()
        self.start = nn.Linear(noise, 2 * width * (size // 4) ** 2)
        self.shape = (2 * width, size // 4, size // 4)
        self.layers = nn.Sequential(
            *normalize(2 * width),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            *normalize(2 * width),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            *normalize(width),
            nn.Conv2d(width, width, 3, padding=1),
            *normalize(width),
            nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, noise_BZ: Tensor) -> Tensor:
        states_BCHW = self.start(noise_BZ).unflatten(1, self.shape)
        image_BCHW: Tensor = self.layers(states_BCHW.contiguous(memory_format=torch.channels_last))
        return image_BCHW


def normalize(channels: int) -> tuple[nn.Module, nn.Module]:
    """Return a normalization of groups of eight channels, and an activation."""
    return nn.GroupNorm(channels // 8, channels), nn.ReLU()


class Discriminator(nn.Module):
    """Images to one number each, which is large for real images: three convolutions that halve the size."""

    def __init__(self, *, width: int, size: int, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((channels, width, 2 * width, 4 * width)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * ceil(size / 8) ** 2, 1))

    def forward(self, image_BCHW: Tensor) -> Tensor:
        score_B: Tensor = self.layers(image_BCHW.contiguous(memory_format=torch.channels_last))[:, 0]
        return score_B
