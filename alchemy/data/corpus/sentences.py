"""Sentences as one array of ids with offsets, padded into the rows of a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, overload

import numpy as np


class Sentences(Sequence[np.ndarray]):
    """Sentences as arrays of ids; a sentence is a view, nothing is copied.

    `ids` holds all of them one after the other, `offsets` where each begins, and where the last one ends. `end` is the
    id that each ends with; None where they have no such token.
    """

    @property
    def ids(self) -> np.ndarray:
        raise NotImplementedError

    @property
    def offsets(self) -> np.ndarray:
        raise NotImplementedError

    @property
    def end(self) -> int | None:
        raise NotImplementedError

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each sentence has."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        begin, end = self.offsets[number : number + 2].tolist()
        return self.ids[begin:end]

    def padded(
        self,
        indices: Sequence[int] | np.ndarray,
        *,
        pad: int = 0,
        left: bool = False,
        multiple: int = 1,
        limit: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sentences as rows `[sentences, longest]` of int64, filled up with `pad`, and their lengths.

        `limit` cuts off what is longer but for its end, `multiple` rounds the width up.
        """
        rows = np.asarray(indices)
        if rows.dtype.kind not in "iu" and rows.size:
            raise TypeError(f"sentences are numbered by whole numbers, not {rows.dtype}")
        if rows.size and not -len(self) <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"sentences {rows.min()} to {rows.max()} of {len(self)}")
        rows = rows.astype(np.int64) % max(len(self), 1)
        begins, ends = self.offsets.take(rows), self.offsets.take(rows + 1)
        lengths = ends - begins
        cut = np.flatnonzero(lengths > limit) if limit is not None else ()
        if limit is not None:
            lengths = np.minimum(lengths, limit)
        width = int(lengths.max(initial=0))
        width += -width % multiple
        columns = np.arange(width)
        if left:
            begins = begins + lengths - width
        # one read for all rows; what lies outside of a sentence is read too, and painted over
        found = self.ids.take(begins[:, None] + columns, mode="clip").astype(np.int64)
        if int(lengths.min(initial=width)) < width:  # else there is nothing to fill up, as in most sorted batches
            empty = columns < (width - lengths)[:, None] if left else columns >= lengths[:, None]
            np.putmask(found, empty, pad)
        if self.end is not None and len(cut):
            found[cut, -1 if left else lengths[cut] - 1] = self.end
        return found, lengths


class InMemory(Sentences):
    """Sentences that were encoded a moment ago."""

    def __init__(self, rows: Sequence[np.ndarray], end: int | None) -> None:
        self._ids = np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32)
        self._offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        self._end = end

    @property
    def digest(self) -> str:
        """A hash of all ids."""
        content = self._ids.astype("<i4").tobytes() + self._offsets.astype("<i8").tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    @property
    def ids(self) -> np.ndarray:
        return self._ids

    @property
    def offsets(self) -> np.ndarray:
        return self._offsets

    @property
    def end(self) -> int | None:
        return self._end
