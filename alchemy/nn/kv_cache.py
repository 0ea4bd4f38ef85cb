"""The key-value cache of a decoder during search.

The tokens of all hypotheses of a sentence share one row, and a mask selects the tokens of each hypothesis.
Selecting hypotheses does not copy keys: each key is written once, and read once for all hypotheses of the sentence.
"""

# B sentences, R hypotheses per sentence, T tokens per step, Q = R T tokens of all hypotheses, E tokens so far,
# C capacity, H heads, K features per head, S key tokens

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROOM = 64  # initial capacity in tokens per sentence


class KeyValues(NamedTuple):
    """The keys and values to attend to."""

    keys_BHSK: Tensor
    values_BHSK: Tensor


class Family:
    """Maps each hypothesis to its tokens. A sentence starts with one empty hypothesis."""

    def __init__(self, sentences: int, device: torch.device) -> None:
        self.length = 0  # length of a hypothesis
        self.room = ROOM
        self.own_BRE = torch.ones(sentences, 1, 0, dtype=torch.bool, device=device)
        self.mask_B1QE = self.own_BRE[:, None]
        self.place_Q = torch.arange(0, device=device)

    @property
    def rows(self) -> int:
        return self.own_BRE.shape[1]

    def grow(self, tokens: int) -> None:
        """Append `tokens` tokens to each hypothesis; each token attends to itself and to the tokens before it."""
        device = self.own_BRE.device
        one_RR = torch.eye(self.rows, dtype=torch.bool, device=device)
        before_TT = torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()
        new_QQ = torch.kron(one_RR, before_TT)
        old_BQE = self.own_BRE.repeat_interleave(tokens, dim=1)
        self.mask_B1QE = torch.cat((old_BQE, new_QQ.expand(len(old_BQE), -1, -1)), dim=2)[:, None]
        self.own_BRE = self.mask_B1QE[:, 0, tokens - 1 :: tokens]  # the last token attends to the whole hypothesis
        self.place_Q = torch.arange(self.length, self.length + tokens, device=device).repeat(self.rows)
        self.length += tokens

    def select(self, sentences_B: Tensor, parent_BR: Tensor) -> None:
        self.own_BRE = self.own_BRE[sentences_B[:, None], parent_BR]

    def is_full(self) -> bool:
        return self.own_BRE.shape[2] > self.room

    def forget(self) -> Tensor:
        """Drop tokens that no hypothesis uses and return the positions of the rest, in order.

        Hypotheses share most of their tokens, so few tokens remain. If all of them remain, the capacity is doubled.
        """
        left_BE = self.own_BRE.any(1)
        places_BE = left_BE.byte().argsort(dim=1, descending=True, stable=True)[:, : int(left_BE.sum(1).max())]
        self.own_BRE = self.own_BRE.gather(2, places_BE[:, None].expand(-1, self.rows, -1))
        self.room = max(ROOM, 2 * places_BE.shape[1])
        return places_BE


class Grown:
    """Keys or values of the tokens so far, in a preallocated buffer, so that a step does not copy them."""

    def __init__(self) -> None:
        self.room_BHCK: Tensor | None = None
        self.length = 0

    def add(self, now_BHQK: Tensor) -> Tensor:
        """Append the keys or values of a step and return all of them."""
        begin, self.length = self.length, self.length + now_BHQK.shape[2]
        if self.room_BHCK is None:
            self.room_BHCK = now_BHQK.new_empty(*now_BHQK.shape[:2], max(ROOM, self.length), now_BHQK.shape[3])
        if self.length > self.room_BHCK.shape[2]:
            self._move(self.room_BHCK[:, :, :begin])
        self.room_BHCK[:, :, begin : self.length] = now_BHQK
        return self.room_BHCK[:, :, : self.length]

    def _move(self, there_BHEK: Tensor) -> None:
        sentences, heads, _, features = there_BHEK.shape
        self.room_BHCK = there_BHEK.new_empty(sentences, heads, 2 * max(ROOM, self.length), features)
        self.room_BHCK[:, :, : there_BHEK.shape[2]] = there_BHEK

    def keep(self, sentences_B: Tensor) -> None:
        if self.room_BHCK is not None:
            self.room_BHCK = self.room_BHCK[sentences_B]

    def take(self, places_BE: Tensor) -> None:
        """Keep only the tokens at the given positions."""
        assert self.room_BHCK is not None  # tokens can be dropped only if there are any
        _, heads, _, features = self.room_BHCK.shape
        there_BHEK = self.room_BHCK.gather(2, places_BE[:, None, :, None].expand(-1, heads, -1, features))
        self.length = places_BE.shape[1]
        self._move(there_BHEK)


class LayerCache:
    """The keys and values of one layer."""

    def __init__(self, family: Family) -> None:
        self.family, self.keys, self.values = family, Grown(), Grown()

    def add(self, now: KeyValues) -> KeyValues:
        return KeyValues(self.keys.add(now.keys_BHSK), self.values.add(now.values_BHSK))

    def keep(self, sentences_B: Tensor) -> None:
        self.keys.keep(sentences_B)
        self.values.keep(sentences_B)

    def take(self, places_BE: Tensor) -> None:
        self.keys.take(places_BE)
        self.values.take(places_BE)
