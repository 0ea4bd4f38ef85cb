"""Base class and helpers for processors: read rows, convert them to samples, track file and line."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from alchemy.data.files import expand
from alchemy.data.messages import in_short
from alchemy.data.tables import BadRow, Rows
from alchemy.errors import AlchemyError
from alchemy.pipeline.openers import good_rows

Sample = dict[str, Any]


class FromFiles:
    """Processor mixin that reads samples from files and tracks their lines; list it before LstDataPipeline."""

    begins: ClassVar[bool] = True
    samples: list[Sample]
    gives: Mapping[str, str] | None

    def fill(self, path: str | Path | list[str], read: Callable[[Path], Rows], bad: str) -> None:
        """Read the samples of all files and declare their fields."""
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
        self.samples, self.gives = check_samples(self, samples, files), fields_of(samples[0])
        # compact, since there may be millions of lines
        self._files, self._ends, self._lines = list(map(str, files)), ends, np.array(lines, np.uint32)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    def where(self, index: int) -> str:
        """Return the file and line of a sample."""
        index = range(len(self))[index]
        return f"{self._files[bisect(self._ends, index)]}:{self._lines[index]}"


def check_samples(pipe: object, samples: list[Sample], files: Iterable[object]) -> list[Sample]:
    """Return the samples; raise an error before training starts if there are none."""
    if not samples:
        named = ", ".join(map(str, files)) or "an empty list of files"
        raise AlchemyError(f"{type(pipe).__name__} found no samples in {named}", hint="is the file empty?")
    return samples


def fields_of(sample: Mapping[str, object]) -> dict[str, str]:
    """Return the fields of a sample and their types, in the format of a pipe's `gives`."""
    return {name: type(value).__name__ for name, value in sample.items()}


def _check_alike(first: Sample, sample: Sample, where: str) -> None:
    """Raise if a file has different fields than the first file, for example no labels."""
    if sample.keys() != first.keys():
        more, fewer = sorted(sample.keys() - first.keys()), sorted(first.keys() - sample.keys())
        text = (
            f"fields differ from the first file: extra {in_short(more) or 'none'}, missing {in_short(fewer) or 'none'}"
        )
        raise AlchemyError(text, where=where, hint="read files with different fields in separate pipes")


def convert_rows(rows: Rows, convert: Callable[[Any], Sample]) -> Iterator[tuple[int, Any]]:
    """Convert rows to samples; if `convert` raises a BadRow, yield it in place of the row."""
    for line, row in rows:
        try:
            yield line, row if isinstance(row, BadRow) else convert(row)
        except BadRow as error:
            yield line + error.below, error
