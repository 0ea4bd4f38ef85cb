"""Processor for FASTA files of protein or nucleotide sequences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from alchemy.constraints import NotEmpty, Sign
from alchemy.data.files import lines_of
from alchemy.data.tables import BadRow, OnBad, Rows
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.labels import target_of
from alchemy.pipeline.processors.samples import FromFiles, convert_rows

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


@DataPipeline.register()
class Fasta(FromFiles, LstDataPipeline):
    """Reads FASTA files: a header such as `>index|mutation|effect`, followed by the lines of a sequence.

    A sample has the parts of its header as `header` and the `sequence` in upper case. With `target`, the index of a
    header part (-1: the last), the number in that part is the `label`. A letter outside `alphabet` makes the row bad,
    or is replaced with `unknown` if that is set.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        target: int | None = None,
        separator: Annotated[str, NotEmpty()] = "|",
        alphabet: str = AMINO_ACIDS,
        unknown: Sign = "",
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        self.path, self.target, self.separator, self.encoding = path, target, separator, encoding
        self.alphabet, self.unknown = alphabet.upper(), unknown  # sequences are converted to upper case too
        self.letters = set(self.alphabet + unknown)
        self.fill(path, self._read, bad)

    def _read(self, path: Path) -> Rows:
        return convert_rows(_entries(lines_of(path, self.encoding)), self._sample)

    def _sample(self, entry: list[str]) -> dict[str, Any]:
        header, *lines = entry
        if not header.startswith(">"):
            raise BadRow(f"{header[:20]!r} comes before the first header, expected a line that starts with >")
        parts = header[1:].strip().split(self.separator)
        sequence = self._check_sequence("".join("".join(lines).split()).upper(), lines)
        sample: dict[str, Any] = {"header": parts, "sequence": sequence}
        return sample if self.target is None else sample | {"label": self._number(parts, self.target)}

    def _number(self, parts: list[str], target: int) -> float:
        try:
            return target_of(parts[target])
        except IndexError as error:
            raise BadRow(f"the header has {len(parts)} parts, expected a number in part {target}") from error

    def _check_sequence(self, sequence: str, lines: list[str]) -> str:
        if not sequence:
            raise BadRow("the sequence is empty")
        strange = sorted(set(sequence) - self.letters)
        if strange and not self.unknown:
            below = next(n for n, line in enumerate(lines, 1) if set(strange) & set(line.upper()))
            letter = next(letter for letter in lines[below - 1].upper() if letter in strange)
            raise BadRow(
                f"{letter!r} is not in the alphabet {self.alphabet}; set unknown = 'X' to replace it", below=below
            )
        return sequence.translate({ord(letter): self.unknown for letter in strange})


def _entries(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the lines of each entry, header first; comments become empty lines."""
    lines = ["" if line.startswith(";") else line for line in lines]
    start = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    for place in range(start + 1, len(lines) + 1):
        if place == len(lines) or lines[place].startswith(">"):
            yield start + 1, [lines[start], *map(str.strip, lines[start + 1 : place])]
            start = place
