"""Files with one sample a row, whatever separates the cells."""

from __future__ import annotations

import csv
import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from alchemy.data.files import ending_of, lines_of, open_text, read_lines, readable
from alchemy.data.messages import in_short
from alchemy.data.parquet import open_parquet
from alchemy.errors import AlchemyError, did_you_mean

OnBad = Literal["error", "skip"]  # what becomes of a bad row
Rows = Iterable[tuple[int, Any]]  # each with its line; a BadRow stands for one that is not well formed
LONGEST = 2**31 - 1  # characters of a csv cell: Python's own limit is 131,072, less than a long document has
FormatName = Literal["", "csv", "tsv", "jsonl", "json", "parquet", "label text"]  # "": as the ending says
FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet",
}  # fmt: skip


class BadRow(Exception):
    """A row that is not what its format promises; `below` counts the lines from its first to the one that is wrong."""

    def __init__(self, text: str, below: int = 0) -> None:
        super().__init__(text)
        self.below = below


@dataclass(frozen=True)
class TableFormat:
    """How a table is written; what is left open follows from the ending of the file and from how columns are named."""

    format: FormatName = ""
    delimiter: str = ""
    quote: str | None = None
    header: bool = True
    encoding: str = "utf-8"

    def dialect_of(self, format: str) -> tuple[str, str]:
        """The separator and the quotation mark; in a tsv file quotation marks are text, unless one is named."""
        tabs = format == "tsv"
        return self.delimiter or ("\t" if tabs else ","), ("" if tabs else '"') if self.quote is None else self.quote

    def format_of(self, path: Path) -> str:
        if self.format:
            return self.format
        ending = ending_of(path)
        found = FORMATS.get(ending)
        if self.delimiter and found not in ("csv", "tsv"):
            found = "tsv" if self.delimiter == "\t" else "csv"
        if found is None:
            sheet = "save it as csv" if ending in (".xlsx", ".xls", ".ods") else ""
            hint = sheet or "set format = 'csv', 'tsv', 'jsonl', 'json' or 'label text'"
            raise AlchemyError(f"the ending of {path.name!r} does not say how it is written", hint=hint)
        return found


@dataclass(frozen=True)
class OpenTable:
    """A file that is being read: its rows, and the names of its columns, as far as they are known.

    Rows are lists of cells, or, where they are `keyed`, dicts.
    """

    path: Path
    rows: Rows
    names: list[str] | None = None
    keyed: bool = False

    def has(self, column: str | int) -> bool:
        return isinstance(column, int) or column in (self.names or ())

    def cell(self, column: str | int) -> Callable[[Any], Any]:
        """What takes the cell of a column out of a row."""
        names, where = self.names or [], f"{self.path}:1"
        if isinstance(column, int) and self.keyed and self.names:
            text, hint = f"the rows are objects, which have no column {column}", f"name one of {in_short(self.names)}"
            raise AlchemyError(text, where=where, hint=hint)
        if not self.has(column) and (names or not self.keyed):
            numbers = "give the number of the column, from 0"
            there = f"it has {in_short(names)}; without a header, {numbers}" if names else numbers
            hint = _misread(names) or did_you_mean(str(column), names) or there
            raise AlchemyError(f"there is no column {column!r}", where=where, hint=hint)
        if isinstance(column, str) and names.count(column) > 1:
            raise AlchemyError(f"there are two columns {column!r}", where=where, hint="give its number")
        key = column if self.keyed or isinstance(column, int) else names.index(column)
        return lambda row: _cell(row, key)


def _misread(names: list[str]) -> str:
    """What a first row looks like that was read in the wrong way."""
    if names and names[0].lstrip().startswith("{"):
        return 'the rows are JSON: set format = "jsonl"'
    for mark, spelt in ((";", ";"), ("\t", "\\t"), ("|", "|"), (",", ",")):
        if len(names) == 1 and mark in names[0]:
            return f'its cells are separated by {mark!r}: set delimiter = "{spelt}"'
    return ""


def open_table(path: Path, layout: TableFormat) -> OpenTable:
    """A file as a table; the rows are read while they are asked for."""
    match layout.format_of(path):
        case "jsonl" | "json" | "parquet" as format:
            objects = {"jsonl": json_rows, "json": json_items, "parquet": parquet_rows}[format]
            first, rows = _peeked(objects(path, layout.encoding), dict)
            return OpenTable(path, _objects(rows), None if first is None else list(first), keyed=True)
        case "label text":
            return OpenTable(path, _label_text(path, layout.encoding), ["label", "text"])
        case format:
            cells = csv_rows(path, *layout.dialect_of(format), layout.encoding)
    first, rows = _peeked(cells)
    if first is None:
        return OpenTable(path, rows, keyed=True)  # empty: no column can be missed
    if isinstance(first, BadRow):
        raise AlchemyError(str(first), where=f"{path}:1", hint="the first row says how many cells the others have")
    if layout.header and not any(map(str.strip, first)):
        text = "the first row is blank, expected the names of the columns"
        raise AlchemyError(text, where=str(path), hint="is the file empty?")
    return OpenTable(path, _even(rows, len(first), layout.header), first if layout.header else None)


