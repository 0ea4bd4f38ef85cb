"""Padded sequences of tokens, pooling over them, and a bidirectional RNN."""

# B batch, T tokens, D features

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class Rows(NamedTuple):
    """Padded token ids, a mask of the real tokens, and optional segment ids."""

    ids_BT: Tensor
    real_BT: Tensor
    segments_BT: Tensor | None = None

    @property
    def lengths_B(self) -> Tensor:
        return self.real_BT.sum(1)


class States(NamedTuple):
    """Token vectors, a mask of the real tokens, and optionally the encoder's own pooled vector."""

    states_BTD: Tensor
    real_BT: Tensor
    pooled_BD: Tensor | None = None

    @property
    def lengths_B(self) -> Tensor:
        return self.real_BT.sum(1)


def in_front(rows: Rows) -> tuple[Rows, Tensor]:
    """Move the padding to the right; return the rows and the original position of each token.

    An empty row gets one padding token as content, because attention and averages need at least one token.

    >>> rows, places = in_front(Rows(torch.tensor([[0, 7, 8]]), torch.tensor([[False, True, True]])))
    >>> rows.ids_BT.tolist(), rows.real_BT.tolist(), places.tolist()
    ([[7, 8, 0]], [[True, True, False]], [[1, 2, 0]])
    """
    places_BT = rows.real_BT.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    real_BT = rows.real_BT.gather(1, places_BT)
    real_BT[:, :1] = True
    segments_BT = None if rows.segments_BT is None else rows.segments_BT.gather(1, places_BT)
    return Rows(rows.ids_BT.gather(1, places_BT), real_BT, segments_BT), places_BT


def mean_of(states_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """Return the mean over the real tokens, or zeros if there are none."""
    weights_BT1 = real_BT[..., None].to(states_BTD.dtype)
    return (states_BTD * weights_BT1).sum(1) / weights_BT1.sum(1).clamp_min(1)


def max_of(states_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """Return the maximum of each feature over the real tokens."""
    return states_BTD.masked_fill(~real_BT[..., None], -torch.inf).amax(1)


def at(states_BTD: Tensor, place_B: Tensor) -> Tensor:
    """Return the vector of one token per row."""
    return states_BTD[torch.arange(len(place_B), device=place_B.device), place_B]


class BiRNN(nn.Module):
    """A bidirectional LSTM or GRU that skips padding."""

    def __init__(
        self, kind: Literal["lstm", "gru"], width: int, hidden: int, *, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = 2 * hidden
        self.rnn = (nn.LSTM if kind == "lstm" else nn.GRU)(
            width,
            hidden,
            num_layers=layers,
            bidirectional=True,
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,  # torch warns about dropout with a single layer
        )

    def forward(self, states_BTD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return all token states, with zeros at padding positions, and the final states of both directions."""
        # torch needs the lengths on the CPU; this synchronizes if they are on a device
        packed = pack_padded_sequence(states_BTD, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        out: PackedSequence
        out, last = self.rnn(packed)
        states, _ = pad_packed_sequence(out, batch_first=True, total_length=states_BTD.shape[1])
        hidden_LBH = last[0] if isinstance(last, tuple) else last
        return states, torch.cat((hidden_LBH[-2], hidden_LBH[-1]), dim=-1)
