"""Encode pieces of text in parallel; each piece becomes a part, stored in files that are joined later."""

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

from alchemy.data.corpus.layout import smallest_dtype
from alchemy.data.corpus.recipe import Recipe
from alchemy.data.corpus.text_sources import Piece, get_reader
from alchemy.errors import AlchemyError
from alchemy.text.base import Tokenizer

T = TypeVar("T")
R = TypeVar("R")
NUMBER = np.dtype(np.uint32)  # provisional ids of symbols, before the vocabulary is known


class Task(NamedTuple):
    """A piece to encode."""

    number: int  # used to name the part's files
    side: str
    source: int  # index of the file within the side
    piece: Piece


class EncodedPart(NamedTuple):
    """The encoded form of a piece."""

    number: int
    side: str
    source: int
    sentences: int
    tokens: int
    size: int  # size of the text in bytes

    def path(self, folder: Path, suffix: str) -> Path:
        return folder / f"{self.number:08}{suffix}"

    def lengths(self, folder: Path) -> np.ndarray:
        """Return the sentence lengths, not counting end-of-sentence tokens."""
        return np.fromfile(self.path(folder, ".len"), np.int64)


class _Growing(dict[str, int]):
    """A mapping from symbols to provisional ids; a new symbol gets the next id."""

    def __missing__(self, symbol: str) -> int:
        self[symbol] = number = len(self)
        return number


class Symbols:
    """The symbols of a text in order of first occurrence, and how often each occurs."""

    def __init__(self) -> None:
        self.numbers = _Growing()
        self.counts = np.zeros(0, np.int64)

    def encode(self, rows: Iterable[Iterable[str]], total: int) -> np.ndarray:
        """Count the symbols in `rows` and return their provisional ids."""
        flat = np.fromiter(map(self.numbers.__getitem__, chain.from_iterable(rows)), NUMBER, total)
        self._add(np.bincount(flat, minlength=len(self.numbers)))
        return flat

    def learn(self, others: Symbols) -> np.ndarray:
        """Add the counts of `others`, and return the ids that their symbols have in `self`."""
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
    """Write the ids and lengths of a piece's sentences; without tokenizers, write provisional symbol ids."""
    number, side, source, piece = task
    lines = get_reader(piece.path, recipe.field, strict=len(recipe.sides) > 1).read(piece)
    symbols = None
    if tokenizers:
        flat, lengths = tokenizers[side].encode_lines(lines)
        flat = _finalize(flat, lengths, tokenizers[side], recipe)
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


def finalize_part(
    recipe: Recipe,
    folder: Path,
    tokenizers: Mapping[str, Tokenizer],
    tables: Mapping[str, np.ndarray],
    part: EncodedPart,
) -> None:
    """Replace the provisional ids of a part with vocabulary ids.

    `tables` contains the symbol ids of each side; the `.sym` file lists the symbols of the part.
    """
    path = part.path(folder, ".ids")
    table = tables[part.side].take(np.fromfile(part.path(folder, ".sym"), NUMBER))
    flat = table.take(np.fromfile(path, NUMBER))
    _finalize(flat, part.lengths(folder), tokenizers[part.side], recipe).tofile(path)


def _finalize(flat: np.ndarray, lengths: np.ndarray, tokenizer: Tokenizer, recipe: Recipe) -> np.ndarray:
    """Convert ids to the smallest dtype and append the end-of-sentence token to each sentence."""
    ids = flat.astype(smallest_dtype(tokenizer.size), copy=False)
    return np.insert(ids, lengths.cumsum(), tokenizer.eos) if recipe.eos and tokenizer.eos is not None else ids


# -- several processes


def run_parallel(work: Callable[[T], R], tasks: Iterable[T], workers: int) -> Iterator[R]:
    """Yield `work(task)` for all tasks as they finish, computed by `workers` processes; tasks are consumed lazily.

    The processes are forked, so they start quickly and need not pickle `work`.
    """
    if workers == 1:
        yield from map(work, tasks)
        return
    context, begin = multiprocessing.get_context("fork"), (work,)
    try:
        with ProcessPoolExecutor(workers, context, initializer=_init_worker, initargs=begin) as pool:
            running: set[Future[R]] = set()
            for task in tasks:
                running.add(pool.submit(_work, task))
                if len(running) > workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in running)
    except BrokenProcessPool:
        hint = "it may have been killed because the machine ran out of memory; try fewer --workers"
        raise AlchemyError("an encoding process died unexpectedly", hint=hint) from None


_own: Callable[[Any], Any]  # the `work` of this process


def _init_worker(work: Callable[[Any], Any]) -> None:
    global _own
    _own = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C for all processes
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each process has one core; more threads would only compete for it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(task: Any) -> Any:
    return _own(task)
