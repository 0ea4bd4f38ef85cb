"""Read tables with one sample per row: csv, tsv, JSON, jsonl, Parquet and `label text`."""

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

OnBad = Literal["error", "skip"]  # how to handle a bad row
Rows = Iterable[tuple[int, Any]]  # (line, row); a malformed row is a BadRow
LONGEST = 2**31 - 1  # maximum length of a csv cell; Python's default of 131,072 is too small for long documents
FormatName = Literal["", "csv", "tsv", "jsonl", "json", "parquet", "label text"]  # "": by file extension
FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet",
}  # fmt: skip


class BadRow(Exception):
    """A malformed row; `below` is the offset of the faulty line from the first line of the row."""

    def __init__(self, text: str, below: int = 0) -> None:
        super().__init__(text)
        self.below = below


@dataclass(frozen=True)
class TableFormat:
    """The format of a table; settings left at their default are determined by the file extension."""

    format: FormatName = ""
    delimiter: str = ""
    quote: str | None = None
    header: bool = True
    encoding: str = "utf-8"

    def dialect_of(self, format: str) -> tuple[str, str]:
        """Return the delimiter and the quote character; tsv files have no quoting by default."""
        tabs = format == "tsv"
        return self.delimiter or ("\t" if tabs else ","), ("" if tabs else '"') if self.quote is None else self.quote

    def format_of(self, path: Path) -> str:
        """Return the format of a file."""
        if self.format:
            return self.format
        ending = ending_of(path)
        found = FORMATS.get(ending)
        if self.delimiter and found not in ("csv", "tsv"):
            found = "tsv" if self.delimiter == "\t" else "csv"
        if found is None:
            sheet = "save it as csv" if ending in (".xlsx", ".xls", ".ods") else ""
            hint = sheet or "set format = 'csv', 'tsv', 'jsonl', 'json' or 'label text'"
            raise AlchemyError(f"cannot determine the format of {path.name!r} from its extension", hint=hint)
        return found


@dataclass(frozen=True)
class OpenTable:
    """An open table: its rows, and the names of its columns if they are known.

    Rows are lists of cells, or dicts if the table is `keyed`.
    """

    path: Path
    rows: Rows
    names: list[str] | None = None
    keyed: bool = False

    def has(self, column: str | int) -> bool:
        return isinstance(column, int) or column in (self.names or ())

    def cell(self, column: str | int) -> Callable[[Any], Any]:
        """Return a function that gets the cell of a column from a row."""
        names, where = self.names or [], f"{self.path}:1"
        if isinstance(column, int) and self.keyed and self.names:
            text = f"the rows are objects and have no column number {column}"
            hint = f"use one of the names {in_short(self.names)}"
            raise AlchemyError(text, where=where, hint=hint)
        if not self.has(column) and (names or not self.keyed):
            numbers = "use the column number, counting from 0"
            available = f"it has {in_short(names)}; without a header, {numbers}" if names else numbers
            hint = _suggest_format(names) or did_you_mean(str(column), names) or available
            raise AlchemyError(f"there is no column {column!r}", where=where, hint=hint)
        if isinstance(column, str) and names.count(column) > 1:
            text = f"more than one column is named {column!r}"
            raise AlchemyError(text, where=where, hint="use the column number")
        key = column if self.keyed or isinstance(column, int) else names.index(column)
        return lambda row: _get_cell(row, key)


def _suggest_format(names: list[str]) -> str:
    """Suggest another format if the first row looks as if it had been parsed in the wrong format."""
    if names and names[0].lstrip().startswith("{"):
        return 'the rows are JSON; set format = "jsonl"'
    for mark, escaped in ((";", ";"), ("\t", "\\t"), ("|", "|"), (",", ",")):
        if len(names) == 1 and mark in names[0]:
            return f'the cells seem to be separated by {mark!r}; set delimiter = "{escaped}"'
    return ""


def open_table(path: Path, layout: TableFormat) -> OpenTable:
    """Open a file as a table; rows are read lazily."""
    match layout.format_of(path):
        case "jsonl" | "json" | "parquet" as format:
            objects = {"jsonl": json_rows, "json": json_items, "parquet": parquet_rows}[format]
            first, rows = _peek(objects(path, layout.encoding), dict)
            return OpenTable(path, _check_objects(rows), None if first is None else list(first), keyed=True)
        case "label text":
            return OpenTable(path, _label_text_rows(path, layout.encoding), ["label", "text"])
        case format:
            cells = csv_rows(path, *layout.dialect_of(format), layout.encoding)
    first, rows = _peek(cells)
    if first is None:
        return OpenTable(path, rows, keyed=True)  # an empty file: no column can be missing
    if isinstance(first, BadRow):
        raise AlchemyError(str(first), where=f"{path}:1", hint="fix the first row, which defines the number of cells")
    if layout.header and not any(map(str.strip, first)):
        text = "the first row is blank, expected column names"
        raise AlchemyError(text, where=str(path), hint="is the file empty?")
    return OpenTable(path, _check_widths(rows, len(first), layout.header), first if layout.header else None)


