"""What the processors share: rows tried one by one, and the list of samples that comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from alchemy.data.files import expand, open_text, readable
from alchemy.errors import AlchemyError
from alchemy.pipeline.openers import BadRow, check_bad, good

Rows = Iterable[tuple[int, Any]]  # each with its line; a BadRow stands for one that is not well formed


def sample_of(self: Any, index: int) -> Any:
    """The `__getitem__` of a pipe that holds its samples."""
    return self.samples[index]


def count_of(self: Any) -> int:
    """The `__len__` of a pipe that holds its samples."""
    return len(self.samples)


def fill(pipe: Any, path: Any, read: Callable[[Path], Rows], bad: str) -> None:
    """Reads the samples of a pipe from its files, and declares the fields that they have."""
    check_bad(bad)
    files = expand(path)
    hold(pipe, [sample for file in files for sample in good(file, read(file), bad)], files)


def hold(pipe: Any, samples: list[Any], files: Iterable[Any]) -> None:
    """Gives a pipe its samples; a pipe without any is an error here, not in the middle of a training."""
    if not samples:
        named = ", ".join(map(str, files))
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


def in_short(names: Iterable[str], most: int = 12) -> str:
    """`a, b, c`, cut where a message would get too long."""
    names = list(names)
    return ", ".join(names[:most]) + (f", .. ({len(names)} in all)" if len(names) > most else "")
