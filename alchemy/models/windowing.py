"""Encode token rows either whole or in overlapping windows."""

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
NOWHERE = -1  # position of padding


class Whole:
    """Encodes rows whole, up to the maximum length of the encoder."""

    by_token: ClassVar[bool] = False  # whether the encoder must return one vector per token

    def __call__(self, encode: Encode, rows: Rows) -> States:
        return encode(rows)

    def longest(self, takes: int | None) -> int | None:
        """Return the maximum length of a row for an encoder that accepts up to `takes` tokens."""
        return takes


class _Window(NamedTuple):
    """The row positions in a window, and the weight of the window's vector at each position."""

    place_W: Tensor
    share_W: Tensor


class InWindows(Whole):
    """Encodes rows of any length in windows of `size` tokens; consecutive windows share `overlap` tokens.

    `around` is the number of special tokens before and after a text; each window includes them. A token gets its vector
    from the window in which it is farthest from a cut; special tokens and the pooled vector are averaged over windows.
    """

    by_token = True

    def __init__(self, *, size: int, overlap: int, around: tuple[int, int]) -> None:
        self.size, self.overlap, (self.head, self.tail) = size, overlap, around
        self.room = room_for(size, around, overlap, section="task")

    def longest(self, takes: int | None) -> int | None:
        """Return None, since rows have no maximum length; raise if a window exceeds the encoder's limit."""
        if takes is not None and self.size > takes:
            text = f"windows have max_length = {self.size} tokens, but the model takes at most {takes}"
            raise AlchemyError(text, section="task", hint=f"set max_length = {takes} or less")
        return None

    def __call__(self, encode: Encode, rows: Rows) -> States:
        if rows.ids_BT.shape[1] <= self.size:
            return encode(rows)
        cut = [(row, window) for row, length in enumerate(rows.lengths_B.tolist()) for window in self.windows(length)]
        row_N = torch.tensor([row for row, _ in cut]).to(rows.ids_BT.device)
        place_NW = pad_sequence([window.place_W for _, window in cut], True, NOWHERE).to(rows.ids_BT.device)
        share_NW = pad_sequence([window.share_W for _, window in cut], True).to(rows.ids_BT.device)
        return _join_windows(encode(_cut_windows(rows, row_N, place_NW)), rows, row_N, place_NW, share_NW)

    def windows(self, length: int) -> Iterator[_Window]:
        """Yield the windows of a row of `length` real tokens."""
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


def _cut_windows(rows: Rows, row_N: Tensor, place_NW: Tensor) -> Rows:
    """Cut the windows out of the rows, with padding on the right."""
    at = (row_N[:, None], place_NW.clamp_min(0))
    return Rows(rows.ids_BT[at], place_NW != NOWHERE, None if rows.segments_BT is None else rows.segments_BT[at])


def _join_windows(seen: States, rows: Rows, row_N: Tensor, place_NW: Tensor, share_NW: Tensor) -> States:
    """Combine the vectors of windows by token position, as if the rows had been encoded whole."""
    texts, length = rows.ids_BT.shape
    part_NWD = seen.states_BTD * share_NW[..., None].to(seen.states_BTD.dtype)
    part_NWD = part_NWD.masked_fill(place_NW[..., None] == NOWHERE, 0)  # padding may contain anything
    to_NW = row_N[:, None] * length + place_NW.clamp_min(0)
    flat = part_NWD.new_zeros(texts * length, part_NWD.shape[-1])
    states_BTD = flat.index_add(0, to_NW.flatten(), part_NWD.flatten(0, 1)).unflatten(0, (texts, length))
    if seen.pooled_BD is None:
        return States(states_BTD, rows.real_BT)
    windows_B1 = row_N.bincount(minlength=texts)[:, None]
    pooled_BD = seen.pooled_BD.new_zeros(texts, seen.pooled_BD.shape[-1]).index_add(0, row_N, seen.pooled_BD)
    return States(states_BTD, rows.real_BT, pooled_BD / windows_B1)