def json_rows(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    """Yield `(line, value)` for each line of a file with one JSON value per line; an invalid line yields a BadRow."""
    for number, line in read_lines(path, encoding=encoding):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                yield number, BadRow(f"is not JSON: {error}")
            except RecursionError:
                yield number, BadRow("is JSON that is nested too deeply")


def json_items(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    """Yield `(number, value)` for each item of a file that contains a JSON list, counting from 1."""
    with readable(path, 1, encoding), open_text(path, encoding=encoding) as file:
        try:
            items = json.load(file)
        except (json.JSONDecodeError, RecursionError) as error:
            raise AlchemyError(
                f"is not JSON: {error}", where=str(path), hint="use the jsonl format for one JSON value per line"
            ) from error
    if not isinstance(items, list):
        text = f"is a JSON {type(items).__name__}, expected a list of objects"
        raise AlchemyError(text, where=str(path), hint="use the jsonl format for one object per line")
    yield from enumerate(items, 1)


def parquet_rows(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    """Yield `(number, row)` for each row of a Parquet file, counting from 1; `encoding` is ignored."""
    with open_parquet(path) as file:
        batches = file.iter_batches(batch_size=1024)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def csv_rows(path: Path, delimiter: str, quote: str, encoding: str) -> Iterator[tuple[int, Any]]:
    """Yield `(line, cells)` for each row of a csv file, including the header; skip empty lines.

    In a file with one column, an empty line is an empty cell, except at the end of the file.
    """
    csv.field_size_limit(LONGEST)  # a global setting that other code may have changed
    quoting = {"quotechar": quote, "quoting": csv.QUOTE_MINIMAL} if quote else {"quoting": csv.QUOTE_NONE}
    with open_text(path, encoding=encoding, newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True, **quoting)
        columns, empty = 0, []
        while True:
            line = reader.line_num + 1  # the first line of the row; a quoted cell may span several lines
            try:
                with readable(path, line, encoding):
                    row = next(reader, None)
            except csv.Error as error:
                if "unexpected end" in str(error):  # the cell contains the rest of the file, so no row can be skipped
                    hint = f"close the quote, or set quote = '' if {quote} is part of the text"
                    raise AlchemyError("a quote is never closed", where=f"{path}:{line}", hint=hint) from error
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
    """Return whether a string contains only whitespace and invisible characters, such as a byte order mark.

    >>> is_blank(" \\u200b\\ufeff"), is_blank("a")
    (True, False)
    """
    return all(sign.isspace() or unicodedata.category(sign) in ("Cf", "Cc") for sign in text)


def _peek(rows: Iterator[tuple[int, Any]], kind: type = object) -> tuple[Any, Iterator[tuple[int, Any]]]:
    """Return the first row of the given type, and an iterator over all rows, including the rows already read."""
    head = []
    for line, row in rows:
        head.append((line, row))
        if isinstance(row, kind):
            return row, itertools.chain(head, rows)
    return None, iter(head)


def _check_widths(rows: Iterator[tuple[int, Any]], width: int, header: bool) -> Iterator[tuple[int, Any]]:
    """Replace rows that have the wrong number of cells, e.g. due to a delimiter inside text, with a BadRow."""
    for line, row in itertools.islice(rows, int(header), None):
        uneven = isinstance(row, list) and len(row) != width
        yield line, BadRow(f"expected {width} cells as in the first row, got {len(row)}") if uneven else row


def _check_objects(rows: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    for line, row in rows:
        known = isinstance(row, dict | BadRow)
        yield line, row if known else BadRow(f"is a {type(row).__name__}, expected an object {{..}}")


def _label_text_rows(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines_of(path, encoding), 1):
        if line.strip():
            label, *text = line.split(None, 1)  # separated by a space or a tab; both are common
            yield number, [label, text[0].strip()] if text else BadRow("has no text, expected 'label text'")


def _get_cell(row: Any, key: str | int) -> Any:
    try:
        return row[key]
    except (KeyError, IndexError, TypeError) as error:
        raise BadRow(f"has no column {key!r}") from error
