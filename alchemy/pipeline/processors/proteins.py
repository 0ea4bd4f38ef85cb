"""Processor for proteins in FASTA files and tables: sequences with a label, a number, or one tag per residue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from alchemy.constraints import NotEmpty, Sign
from alchemy.data.files import ending_of, lines_of
from alchemy.data.messages import shorten
from alchemy.data.tables import BadRow, FormatName, OnBad, OpenTable, Rows, TableFormat, open_table
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before
from alchemy.pipeline.processors.classification import label_fields
from alchemy.pipeline.processors.fasta import fasta_entries, header_of, read_sequence
from alchemy.pipeline.processors.labels import keep_labels, read_labels, target_of
from alchemy.pipeline.processors.samples import FromFiles, convert_rows
from alchemy.text.residues import AMINO_ACIDS

FASTA = (".fasta", ".fa", ".faa", ".fas")
_SUBSTITUTION = re.compile(r"([A-Za-z])(\d+)([A-Za-z*=])$")

Cell = Callable[[Any], Any]


@DataPipeline.register()
class Proteins(FromFiles, LstDataPipeline):
    """Reads proteins from FASTA files (`.fasta`, `.fa`, `.faa`, `.fas`) or from csv, tsv and jsonl tables.

    A sample has the sequence as `text`, its `id`, and a `label` as in TextClassification. With `tags`, a column with
    one letter per residue, or with `per_residue`, it has the residues as `tokens` instead of `text`. `spaced` puts a
    space between the residues of `text`, as the tokenizers of pretrained protein models expect. Columns are names or
    indices; in a FASTA file, they are the parts of the header, which `separator` divides (`-1`: the last).
    `mutation` is the column of a substitution such as `H24C`; it adds `mutation` and `position`, by which `HoldOut`
    can split. A letter outside `alphabet` makes the row bad, or is replaced with `unknown` if that is set. An
    `id` that occurs twice in a file makes the second row bad.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        sequence: str | int = "sequence",
        id: str | int | None = None,
        label: str | int | None = None,
        labels: list[str] | str | None = None,
        kind: Literal["single", "regression"] = "single",
        tags: str | int = "",
        per_residue: bool = False,
        spaced: bool = False,
        mutation: str | int = "",
        separator: Annotated[str, NotEmpty()] = "|",
        alphabet: str = AMINO_ACIDS,
        unknown: Sign = "",
        format: FormatName = "",
        delimiter: Sign = "",
        header: bool = True,
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        self.path, self.sequence, self.id, self.label, self.kind = path, sequence, id, label, kind
        self.tags, self.per_residue, self.mutation = tags, per_residue or tags != "", mutation
        self.separator, self.spaced, self.alphabet, self.unknown = separator, spaced, alphabet.upper(), unknown
        self.known = read_labels(labels)
        self.labels = self.known.names
        self.layout = TableFormat(format, delimiter, None, header, encoding)
        self.fill(path, self._read, bad)
        keep_labels(self.labels, "label_id")

    @classmethod
    def read_inputs(cls, table: Mapping[str, Any], questions: Any, *, section: str) -> Any:
        options = {key: table[key] for key in ("alphabet", "unknown", "spaced") if key in table}
        return _Questions(questions, section, **options)

    def _read(self, path: Path) -> Rows:
        is_fasta = ending_of(path) in FASTA and not self.layout.format
        table = open_fasta(path, self.separator, self.layout.encoding) if is_fasta else open_table(path, self.layout)
        parts = [self._id_fields(table), self._sequence_fields(table)]
        if self.tags == "":
            parts.append(label_fields(table, "" if self.per_residue else self.label, self._parse_label))
        if self.mutation != "":
            parts.append(_mutation_fields(table.cell(self.mutation)))
        samples = convert_rows(
            table.rows, lambda row: {key: value for part in parts for key, value in part(row).items()}
        )
        return _check_ids(samples)

    def _id_fields(self, table: OpenTable) -> Cell:
        if self.id is None and not table.has("id"):
            return lambda row: {}
        cell = table.cell("id" if self.id is None else self.id)
        return lambda row: {"id": str(cell(row))}

    def _sequence_fields(self, table: OpenTable) -> Cell:
        sequence = table.cell("sequence" if isinstance(table, _Fasta) else self.sequence)
        tags = None if self.tags == "" else table.cell(self.tags)

        def fields(row: object) -> dict[str, Any]:
            lines = sequence(row)
            if not isinstance(lines, str | list):
                raise BadRow(f"the sequence is {shorten(lines)}, expected a string")
            letters = read_sequence([lines] if isinstance(lines, str) else lines, self.alphabet, self.unknown)
            if not self.per_residue:
                return {"text": _space(letters, self.spaced)}
            found: dict[str, Any] = {"tokens": list(letters)}
            return found if tags is None else found | {"tags": _read_tags(tags(row), len(letters))}

        return fields

    def _parse_label(self, cell: object) -> dict[str, Any]:
        return {"label": target_of(cell)} if self.kind == "regression" else self.known.single(cell)


