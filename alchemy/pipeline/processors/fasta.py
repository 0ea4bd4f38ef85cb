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
from alchemy.text.residues import AMINO_ACIDS


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
        self.fill(path, self._read, bad)

    def _read(self, path: Path) -> Rows:
        return convert_rows(fasta_entries(lines_of(path, self.encoding)), self._sample)

    def _sample(self, entry: list[str]) -> dict[str, Any]:
        parts = header_of(entry).split(self.separator)
        sequence = read_sequence(["", *entry[1:]], self.alphabet, self.unknown)
        sample: dict[str, Any] = {"header": parts, "sequence": sequence}
        return sample if self.target is None else sample | {"label": self._number(parts, self.target)}

    def _number(self, parts: list[str], target: int) -> float:
        try:
            return target_of(parts[target])
        except IndexError as error:
            raise BadRow(f"the header has {len(parts)} parts, expected a number in part {target}") from error


def header_of(entry: list[str]) -> str:
    """Return the header of an entry without its `>`."""
    if not entry[0].startswith(">"):
        raise BadRow(f"{entry[0][:20]!r} comes before the first header, expected a line that starts with >")
    return entry[0][1:].strip()


def read_sequence(lines: list[str], alphabet: str, unknown: str) -> str:
    """Join the lines of a sequence in upper case; a letter outside `alphabet` is replaced, or makes the row bad."""
    sequence = "".join("".join(lines).split()).upper()
    if not sequence:
        raise BadRow("the sequence is empty")
    strange = sorted(set(sequence) - set(alphabet + unknown))
    if strange and not unknown:
        below = next(n for n, line in enumerate(lines) if set(strange) & set(line.upper()))
        letter = next(letter for letter in lines[below].upper() if letter in strange)
        raise BadRow(f"{letter!r} is not in the alphabet {alphabet}; set unknown = 'X' to replace it", below=below)
    return sequence.translate({ord(letter): unknown for letter in strange})


def fasta_entries(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the lines of each entry, header first; comments become empty lines."""
    lines = ["" if line.startswith(";") else line for line in lines]
    start = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    for place in range(start + 1, len(lines) + 1):
        if place == len(lines) or lines[place].startswith(">"):
            yield start + 1, [lines[start], *map(str.strip, lines[start + 1 : place])]
            start = place
