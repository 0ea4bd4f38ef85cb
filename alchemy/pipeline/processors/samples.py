"""What the processors share: rows tried one by one, and the list of samples that comes of them."""

from __future__ import annotations

import reprlib
import unicodedata
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from alchemy.data.files import expand, open_text, readable
from alchemy.errors import AlchemyError
from alchemy.pipeline.openers import BadRow, Rows, good_rows

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxlong = _repr.maxother = 80
Sample = dict[str, Any]


class FromFiles:
    """The samples of files, and file and line of each; stands before LstDataPipeline among the bases of a processor."""

    begins: ClassVar[bool] = True
    samples: list[Sample]
    gives: Mapping[str, str] | None

    def fill(self, path: str | Path | list[str], read: Callable[[Path], Rows], bad: str) -> None:
        """Reads the samples of the files one after the other, and declares the fields that they have."""
        files, ends = expand(path), []
        samples: list[Sample] = []
        lines: list[int] = []
        for file in files:
            begin = len(samples)
            for line, sample in good_rows(file, read(file), bad):
                samples.append(sample)
                lines.append(line)
            ends.append(len(samples))
            if begin < len(samples):
                _check_alike(samples[0], samples[begin], f"{file}:{lines[begin]}")
        self.samples, self.gives = checked_samples(self, samples, files), fields_of(samples[0])
        # numbers only, as there may be millions
        self._files, self._ends, self._lines = list(map(str, files)), ends, np.array(lines, np.uint32)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    def where(self, index: int) -> str:
        """The file and the line of a sample."""
        index = range(len(self))[index]
        return f"{self._files[bisect(self._ends, index)]}:{self._lines[index]}"


def checked_samples(pipe: object, samples: list[Sample], files: Iterable[object]) -> list[Sample]:
    """The samples; a pipe without any is an error here, not in the middle of a training."""
    if not samples:
        named = ", ".join(map(str, files)) or "an empty list of files"
        raise AlchemyError(f"{type(pipe).__name__} finds no samples in {named}", hint="is the file empty?")
    return samples


def fields_of(sample: Mapping[str, object]) -> dict[str, str]:
    """What a pipe gives: which fields there are depends on its file."""
    return {name: type(value).__name__ for name, value in sample.items()}


def _check_alike(first: Sample, sample: Sample, where: str) -> None:
    """The samples of a file have the fields that those of the files before have, as labels."""
    if sample.keys() != first.keys():
        more, fewer = sorted(sample.keys() - first.keys()), sorted(first.keys() - sample.keys())
        text = f"unlike the first file it has {in_short(more) or 'nothing'} and lacks {in_short(fewer) or 'nothing'}"
        raise AlchemyError(text, where=where, hint="read files of different kinds with pipes of their own")


def tried(rows: Rows, convert: Callable[[Any], Sample]) -> Iterator[tuple[int, Any]]:
    """Rows turned into samples; a BadRow that is raised on the way stands in the place of its row."""
    for line, row in rows:
        try:
            yield line, row if isinstance(row, BadRow) else convert(row)
        except BadRow as error:
            yield line + error.below, error


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


def shorten(value: object) -> str:
    """A cell in a message, cut in the middle: it may be a whole book that stands in the wrong column."""
    return _repr.repr(value)


def in_short(names: Iterable[str], most: int = 12) -> str:
    """`a, b, c`, cut where a message would get too long."""
    names = list(names)
    return ", ".join(names[:most]) + (f", .. ({len(names)} in all)" if len(names) > most else "")
