"""Position embeddings, added to the token embeddings."""

# T tokens, D features

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from alchemy.errors import AlchemyError


class NoPlaces(nn.Module):
    """No position embedding, as with rotary attention."""

    longest: int | None = None

    def forward(self, states_BTD: Tensor, begin: int = 0) -> Tensor:
        """Add the position embeddings to tokens that start at position `begin`."""
        return states_BTD


class Sinusoidal(NoPlaces):
    """Sinusoidal position embeddings of any length."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        # not a buffer: DDP would broadcast it, but its length differs between ranks
        self.places_TD = waves(128, dim)

    def forward(self, states_BTD: Tensor, begin: int = 0) -> Tensor:
        end = begin + states_BTD.shape[1]
        if end > len(self.places_TD):  # double the length, so that the table rarely has to grow
            self.places_TD = waves(2 * end, states_BTD.shape[2])
        self.places_TD = self.places_TD.to(states_BTD)
        return states_BTD + self.places_TD[begin:end]


class Learned(NoPlaces):
    """A learned embedding per position, up to the maximum length."""

    def __init__(self, dim: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.table_TD = nn.Parameter(torch.empty(longest, dim))
        nn.init.normal_(self.table_TD, std=dim**-0.5)

    def forward(self, states_BTD: Tensor, begin: int = 0) -> Tensor:
        end = begin + states_BTD.shape[1]
        if end > len(self.table_TD):
            hint = "set a larger max_positions before training, or shorten the input"
            raise AlchemyError(f"a row has {end} tokens, but there are only {len(self.table_TD)} positions", hint=hint)
        return states_BTD + self.table_TD[begin:end]


def waves(length: int, dim: int) -> Tensor:
    """Return sinusoidal position embeddings: sines, then cosines, of decreasing frequency.

    >>> waves(2, 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angles_TD = torch.arange(length)[:, None] * rates
    return torch.cat((angles_TD.sin(), angles_TD.cos()), dim=1)[:, :dim]
