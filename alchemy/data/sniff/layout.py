"""Detect the format, delimiter, quotes and header of a table."""

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

MOST_ROWS = 100_000  # number of rows to examine
TRIED_ROWS = 1_000  # rows used to detect the delimiter
DELIMITERS = ("\t", ",", ";", "|")
QUOTED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""(?:[^"\t]|"")*"(?:\t|$)')  # a tab-separated cell with doubled quotes
LONGEST_LINE = 2**22  # bytes; a longer line is not a row, and may be a decompression bomb
EXPECTED = "expected csv, tsv, jsonl, or one label, a space and text per line"
MOST_BAD = 0.05  # maximum share of bad rows, e.g. with an unquoted delimiter or a truncated cell


@dataclass(frozen=True)
class SniffedTable:
    """The rows of a file, its format, and its bad rows."""

    path: Path
    layout: TableFormat
    names: list[str]  # column names, or column numbers as strings if there is no header
    rows: list[list[Any]]
    whole: bool  # whether all rows were read
    bad: list[tuple[int, str]] = field(default_factory=list)  # line and error message
    keyed: bool = False

    def column(self, place: int) -> list[Any]:
        return [row[place] for row in self.rows]

    def key(self, place: int) -> str | int:
        """Return the key of a column in a config: its name, or its number if it has no unique name."""
        name = self.names[place]
        named = self.keyed or (self.layout.header and bool(name.strip()) and self.names.count(name) == 1)
        return name if named else place


def sniff_table(path: Path, encoding: str = "") -> SniffedTable:
    """Detect the format of a table and read it; raise if the file is not a table."""
    if ending_of(path) == ".parquet":
        return _read(path, TableFormat(format="parquet"))
    head, _ = read_head(path)
    if not head.strip():
        raise AlchemyError(f"{path} is empty", hint="use a file with at least one row")
    if b"[" not in head[:8] and max(map(len, head.splitlines())) > LONGEST_LINE:  # a JSON list may be one line
        raise AlchemyError(f"{path} has a line of more than {LONGEST_LINE:,} bytes", hint=EXPECTED)
    encoding = encoding or detect_encoding(path)
    found = _detect_format(path, encoding)
    table = _read(path, found)
    if table.keyed or found.format == "label text":
        return table
    if not _has_header(table.names, table.rows):
        table = _read(path, replace(found, header=False))
    return table


def _detect_format(path: Path, encoding: str) -> TableFormat:
    """Detect the format from the first lines; the file extension breaks ties."""
    by_extension = cast(FormatName, FORMATS.get(ending_of(path), ""))
    lines = [line for _, line in itertools.islice(read_lines(path, encoding=encoding), 200) if line.strip()]
    if len(lines) > 1 and all(map(_is_object, lines[:5])):
        return TableFormat(format="" if by_extension == "jsonl" else "jsonl", encoding=encoding)
    if by_extension in ("json", "jsonl"):
        return TableFormat(encoding=encoding)
    if lines[0].lstrip().startswith("[") and by_extension == "":
        return TableFormat(format="json", encoding=encoding)
    quoted = any(map(QUOTED.search, lines))
    for delimiter, quote in _iter_dialects(by_extension, quoted):
        width, bad = _try_dialect(path, delimiter, quote, encoding)
        if width > 1 and bad <= MOST_BAD:
            return _make_format(by_extension, delimiter, quote, encoding)
    if by_extension:  # one column, or rows too irregular for detection
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


def _iter_dialects(by_extension: str, quoted: bool) -> Iterator[tuple[str, str]]:
    """Yield delimiters and quotes to try, starting with the usual ones for the file extension."""
    first = {"csv": ",", "tsv": "\t"}.get(by_extension, "")
    for delimiter in sorted(DELIMITERS, key=lambda sign: sign != first):
        usual = "" if delimiter == "\t" and not quoted else '"'
        yield delimiter, usual
        yield delimiter, '"' if usual == "" else ""


def _try_dialect(path: Path, delimiter: str, quote: str, encoding: str) -> tuple[int, float]:
    """Return the number of columns, and the share of rows with a different number of columns."""
    try:
        rows = [row for _, row in itertools.islice(csv_rows(path, delimiter, quote, encoding), TRIED_ROWS)]
    except AlchemyError:  # an unclosed quote
        return 0, 1.0
    widths = Counter(0 if isinstance(row, BadRow) else len(row) for row in rows)
    width = len(rows[0]) if rows and not isinstance(rows[0], BadRow) else 0
    return width, 1 - widths[width] / max(len(rows), 1)


def _make_format(by_extension: str, delimiter: str, quote: str, encoding: str) -> TableFormat:
    """Return the format without the settings that the file extension implies."""
    format: FormatName = "tsv" if delimiter == "\t" else "csv"
    usual = "" if format == "tsv" else '"'
    if by_extension in ("csv", "tsv") and by_extension != format:  # the delimiter alone determines the format
        usual = '"' if by_extension == "csv" else ""
        return TableFormat("", delimiter, None if quote == usual else quote, encoding=encoding)
    sign = "" if delimiter in "\t," else delimiter
    return TableFormat("" if by_extension else format, sign, None if quote == usual else quote, encoding=encoding)


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
        raise AlchemyError(f"{path} has no rows", hint="use a file with at least one row")
    if opened.keyed:
        names = list(dict.fromkeys(key for row in good for key in row))
        good = [[row.get(name) for name in names] for row in good]
    else:
        names = opened.names or [str(place) for place in range(len(good[0]))]
    return SniffedTable(path, layout, names, good, whole, bad, opened.keyed)


def _has_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row is a header.

    It is a header if it contains a known column name, or if a column has only numbers or repeated values and its first
    cell is different. When in doubt, it is treated as data, because losing a row silently is worse than a visible
    extra row.
    """
    cells = [cell.strip() for cell in first]
    if not any(cells) or any(map(is_number, cells)):
        return False
    columns = [[row[place].strip() for row in rows] for place in range(len(cells))]
    if any(normalize(cell) in KNOWN and cell not in values for cell, values in zip(cells, columns, strict=True)):
        return True
    likely = all(cells) and len(set(cells)) == len(cells) and max(map(len, cells)) <= 40
    return likely and any(map(_differs, cells, columns))


def _differs(cell: str, values: Sequence[str]) -> bool:
    """Return whether a cell is of a different kind than the values below it."""
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