def json_rows(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    """`(line, value)` of a file with one JSON value a line; what is no JSON is a BadRow."""
    for number, line in read_lines(path, encoding=encoding):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                yield number, BadRow(f"is not JSON: {error}")
            except RecursionError:
                yield number, BadRow("is JSON that is nested too deep to be read")


def json_items(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    """`(number, value)` of a file that is one JSON list, from 1."""
    with readable(path, 1, encoding), open_text(path, encoding=encoding) as file:
        try:
            items = json.load(file)
        except (json.JSONDecodeError, RecursionError) as error:
            raise AlchemyError(f"is not JSON: {error}", where=str(path), hint="JSON on each line is jsonl") from error
    if not isinstance(items, list):
        text = f"is a JSON {type(items).__name__}, expected a list of objects"
        raise AlchemyError(text, where=str(path), hint="or one object on each line: jsonl")
    yield from enumerate(items, 1)


def parquet_rows(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    """`(number, row)` of a parquet file, from 1; its texts are UTF-8."""
    with open_parquet(path) as file:
        batches = file.iter_batches(batch_size=1024)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def csv_rows(path: Path, delimiter: str, quote: str, encoding: str) -> Iterator[tuple[int, Any]]:
    """`(line, cells)` of a csv file, header included; empty lines are passed over.

    In a file of one column an empty line is an empty cell, unless nothing comes behind it.
    """
    csv.field_size_limit(LONGEST)  # Python keeps one for all readers, and others may have set it
    quoting = {"quotechar": quote, "quoting": csv.QUOTE_MINIMAL} if quote else {"quoting": csv.QUOTE_NONE}
    with open_text(path, encoding=encoding, newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True, **quoting)
        columns, empty = 0, []
        while True:
            line = reader.line_num + 1  # a quoted cell may run over several lines: the first one is named
            try:
                with readable(path, line, encoding):
                    row = next(reader, None)
            except csv.Error as error:
                if "unexpected end" in str(error):  # all that follows is in that cell: no single row
                    hint = f"close it, or set quote = '' where {quote} is text"
                    raise AlchemyError(
                        "a quote is opened and never closed", where=f"{path}:{line}", hint=hint
                    ) from error
                yield line, BadRow(f"is not csv: {error}")
                continue
            if row is None:
                return
            if not row:
                empty += [line] if columns == 1 else []
                continue
            columns = columns or len(row)
            yield from ((number, [""]) for number in empty)
            empty.clear()
            yield line, row


def is_blank(text: str) -> bool:
    """Whether there is nothing to see in a text: blanks alone, or signs without width, as a byte order mark is.

    >>> is_blank(" \\u200b\\ufeff"), is_blank("a")
    (True, False)
    """
    return all(sign.isspace() or unicodedata.category(sign) in ("Cf", "Cc") for sign in text)


def _peeked(rows: Iterator[tuple[int, Any]], kind: type = object) -> tuple[Any, Iterator[tuple[int, Any]]]:
    """The first row of a kind, and all rows."""
    head = []
    for line, row in rows:
        head.append((line, row))
        if isinstance(row, kind):
            return row, itertools.chain(head, rows)
    return None, iter(head)


def _even(rows: Iterator[tuple[int, Any]], width: int, header: bool) -> Iterator[tuple[int, Any]]:
    """Rows of as many cells as the first; a separator inside a text would go unnoticed otherwise."""
    for line, row in itertools.islice(rows, int(header), None):
        uneven = isinstance(row, list) and len(row) != width
        yield line, BadRow(f"{len(row)} cells, expected {width} as in the first row") if uneven else row


def _objects(rows: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    for line, row in rows:
        known = isinstance(row, dict | BadRow)
        yield line, row if known else BadRow(f"is a {type(row).__name__}, expected an object {{..}}")


def _label_text(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines_of(path, encoding), 1):
        if line.strip():
            label, *text = line.split(None, 1)  # a blank or a tab: both are common
            yield number, [label, text[0].strip()] if text else BadRow("has no text, expected 'label text'")


def _cell(row: Any, key: str | int) -> Any:
    try:
        return row[key]
    except (KeyError, IndexError, TypeError) as error:
        raise BadRow(f"has no column {key!r}") from error
