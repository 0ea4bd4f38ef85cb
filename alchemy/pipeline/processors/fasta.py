"""Sequences of amino acids or bases, with a number in their headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from alchemy.constraints import NotEmpty, Sign
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.openers import BadRow
from alchemy.pipeline.processors.labels import number_of
from alchemy.pipeline.processors.samples import Rows, count_of, fill, lines_of, sample_of, where_of

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


@DataPipeline.register()
class Fasta(LstDataPipeline):
    """FASTA files: a header `>index|mutation|effect`, and the lines of a sequence below it.

    A sample has the parts of its header as `header`, the `sequence` in capitals, and with `target` (-1: the last part)
    that number as `label`. A letter that is not in `alphabet` makes the row bad, or becomes `unknown`.
    """

    begins = True
    __getitem__, __len__, where = sample_of, count_of, where_of

    def __init__(
        self,
        path: str | list[str],
        *,
        target: int | None = None,
        separator: Annotated[str, NotEmpty()] = "|",
        alphabet: str = AMINO_ACIDS,
        unknown: Sign = "",
        encoding: str = "utf-8",
        bad: Literal["error", "skip"] = "error",
    ) -> None:
        super().__init__()
        self.path, self.target, self.separator, self.encoding = path, target, separator, encoding
        self.alphabet, self.unknown = alphabet.upper(), unknown  # as the sequences, which come in capitals
        self.letters = set(self.alphabet + unknown)
        fill(self, path, self._read, bad)

    def _read(self, path: Path) -> Rows:
        for number, header, lines in entries(lines_of(path, self.encoding)):
            try:
                yield number, self._sample(header, lines)
            except BadRow as error:
                yield number + getattr(error, "below", 0), error

    def _sample(self, header: str, lines: list[str]) -> dict[str, Any]:
        if not header.startswith(">"):
            raise BadRow(f"{header[:20]!r} stands before the first header, expected a line with > in front")
        parts = header[1:].strip().split(self.separator)
        sequence = self._checked("".join("".join(lines).split()).upper(), lines)
        sample: dict[str, Any] = {"header": parts, "sequence": sequence}
        return sample if self.target is None else sample | {"label": self._number(parts, self.target)}

    def _number(self, parts: list[str], target: int) -> float:
        try:
            return number_of(parts[target])
        except IndexError as error:
            raise BadRow(f"the header has {len(parts)} parts, expected a number in part {target}") from error

    def _checked(self, sequence: str, lines: list[str]) -> str:
        if not sequence:
            raise BadRow("the sequence is empty")
        strange = sorted(set(sequence) - self.letters)
        if strange and not self.unknown:
            below = next(n for n, line in enumerate(lines, 1) if set(strange) & set(line.upper()))
            letter = next(letter for letter in lines[below - 1].upper() if letter in strange)
            raise BadLetter(below, f"{letter!r} is not in the alphabet {self.alphabet}; unknown = 'X' would replace it")
        return sequence.translate({ord(letter): self.unknown for letter in strange})


class BadLetter(BadRow):
    """A letter that no alphabet has, so many lines below its header."""

    def __init__(self, below: int, text: str) -> None:
        super().__init__(text)
        self.below = below


def entries(lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """`(line, header, lines of the sequence)` of each entry; empty lines, and remarks, count as lines of a sequence."""
    lines = ["" if line.startswith(";") else line for line in lines]
    start = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    for place in range(start + 1, len(lines) + 1):
        if place == len(lines) or lines[place].startswith(">"):
            yield start + 1, lines[start], [line.strip() for line in lines[start + 1 : place]]
            start = place
