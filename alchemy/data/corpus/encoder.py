"""Lines become numbers: each piece of a text a part, a pair of files that waits to be joined."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from alchemy.data.corpus.layout import smallest
from alchemy.data.corpus.recipe import Recipe
from alchemy.data.corpus.sources import Piece, source_of
from alchemy.errors import AlchemyError
from alchemy.text.base import Tokenizer

T = TypeVar("T")
R = TypeVar("R")
NUMBER = np.dtype(np.uint32)  # of symbols, before the vocabulary is known


class Task(NamedTuple):
    """A piece that is to be encoded."""

    number: int  # what the files of its part are called
    side: str
    source: int  # which of the side's files
    piece: Piece


class Part(NamedTuple):
    """What became of a piece."""

    number: int
    side: str
    source: int
    sentences: int
    tokens: int
    size: int  # bytes of the text

    def path(self, folder: Path, suffix: str) -> Path:
        return folder / f"{self.number:08}{suffix}"

    def lengths(self, folder: Path) -> np.ndarray:
        """The lengths of its sentences, without the ends that are added."""
        return np.fromfile(self.path(folder, ".len"), np.int64)


class _Growing(dict[str, int]):
    """Numbers by symbol; a new symbol gets the next one."""

    def __missing__(self, symbol: str) -> int:
        self[symbol] = number = len(self)
        return number


class Symbols:
    """The symbols of a text in the order of their first sight, and how often each was seen."""

    def __init__(self) -> None:
        self.numbers = _Growing()
        self.counts = np.zeros(0, np.int64)

    def encode(self, rows: Iterable[Iterable[str]], total: int) -> np.ndarray:
        """The numbers of all symbols of some rows, which are counted."""
        flat = np.fromiter(map(self.numbers.__getitem__, chain.from_iterable(rows)), NUMBER, total)
        self._add(np.bincount(flat, minlength=len(self.numbers)))
        return flat

    def learn(self, others: Symbols) -> np.ndarray:
        """Takes over what others have counted; the number that each of their symbols has here."""
        table = np.fromiter(map(self.numbers.__getitem__, others.numbers), NUMBER, len(others.numbers))
        seen = np.zeros(len(self.numbers), np.int64)
        seen[table] = others.counts
        self._add(seen)
        return table

    def _add(self, seen: np.ndarray) -> None:
        seen[: len(self.counts)] += self.counts
        self.counts = seen


class Encoder:
    """Encodes pieces into parts below `folder`, with `tokenizers` or, where there are none yet, by symbols of each."""

    def __init__(self, recipe: Recipe, folder: Path, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.recipe, self.folder, self.tokenizers = recipe, folder, tokenizers

    def __call__(self, task: Task) -> tuple[Part, Symbols | None]:
        """Reads a piece and writes the ids and lengths of its sentences."""
        number, side, source, piece = task
        lines = source_of(piece.path, self.recipe.field, strict=len(self.recipe.sides) > 1).read(piece)
        symbols = None
        if self.tokenizers:
            flat, lengths = self.tokenizers[side].encode_lines(lines)
            flat = _finished(flat, lengths, self.tokenizers[side], self.recipe)
        else:
            lines = [line.lower() for line in lines] if self.recipe.lower else lines
            rows: Any = [line.split() for line in lines] if self.recipe.tokenizer == "words" else lines
            lengths = np.fromiter(map(len, rows), np.int64, len(lines))
            symbols = Symbols()
            flat = symbols.encode(rows, int(lengths.sum()))
        part = Part(number, side, source, len(lengths), len(flat), piece.size)
        lengths.tofile(part.path(self.folder, ".len"))
        flat.tofile(part.path(self.folder, ".ids"))
        return part, symbols


class Settler:
    """Exchanges the numbers of parts for the ids of vocabularies: `tables` has the id of each symbol of a side.

    Which of these symbols those of a part are stands in its `.sym`.
    """

    def __init__(
        self, recipe: Recipe, folder: Path, tokenizers: Mapping[str, Tokenizer], tables: Mapping[str, np.ndarray]
    ) -> None:
        self.recipe, self.folder, self.tokenizers, self.tables = recipe, folder, tokenizers, tables

    def __call__(self, part: Part) -> None:
        path = part.path(self.folder, ".ids")
        table = self.tables[part.side].take(np.fromfile(part.path(self.folder, ".sym"), NUMBER))
        flat = table.take(np.fromfile(path, NUMBER))
        _finished(flat, part.lengths(self.folder), self.tokenizers[part.side], self.recipe).tofile(path)


def _finished(flat: np.ndarray, lengths: np.ndarray, tokenizer: Tokenizer, recipe: Recipe) -> np.ndarray:
    """Ids as they stand in the corpus: in the smallest type, each sentence with its end."""
    ids = flat.astype(smallest(tokenizer.size), copy=False)
    return np.insert(ids, lengths.cumsum(), tokenizer.eos) if recipe.eos and tokenizer.eos is not None else ids


# -- several processes


def spread(work: Callable[[T], R], tasks: Iterable[T], workers: int) -> Iterator[R]:
    """`work(task)` of all tasks as they get done, by `workers` processes; a task is taken when one can begin with it.

    The processes are forked, so they start in no time and need no copy of `work`.
    """
    if workers == 1:
        yield from map(work, tasks)
        return
    context, begin = multiprocessing.get_context("fork"), (work,)
    try:
        with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=begin) as pool:
            running: set[Future[R]] = set()
            for task in tasks:
                running.add(pool.submit(_work, task))
                if len(running) > workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in running)
    except BrokenProcessPool:
        hint = "it was killed, perhaps for want of memory: try fewer --workers"
        raise AlchemyError("a process that encodes is gone", hint=hint) from None


_own: Callable[[Any], Any]  # the work of this process


def _begin(work: Callable[[Any], Any]) -> None:
    global _own
    _own = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who is asked ends all of them
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each: threads of their own would only get in the way
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(task: Any) -> Any:
    return _own(task)
