"""Sentences stored as an array of ids and an array of offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, overload

import numpy as np


class Sentences(Sequence[np.ndarray]):
    """A list of sentences, each a view of one array of ids.

    `ids` contains all sentences, concatenated; `offsets` contains the start of each sentence and the end of the last
    one. `end` is the end-of-sentence id, or None if the sentences have no such token.
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
        """The number of tokens in each sentence."""
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
            raise IndexError(f"sentence {index} is out of range for {len(self)} sentences")
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
        """Return the sentences as int64 rows `[sentences, longest]`, padded with `pad`, and their lengths.

        `limit` truncates longer sentences but keeps their end-of-sentence token; `multiple` rounds the width up.
        """
        rows = np.asarray(indices)
        if rows.dtype.kind not in "iu" and rows.size:
            raise TypeError(f"indices of sentences must be integers, got {rows.dtype}")
        if rows.size and not -len(self) <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"sentences {rows.min()} to {rows.max()} are out of range for {len(self)} sentences")
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
        # one read for all rows; ids beyond the end of a sentence are read too, and overwritten below
        found = self.ids.take(begins[:, None] + columns, mode="clip").astype(np.int64)
        if int(lengths.min(initial=width)) < width:  # sorted batches rarely need padding
            empty = columns < (width - lengths)[:, None] if left else columns >= lengths[:, None]
            np.putmask(found, empty, pad)
        if self.end is not None and len(cut):
            found[cut, -1 if left else lengths[cut] - 1] = self.end
        return found, lengths


class InMemory(Sentences):
    """Sentences held in memory."""

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
