"""How a table is written: format, delimiter, quotes, header."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from alchemy.data.files import ending_of, read_lines
from alchemy.data.sniff.encoding import detect_encoding, read_head
from alchemy.data.sniff.names import KNOWN, normalize
from alchemy.data.tables import FORMATS, BadRow, FormatName, TableFormat, csv_rows, open_table
from alchemy.errors import AlchemyError

MOST_ROWS = 100_000  # that are looked at
TRIED_ROWS = 1_000  # by which the delimiter is found
DELIMITERS = ("\t", ",", ";", "|")
QUOTED = re.compile(
    r'(?:^|\t)"(?:[^"\t]|"")*""(?:[^"\t]|"")*"(?:\t|$)'
)  # a cell between tabs with quotes that are doubled
LONGEST_LINE = 2**22  # bytes: a longer one is a file without rows, or one that was packed to fill the memory
EXPECTED = "expected csv, tsv, jsonl, or lines of a label, a blank and a text"
SPOILT = 0.05  # share of rows that may be bad: a text that has the delimiter in it, a cell that was cut


@dataclass(frozen=True)
class SniffedTable:
    """The rows of a file, how they are written, and what is wrong with some of them."""

    path: Path
    layout: TableFormat
    names: list[str]  # of the columns; their numbers as text where there is no header
    rows: list[list[Any]]
    whole: bool  # whether these are all rows
    bad: list[tuple[int, str]] = field(default_factory=list)  # line, and what is wrong
    keyed: bool = False

    def column(self, place: int) -> list[Any]:
        return [row[place] for row in self.rows]

    def key(self, place: int) -> str | int:
        """How a config names a column: by its name, or by its number where it has none, or another has the same."""
        name = self.names[place]
        named = self.keyed or (self.layout.header and bool(name.strip()) and self.names.count(name) == 1)
        return name if named else place


def sniff_table(path: Path, encoding: str = "") -> SniffedTable:
    """A file as a table; one that cannot be read as a table is an error."""
    if ending_of(path) == ".parquet":
        return _read(path, TableFormat(format="parquet"))
    head, _ = read_head(path)
    if not head.strip():
        raise AlchemyError(f"{path} is empty", hint="name a file with at least one row")
    if b"[" not in head[:8] and max(map(len, head.splitlines())) > LONGEST_LINE:  # a JSON list may be one line
        raise AlchemyError(f"{path} has a line of more than {LONGEST_LINE:,} bytes", hint=EXPECTED)
    encoding = encoding or detect_encoding(path)
    found = _format(path, encoding)
    table = _read(path, found)
    if table.keyed or found.format == "label text":
        return table
    if not _has_header(table.names, table.rows):
        table = _read(path, replace(found, header=False))
    return table


def _format(path: Path, encoding: str) -> TableFormat:
    """The format by the first lines; the ending of the file decides between what fits alike."""
    told = cast(FormatName, FORMATS.get(ending_of(path), ""))
    lines = [line for _, line in itertools.islice(read_lines(path, encoding=encoding), 200) if line.strip()]
    if len(lines) > 1 and all(map(_is_object, lines[:5])):
        return TableFormat(format="" if told == "jsonl" else "jsonl", encoding=encoding)
    if told in ("json", "jsonl"):
        return TableFormat(encoding=encoding)
    if lines[0].lstrip().startswith("[") and told == "":
        return TableFormat(format="json", encoding=encoding)
    quoted = any(map(QUOTED.search, lines))
    for delimiter, quote in _separators(told, quoted):
        width, spoilt = _fit(path, delimiter, quote, encoding)
        if width > 1 and spoilt <= SPOILT:
            return _delimited(told, delimiter, quote, encoding)
    if told:  # one column, or rows so uneven that the ending is all there is to go by
        return TableFormat(encoding=encoding)
    labels = Counter(line.split(None, 1)[0] for line in lines)
    if len(labels) * 2 <= len(lines) and all(len(line.split(None, 1)) == 2 for line in lines):
        return TableFormat(format="label text", encoding=encoding)
    raise AlchemyError(f"{path} is not a table: its first line is {lines[0][:60]!r}", hint=EXPECTED)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _separators(told: str, quoted: bool) -> Iterator[tuple[str, str]]:
    """Delimiters and quotes in the order in which they are tried: what the ending says comes first."""
    first = {"csv": ",", "tsv": "\t"}.get(told, "")
    for delimiter in sorted(DELIMITERS, key=lambda sign: sign != first):
        usual = "" if delimiter == "\t" and not quoted else '"'
        yield delimiter, usual
        yield delimiter, '"' if usual == "" else ""


def _fit(path: Path, delimiter: str, quote: str, encoding: str) -> tuple[int, float]:
    """The number of columns, and the share of rows that have another one."""
    try:
        rows = [row for _, row in itertools.islice(csv_rows(path, delimiter, quote, encoding), TRIED_ROWS)]
    except AlchemyError:  # a quote that is never closed
        return 0, 1.0
    widths = Counter(0 if isinstance(row, BadRow) else len(row) for row in rows)
    width = len(rows[0]) if rows and not isinstance(rows[0], BadRow) else 0
    return width, 1 - widths[width] / max(len(rows), 1)


def _delimited(told: str, delimiter: str, quote: str, encoding: str) -> TableFormat:
    """The shortest way to say it: a delimiter and quotes that the ending implies are left out."""
    format: FormatName = "tsv" if delimiter == "\t" else "csv"
    usual = "" if format == "tsv" else '"'
    if told in ("csv", "tsv") and told != format:  # the delimiter is enough to tell
        usual = '"' if told == "csv" else ""
        return TableFormat("", delimiter, None if quote == usual else quote, encoding=encoding)
    sign = "" if delimiter in "\t," else delimiter
    return TableFormat("" if told else format, sign, None if quote == usual else quote, encoding=encoding)


def _read(path: Path, layout: TableFormat) -> SniffedTable:
    opened = open_table(path, layout)
    good: list[Any] = []
    bad: list[tuple[int, str]] = []
    rows = iter(opened.rows)
    for line, row in itertools.islice(rows, MOST_ROWS):
        if isinstance(row, BadRow):
            bad.append((line + row.below, str(row)))
        else:
            good.append(row)
    whole = next(rows, None) is None
    if not good:
        raise AlchemyError(f"{path} has no rows", hint="name a file with at least one row")
    if opened.keyed:
        names = list(dict.fromkeys(key for row in good for key in row))
        good = [[row.get(name) for name in names] for row in good]
    else:
        names = opened.names or [str(place) for place in range(len(good[0]))]
    return SniffedTable(path, layout, names, good, whole, bad, opened.keyed)


def _has_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns.

    It does where it has a name that is known, or where a column repeats its values, or has only numbers, and the first
    cell is not like the others. In doubt it is data: a row that was lost in silence is worse than one that is seen.
    """
    cells = [cell.strip() for cell in first]
    if not any(cells) or any(map(is_number, cells)):
        return False
    columns = [[row[place].strip() for row in rows] for place in range(len(cells))]
    if any(normalize(cell) in KNOWN and cell not in values for cell, values in zip(cells, columns, strict=True)):
        return True
    likely = all(cells) and len(set(cells)) == len(cells) and max(map(len, cells)) <= 40
    return likely and any(map(_is_unlike, cells, columns))


def _is_unlike(cell: str, values: Sequence[str]) -> bool:
    """Whether a cell cannot be of the kind of those below it."""
    if len(values) < 4:
        return False
    return all(map(is_number, values)) or (len(set(values)) * 2 <= len(values) and cell not in values)


def is_number(cell: object) -> bool:
    if not isinstance(cell, str | int | float) or isinstance(cell, bool):
        return False
    try:
        float(cell)
    except (ValueError, OverflowError):
        return False
    return True
