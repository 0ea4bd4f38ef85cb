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
from alchemy.data.corpus.text_sources import Piece, source_of
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


class EncodedPart(NamedTuple):
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


def encode_piece(
    recipe: Recipe, folder: Path, tokenizers: Mapping[str, Tokenizer], task: Task
) -> tuple[EncodedPart, Symbols | None]:
    """Reads a piece and writes the ids and lengths of its sentences; without tokenizers, the numbers of its symbols."""
    number, side, source, piece = task
    lines = source_of(piece.path, recipe.field, strict=len(recipe.sides) > 1).read(piece)
    symbols = None
    if tokenizers:
        flat, lengths = tokenizers[side].encode_lines(lines)
        flat = _finished(flat, lengths, tokenizers[side], recipe)
    else:
        lines = [line.lower() for line in lines] if recipe.lower else lines
        rows: list[Any] = [line.split() for line in lines] if recipe.tokenizer == "words" else lines
        lengths = np.fromiter(map(len, rows), np.int64, len(lines))
        symbols = Symbols()
        flat = symbols.encode(rows, int(lengths.sum()))
    part = EncodedPart(number, side, source, len(lengths), len(flat), piece.size)
    lengths.tofile(part.path(folder, ".len"))
    flat.tofile(part.path(folder, ".ids"))
    return part, symbols


def settle_part(
    recipe: Recipe,
    folder: Path,
    tokenizers: Mapping[str, Tokenizer],
    tables: Mapping[str, np.ndarray],
    part: EncodedPart,
) -> None:
    """Exchanges the numbers of a part for ids: `tables` has that of each symbol of a side, `.sym` those of the part."""
    path = part.path(folder, ".ids")
    table = tables[part.side].take(np.fromfile(part.path(folder, ".sym"), NUMBER))
    flat = table.take(np.fromfile(path, NUMBER))
    _finished(flat, part.lengths(folder), tokenizers[part.side], recipe).tofile(path)


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
