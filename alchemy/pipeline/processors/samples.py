"""What the processors share: rows tried one by one, and the list of samples that comes of them."""

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


def convert_rows(rows: Rows, convert: Callable[[Any], Sample]) -> Iterator[tuple[int, Any]]:
    """Rows turned into samples; a BadRow that is raised on the way stands in the place of its row."""
    for line, row in rows:
        try:
            yield line, row if isinstance(row, BadRow) else convert(row)
        except BadRow as error:
            yield line + error.below, error
