"""A recurrent network over rows of different lengths."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class BiRNN(nn.Module):
    """An LSTM or a GRU that reads each row from its first token to its last, and back; padding is never read."""

    def __init__(
        self, kind: Literal["lstm", "gru"], width: int, hidden: int, *, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.width = 2 * hidden
        self.rnn = CELLS[kind](
            width,
            hidden,
            num_layers=layers,
            bidirectional=True,
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,  # between layers: torch warns where there is no between
        )

    def forward(self, states_BTD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The states of all tokens, zero at padding, and the last ones of both directions side by side."""
        # torch wants the lengths on the CPU, and waits for them where they are not
        packed = pack_padded_sequence(states_BTD, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        out: PackedSequence
        out, last = self.rnn(packed)
        states, _ = pad_packed_sequence(out, batch_first=True, total_length=states_BTD.shape[1])
        hidden_LBH = last[0] if isinstance(last, tuple) else last
        return states, torch.cat((hidden_LBH[-2], hidden_LBH[-1]), dim=-1)
