"""What each process of a build does: lines become numbers, and numbers a file that waits to be joined."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alchemy.data.corpus.layout import smallest
from alchemy.data.corpus.sources import Piece, source_of

LOCAL = np.dtype(np.uint32)  # ids of one process, before the vocabulary is known


class Part(NamedTuple):
    """What became of a piece."""

    side: str
    source: int  # which of the side's files
    number: int  # what its files are called
    sentences: int
    tokens: int
    size: int  # bytes of the text


class Learnt(NamedTuple):
    """What one process has met: symbols in the order of its numbers, and how often it has seen each."""

    symbols: list[str]
    counts: np.ndarray


class Numbers(NamedTuple):
    """How the numbers of one process become those of a corpus."""

    table: np.ndarray  # the id of each of its symbols
    kind: np.dtype[Any]
    eos: int | None  # None: sentences have no token for their end


class _Growing(dict[str, int]):
    """Ids by symbol; a new symbol gets the next one."""

    def __missing__(self, symbol: str) -> int:
        self[symbol] = number = len(self)
        return number


class Learner:
    """Counts symbols and numbers them in the order of their first sight, so that text is read only once.

    When all is read, the numbers are exchanged for those of the vocabulary that all processes share.
    """

    def __init__(self, kind: str, lower: bool) -> None:
        self.kind, self.lower = kind, lower
        self.ids = _Growing()
        self.counts = np.zeros(0, np.int64)

    def encode_lines(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        lines = [line.lower() for line in lines] if self.lower else lines
        rows: Any = [line.split() for line in lines] if self.kind == "words" else lines
        lengths = np.fromiter(map(len, rows), np.int64, len(lines))
        flat = np.fromiter(map(self.ids.__getitem__, chain.from_iterable(rows)), LOCAL, int(lengths.sum()))
        seen = np.bincount(flat, minlength=len(self.ids))
        seen[: len(self.counts)] += self.counts
        self.counts = seen
        return flat, lengths

    def learnt(self) -> Learnt:
        return Learnt(list(self.ids), self.counts)


class Encoder:
    """The worker of a crew: encodes pieces into parts below `folder`."""

    def __init__(self, folder: Path, tokenizers: Mapping[str, Any], *, eos: bool, field: str) -> None:
        self.folder, self.tokenizers, self.eos, self.field = folder, dict(tokenizers), eos, field
        self.strict = len(tokenizers) > 1
        self.parts: list[Part] = []

    def encode(self, number: int, task: tuple[str, int, Piece]) -> Part:
        """Reads a piece of a side and writes the ids and lengths of its sentences."""
        side, source, piece = task
        tokenizer = self.tokenizers[side]
        flat, lengths = tokenizer.encode_lines(source_of(piece.path, self.field, self.strict).read(piece))
        lengths.tofile(file_of(self.folder, number, ".len"))
        if not isinstance(tokenizer, Learner):
            flat = _finished(flat, lengths, smallest(tokenizer.size), tokenizer.eos if self.eos else None)
        flat.tofile(file_of(self.folder, number, ".ids"))
        part = Part(side, source, number, len(lengths), len(flat), piece.size)
        self.parts.append(part)
        return part

    def learnt(self) -> dict[str, Learnt]:
        """What was counted, by side; sides that share a vocabulary share a learner. It is told once, and forgotten."""
        told = {learner: learner.learnt() for learner in self.tokenizers.values()}
        found = {side: told[learner] for side, learner in self.tokenizers.items()}
        self.tokenizers.clear()
        return found

    def settle(self, numbers: Mapping[str, Numbers]) -> None:
        """Exchanges the numbers of this process for those of the corpora, in its own parts."""
        for part in self.parts:
            path, of = file_of(self.folder, part.number, ".ids"), numbers[part.side]
            local, lengths = np.fromfile(path, LOCAL), lengths_of(self.folder, part.number)
            _finished(of.table.take(local), lengths, of.kind, of.eos).tofile(path)


def file_of(folder: Path, number: int, suffix: str) -> Path:
    return folder / f"{number:08}{suffix}"


def lengths_of(folder: Path, number: int) -> np.ndarray:
    """The lengths of the sentences of a part, without the ends that are added."""
    return np.fromfile(file_of(folder, number, ".len"), np.int64)


def _finished(flat: np.ndarray, lengths: np.ndarray, kind: np.dtype[Any], eos: int | None) -> np.ndarray:
    """Ids as they stand in the corpus: in the smallest type, each sentence with its end."""
    ids = flat.astype(kind, copy=False)
    return ids if eos is None else np.insert(ids, lengths.cumsum(), eos)
