"""What the processors share: rows tried one by one, and the list of samples that comes of them."""

from __future__ import annotations

import reprlib
import unicodedata
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.data.files import expand, open_text, readable
from alchemy.errors import AlchemyError
from alchemy.pipeline.openers import BadRow, good

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxlong = _repr.maxother = 80
Rows = Iterable[tuple[int, Any]]  # each with its line; a BadRow stands for one that is not well formed


def sample_of(self: Any, index: int) -> Any:
    """The `__getitem__` of a pipe that holds its samples."""
    return self.samples[index]


def count_of(self: Any) -> int:
    """The `__len__` of a pipe that holds its samples."""
    return len(self.samples)


def where_of(self: Any, index: int) -> str:
    """The `where` of a pipe that holds its samples: file and line of one."""
    return self.origin.of(index)


class _Origin:
    """The file and the line of each sample: numbers only, as there may be millions."""

    def __init__(self, files: Sequence[Any], lines: Sequence[Sequence[int]]) -> None:
        self.files = [str(file) for file in files]
        self.ends = list(accumulate(map(len, lines)))
        self.lines = np.array([line for each in lines for line in each], np.uint32)

    def of(self, index: int) -> str:
        index = range(len(self.lines))[index]
        return f"{self.files[bisect(self.ends, index)]}:{self.lines[index]}"


def fill(pipe: Any, path: Any, read: Callable[[Path], Rows], bad: str) -> None:
    """Reads the samples of a pipe from its files, and declares the fields that they have."""
    take(pipe, expand(path), read, bad)


def take(pipe: Any, files: Sequence[Path], read: Callable[[Path], Rows], bad: str) -> None:
    """As `fill`, for files that are known: one after the other."""
    samples: list[Any] = []
    lines: list[list[int]] = []
    for file in files:
        lines.append([])
        for line, sample in good(file, _numbered(read(file)), bad):
            lines[-1].append(line)
            samples.append(sample)
        _check_alike(samples, file, lines[-1])
    hold(pipe, samples, files)
    pipe.origin = _Origin(files, lines)


def _check_alike(samples: list[Any], file: Path, lines: list[int]) -> None:
    """The samples of a file have the fields that those of the files before have, as labels."""
    own, others = set(samples[-len(lines)] if lines else ()), set(samples[0] if samples else ())
    if lines and own != others:
        more, fewer = ", ".join(sorted(own - others)) or "nothing", ", ".join(sorted(others - own)) or "nothing"
        hint = "read files of different kinds with pipes of their own"
        raise AlchemyError(
            f"unlike the first file it has {more} and lacks {fewer}", where=f"{file}:{lines[0]}", hint=hint
        )


def _numbered(rows: Rows) -> Rows:
    return ((line, row if isinstance(row, BadRow) else (line, row)) for line, row in rows)


def hold(pipe: Any, samples: list[Any], files: Iterable[Any]) -> None:
    """Gives a pipe its samples; a pipe without any is an error here, not in the middle of a training."""
    if not samples:
        named = ", ".join(map(str, files)) or "an empty list of files"
        raise AlchemyError(f"{type(pipe).__name__} finds no samples in {named}", hint="is the file empty?")
    pipe.samples = samples
    declare(pipe, samples[0])


def declare(pipe: Any, sample: dict[str, Any]) -> None:
    """Lets a pipe say what it gives: which fields there are depends on its file."""
    pipe.gives = {name: type(value).__name__ for name, value in sample.items()}


def tried(rows: Rows, convert: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
    """Rows turned into samples; a BadRow that is raised on the way stands in the place of its row."""
    for line, row in rows:
        try:
            yield line, row if isinstance(row, BadRow) else convert(row)
        except BadRow as error:
            yield line, error


def lines_of(path: Path, encoding: str) -> list[str]:
    """All lines of a file at once, many times faster than one by one; the text after the last line end counts.

    A carriage return ends no line by itself: where one is inside a text, the lines of two sides would part company.
    """
    with readable(path, 1, encoding), open_text(path, encoding=encoding, newline="\n") as file:
        lines = file.read().replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def is_blank(text: str) -> bool:
    """Whether there is nothing to see in a text: blanks alone, or signs without width, as a byte order mark is.

    >>> is_blank(" \\u200b\\ufeff"), is_blank("a")
    (True, False)
    """
    return all(sign.isspace() or unicodedata.category(sign) in ("Cf", "Cc") for sign in text)


def shown(value: Any) -> str:
    """A cell in a message, cut in the middle: it may be a whole book that stands in the wrong column."""
    return _repr.repr(value)


def in_short(names: Iterable[str], most: int = 12) -> str:
    """`a, b, c`, cut where a message would get too long."""
    names = list(names)
    return ", ".join(names[:most]) + (f", .. ({len(names)} in all)" if len(names) > most else "")
