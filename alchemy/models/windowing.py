"""How an encoder reads rows of tokens: at once, or long ones in windows that overlap."""

# B batch, T tokens, D features, N windows, W tokens of a window

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from alchemy.errors import AlchemyError
from alchemy.nn.sequences import Rows, States
from alchemy.pipeline.windows import room_for, spans

Encode = Callable[[Rows], States]
NOWHERE = -1  # the place of padding


class Whole:
    """Rows are read at once: an encoder takes as many tokens as it says."""

    by_token: ClassVar[bool] = False  # whether the encoder must give a vector for each token

    def __call__(self, encode: Encode, rows: Rows) -> States:
        return encode(rows)

    def longest(self, takes: int | None) -> int | None:
        """The most tokens of a row, for an encoder that takes so many."""
        return takes


class _Window(NamedTuple):
    """Which places of a row a window shows, and how much each of its vectors counts for its place."""

    place_W: Tensor
    share_W: Tensor


class InWindows(Whole):
    """Rows of any length are read in windows of `size` tokens, of which `overlap` are in the window before, too.

    `around` tells how many special tokens stand before and behind a text: each window has them. A token is given the
    vector of the window in which it is farthest from a cut; a special token, and the whole text, the mean of all.
    """

    by_token = True

    def __init__(self, *, size: int, overlap: int, around: tuple[int, int]) -> None:
        self.size, self.overlap, (self.head, self.tail) = size, overlap, around
        self.room = room_for(size, around, overlap, section="task")

    def longest(self, takes: int | None) -> int | None:
        """Any number, where a window fits."""
        if takes is not None and self.size > takes:
            text = f"windows have max_length = {self.size} tokens, and the model takes {takes}"
            raise AlchemyError(text, section="task", hint=f"set max_length = {takes} or less")
        return None

    def __call__(self, encode: Encode, rows: Rows) -> States:
        if rows.ids_BT.shape[1] <= self.size:
            return encode(rows)
        cut = [(row, window) for row, length in enumerate(rows.lengths_B.tolist()) for window in self.windows(length)]
        row_N = torch.tensor([row for row, _ in cut]).to(rows.ids_BT.device)
        place_NW = pad_sequence([window.place_W for _, window in cut], True, NOWHERE).to(rows.ids_BT.device)
        share_NW = pad_sequence([window.share_W for _, window in cut], True).to(rows.ids_BT.device)
        return _join(encode(_shown(rows, row_N, place_NW)), rows, row_N, place_NW, share_NW)

    def windows(self, length: int) -> Iterator[_Window]:
        """The windows of a row of so many real tokens."""
        if length <= self.size:
            yield _Window(torch.arange(length), torch.ones(length))
            return
        behind = length - self.tail
        cuts = spans(behind - self.head, self.room, self.overlap)
        for span in cuts:
            start, end, first, last = (self.head + place for place in span)
            place_W = torch.cat([torch.arange(self.head), torch.arange(start, end), torch.arange(behind, length)])
            special_W = (place_W < self.head) | (place_W >= behind)
            own_W = (first <= place_W) & (place_W < last)
            yield _Window(place_W, torch.where(special_W, 1 / len(cuts), own_W.float()))


def _shown(rows: Rows, row_N: Tensor, place_NW: Tensor) -> Rows:
    """What windows show of rows; their real tokens stand in front, as those of the rows do."""
    at = (row_N[:, None], place_NW.clamp_min(0))
    return Rows(rows.ids_BT[at], place_NW != NOWHERE, None if rows.segments_BT is None else rows.segments_BT[at])


def _join(seen: States, rows: Rows, row_N: Tensor, place_NW: Tensor, share_NW: Tensor) -> States:
    """The vectors of windows at the places of their tokens, as if the rows had been read at once."""
    texts, length = rows.ids_BT.shape
    part_NWD = seen.states_BTD * share_NW[..., None].to(seen.states_BTD.dtype)
    part_NWD = part_NWD.masked_fill(place_NW[..., None] == NOWHERE, 0)  # whatever stands at padding
    to_NW = row_N[:, None] * length + place_NW.clamp_min(0)
    flat = part_NWD.new_zeros(texts * length, part_NWD.shape[-1])
    states_BTD = flat.index_add(0, to_NW.flatten(), part_NWD.flatten(0, 1)).unflatten(0, (texts, length))
    if seen.pooled_BD is None:
        return States(states_BTD, rows.real_BT)
    windows_B1 = row_N.bincount(minlength=texts)[:, None]
    pooled_BD = seen.pooled_BD.new_zeros(texts, seen.pooled_BD.shape[-1]).index_add(0, row_N, seen.pooled_BD)
    return States(states_BTD, rows.real_BT, pooled_BD / windows_B1)
