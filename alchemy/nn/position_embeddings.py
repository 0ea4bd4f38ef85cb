"""Where a token stands in its row, as a vector that is added to its own."""

# T tokens, D features

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from alchemy.errors import AlchemyError


class NoPlaces(nn.Module):
    """Nothing is added: the attention itself tells places apart, or nothing does."""

    longest: int | None = None

    def forward(self, states_BTD: Tensor, begin: int = 0) -> Tensor:
        """The vectors of tokens, the first of which has the place `begin`, with those of their places."""
        return states_BTD


class Sinusoidal(NoPlaces):
    """Sines and cosines of falling frequency, for as many places as are asked for."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        # no buffer: DDP would send it, and tables of ranks that saw other rows have other lengths
        self.places_TD = waves(128, dim)

    def forward(self, states_BTD: Tensor, begin: int = 0) -> Tensor:
        end = begin + states_BTD.shape[1]
        if end > len(self.places_TD):  # twice as many, so that growing is rare
            self.places_TD = waves(2 * end, states_BTD.shape[2])
        self.places_TD = self.places_TD.to(states_BTD)
        return states_BTD + self.places_TD[begin:end]


class Learned(NoPlaces):
    """A vector for each place up to the longest row."""

    def __init__(self, dim: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.table_TD = nn.Parameter(torch.empty(longest, dim))
        nn.init.normal_(self.table_TD, std=dim**-0.5)

    def forward(self, states_BTD: Tensor, begin: int = 0) -> Tensor:
        end = begin + states_BTD.shape[1]
        if end > len(self.table_TD):
            hint = "give a larger max_positions before training, or shorter rows"
            raise AlchemyError(f"a row has {end} tokens, and there are places for {len(self.table_TD)}", hint=hint)
        return states_BTD + self.table_TD[begin:end]


def waves(length: int, dim: int) -> Tensor:
    """Places as sines and cosines of falling frequency: any two places differ, and near ones are alike.

    >>> waves(2, 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angles_TD = torch.arange(length)[:, None] * rates
    return torch.cat((angles_TD.sin(), angles_TD.cos()), dim=1)[:, :dim]
