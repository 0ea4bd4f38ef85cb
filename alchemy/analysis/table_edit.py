"""Edit table files: set a cell, and leave everything else in the file as it is, comments included."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from alchemy.analysis.table_files import TableFile, parse_table, read_table_file
from alchemy.config.line_numbers import Path as KeyPath
from alchemy.config.line_numbers import Scan, scan_toml
from alchemy.config.toml_reader import parse_toml
from alchemy.config.toml_writer import format_inline, is_same
from alchemy.config.values import quote_key
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.files import shorten_path, write_atomic


def set_cell(path: Path, row: str, column: str, cell: dict[str, Any], *, new_row: bool = False) -> None:
    """Set a cell of a table file. Only `new_row` adds a row, so that a misspelled name does not."""
    table = read_table_file(path)
    columns = [item.name for item in table.columns]
    if column not in columns and not table.spec.columns_by:
        hint = did_you_mean(column, columns) or f"expected {', '.join(columns[:10])}"
        raise AlchemyError(f"{shorten_path(path)} has no column {column!r}", hint=hint)
    names = [item.name for item in table.rows]
    if row not in names and not new_row:
        hint = did_you_mean(row, names) or "--new-row adds it"
        raise AlchemyError(f"{shorten_path(path)} has no row {row!r}", hint=hint)
    wanted = copy.deepcopy(table.data)
    if row in names:
        wanted["rows"][names.index(row)].setdefault("cells", {})[column] = cell
        text = _put_cell(table, names.index(row), column, cell, wanted)
    else:
        wanted.setdefault("rows", []).append({"name": row, "cells": {column: cell}})
        line = f"cells.{quote_key(column)} = {format_inline(cell)}"
        text = f"{table.text.rstrip()}\n\n[[rows]]\nname = {format_inline(row)}\n{line}\n"
    _write(path, text, wanted)


def set_results(path: Path, name: str) -> None:
    """Set `results` of a table file."""
    table = read_table_file(path)
    layout = scan_toml(table.text)
    line = f"results = {format_inline(name)}\n"
    ends = [end for key, (_, end) in layout.spans.items() if len(key) == 1]
    text = _insert_after(table.text, max(ends), line) if ends else f"{line}{table.text}"
    _write(path, text, {**table.data, "results": name})


def _put_cell(table: TableFile, place: int, column: str, cell: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Replace the smallest value that contains the cell, or add a line after the last one of its table."""
    layout = scan_toml(table.text)
    row: KeyPath = ("rows", place)
    values = {
        (*row, "cells", column): cell,
        (*row, "cells"): wanted["rows"][place]["cells"],
        row: wanted["rows"][place],
    }
    for path, value in values.items():
        if path in layout.spans:
            start, end = layout.spans[path]
            return f"{table.text[:start]}{format_inline(value)}{table.text[end:]}"
    has_header = (*row, "cells") in layout.above  # [rows.cells]
    key = quote_key(column) if has_header else f"cells.{quote_key(column)}"
    return _insert_after(
        table.text, _end_of(layout, (*row, "cells") if has_header else row), f"{key} = {format_inline(cell)}\n"
    )


def _end_of(layout: Scan, table: KeyPath) -> int:
    """Return the end of the last value in a table."""
    ends = [end for path, (_, end) in layout.spans.items() if path[: len(table)] == table]
    return max(ends, default=layout.starts[layout.lines[table] - 1])


def _insert_after(text: str, offset: int, line: str) -> str:
    """Insert a line after the line that contains an offset."""
    end = text.find("\n", offset)
    return f"{text[: end + 1]}{line}{text[end + 1 :]}" if end >= 0 else f"{text}\n{line}"


def _write(path: Path, text: str, wanted: dict[str, Any]) -> None:
    """Write a table file after a check that it contains exactly the wanted data."""
    try:
        found = parse_toml(text, shorten_path(path)).data
    except AlchemyError:
        found = {}
    if not is_same(found, wanted):
        hint = "write the rows as [[rows]] and their cells as cells.NAME = .."
        raise AlchemyError(f"{shorten_path(path)} cannot be edited automatically", hint=hint)
    parse_table(text, path)
    try:
        text = text.replace("\n", "\r\n") if b"\r\n" in path.read_bytes() else text
        write_atomic(path.resolve(), text)  # a link stays a link
    except OSError as error:
        raise AlchemyError(f"{shorten_path(path)} cannot be written: {error.strerror or error}") from error