class _Questions(LstDataPipeline):
    """Prediction inputs whose sequences are checked and converted like those of a file."""

    where = where_before

    def __init__(
        self, datapipe: object, section: str, *, alphabet: str = AMINO_ACIDS, unknown: str = "", spaced: bool = False
    ) -> None:
        super().__init__(datapipe)
        self.section, self.alphabet, self.unknown, self.spaced = section, alphabet.upper(), unknown, spaced

    def __len__(self) -> int:
        return len(self.datapipe)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = dict(self.datapipe[index])
        try:
            if "text" in sample:
                sample["text"] = _space(read_sequence([sample["text"]], self.alphabet, self.unknown), self.spaced)
            if "tokens" in sample:
                sample["tokens"] = list(read_sequence(sample["tokens"], self.alphabet, self.unknown))
        except BadRow as error:
            raise AlchemyError(str(error), where=self.where(index), section=self.section) from error
        return sample


def _space(letters: str, spaced: bool) -> str:
    return " ".join(letters) if spaced else letters


def _check_ids(samples: Rows) -> Iterator[tuple[int, Any]]:
    """Replace samples whose id occurs earlier in the file with a BadRow."""
    first: dict[str, int] = {}
    for line, sample in samples:
        name = str(sample["id"]) if isinstance(sample, dict) and "id" in sample else ""
        twice = name and first.setdefault(name, line) != line
        yield line, BadRow(f"duplicate id {shorten(name)}, first on line {first[name]}") if twice else sample


def _read_tags(cell: object, count: int) -> list[str]:
    tags = list(cell.strip()) if isinstance(cell, str) else []
    if len(tags) != count:
        raise BadRow(f"the sequence has {count} residues, but there are {len(tags)} tags: expected one per residue")
    return tags


def _mutation_fields(cell: Cell) -> Cell:
    def fields(row: object) -> dict[str, Any]:
        found = _SUBSTITUTION.search(str(value := cell(row)).strip())
        if found is None:
            raise BadRow(f"the mutation is {shorten(value)}, expected a substitution such as H24C")
        return {"mutation": found[0], "position": int(found[2])}

    return fields


class _Fasta(OpenTable):
    """The entries of a FASTA file as rows `(header, parts of the header, lines)`."""

    def has(self, column: str | int) -> bool:
        return isinstance(column, int) or column in ("id", "sequence")

    def cell(self, column: str | int) -> Cell:
        if not self.has(column):
            hint = "use the index of a part of the header: 0 is the first and -1 the last"
            raise AlchemyError(f"a FASTA file has no column {column!r}", where=f"{self.path}:1", hint=hint)
        if isinstance(column, str):
            return lambda row: row[0].split()[0] if column == "id" and row[0] else row[0 if column == "id" else 2]
        return lambda row: _part_of(row[1], column)


def open_fasta(path: Path, separator: str, encoding: str) -> OpenTable:
    """Open a FASTA file as a table with the columns `id`, the first word of the header, and `sequence`."""

    def rows() -> Iterator[tuple[int, Any]]:
        for line, entry in fasta_entries(lines_of(path, encoding)):
            try:
                header = header_of(entry)
                yield line, (header, header.split(separator), ["", *entry[1:]])
            except BadRow as error:
                yield line, error

    return _Fasta(path, rows())


def _part_of(parts: list[str], column: int) -> str:
    try:
        return parts[column].strip()
    except IndexError as error:
        raise BadRow(f"the header has {len(parts)} parts, expected a part {column}") from error
