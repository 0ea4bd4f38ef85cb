"""What a decoder keeps from one step of a search to the next: the keys and values of all tokens so far."""

# T tokens so far, C room for tokens, N rows of a search, H heads, K features of a head

from __future__ import annotations

import torch
from torch import Tensor

from alchemy.nn.attention import KeyValues

ROOM = 32  # tokens that there is room for at first; it is doubled when they are there


class Grown:
    """Keys, or values, of the tokens so far: room is made in advance, so that a step writes one token and copies none.

    Tokens come first, so that those that are there lie together, and choosing rows is one copy into a second room.
    """

    def __init__(self) -> None:
        self.room_CNHK: Tensor | None = None
        self.spare_CNHK: Tensor | None = None

    def add(self, now_NHTK: Tensor, length: int) -> Tensor:
        """Writes what comes behind the first `length` tokens, and gives all."""
        rows, heads, tokens, features = now_NHTK.shape
        end = length + tokens
        room = self.room_CNHK
        if room is None or end > len(room):
            grown = now_NHTK.new_empty(max(ROOM, 2 * end), rows, heads, features)
            if room is not None:
                grown[:length] = room[:length]
            self.room_CNHK, self.spare_CNHK = grown, None
            room = grown
        room[length:end] = now_NHTK.permute(2, 0, 1, 3)
        return room[:end].permute(1, 2, 0, 3)

    def select(self, rows: Tensor, length: int) -> None:
        """Keeps some rows, in another order, each as often as it is named."""
        room = self.room_CNHK
        if room is None:
            return
        spare = self.spare_CNHK
        if spare is None or spare.shape[:2] != (len(room), len(rows)):
            spare = room.new_empty(len(room), len(rows), *room.shape[2:])
        torch.index_select(room[:length], 1, rows, out=spare[:length])
        self.room_CNHK, self.spare_CNHK = spare, room


class LayerCache:
    """The keys and values of one layer."""

    def __init__(self) -> None:
        self.length = 0
        self.keys, self.values = Grown(), Grown()

    def add(self, now: KeyValues) -> KeyValues:
        seen = KeyValues(self.keys.add(now.keys_BHSK, self.length), self.values.add(now.values_BHSK, self.length))
        self.length += now.keys_BHSK.shape[2]
        return seen

    def select(self, rows: Tensor) -> None:
        self.keys.select(rows, self.length)
        self.values.select(rows, self.length)
