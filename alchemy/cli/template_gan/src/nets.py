"""The two networks of the GAN, in plain PyTorch."""

# B batch, Z noise, C channels, H height, W width

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization


class Generator(nn.Module):
    """Noise to images with values from -1 to 1: a linear layer and two transposed convolutions.

    Group normalization is used because it treats each image separately. With batch normalization, an update would
    depend on how its batch is divided among processes.
    """

    def __init__(self, *, noise: int, width: int, size: int, channels: int) -> None:
        super().__init__()
        self.start = nn.Linear(noise, 2 * width * (size // 4) ** 2)
        self.shape = (2 * width, size // 4, size // 4)
        self.layers = nn.Sequential(
            nn.GroupNorm(2 * width // 8, 2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.GroupNorm(width // 8, width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, noise_BZ: Tensor) -> Tensor:
        states_BCHW = self.start(noise_BZ).unflatten(1, self.shape)
        image_BCHW: Tensor = self.layers(states_BCHW.contiguous(memory_format=torch.channels_last))
        return image_BCHW


class Spectral(nn.Module):
    """Divides a weight by its largest singular value.

    It is computed exactly. The power iteration of `torch.nn.utils.parametrizations.spectral_norm` takes less time, but
    advances in every forward pass, so that an update would depend on how its batch is divided into steps.
    """

    def forward(self, weight: Tensor) -> Tensor:
        rows = weight.flatten(1)
        normalized: Tensor = weight / torch.linalg.eigvalsh(rows @ rows.T)[-1].sqrt()
        return normalized


def normalize(layer: nn.Module) -> nn.Module:
    """Return the layer with spectral normalization of its weight."""
    register_parametrization(layer, "weight", Spectral())
    return layer


class Discriminator(nn.Module):
    """Images to one number each, which is large for real images.

    Spectral normalization keeps the Lipschitz constant of every layer near 1, so that the discriminator cannot become
    so certain that the generator no longer learns from it.
    """

    def __init__(self, *, width: int, size: int, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            normalize(nn.Conv2d(channels, width, 4, stride=2, padding=1)),
            nn.LeakyReLU(0.1),
            normalize(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            normalize(nn.Linear(2 * width * (size // 4) ** 2, 1)),
        )

    def forward(self, image_BCHW: Tensor) -> Tensor:
        score_B: Tensor = self.layers(image_BCHW.contiguous(memory_format=torch.channels_last))[:, 0]
        return score_B
