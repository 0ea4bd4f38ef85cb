"""Check that the data files named in a config are text files with the configured columns.

Reads at most 64 KB of each regular file and runs no code. Parquet files are checked at run time. The columns of a
file outside the working directory are not listed, because a config from someone else may name any file.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from encodings.aliases import aliases
from itertools import islice
from pathlib import Path
from typing import Any

from alchemy.annotations import find_mismatches
from alchemy.config.part_slots import Layout, Slot
from alchemy.data.files import expand
from alchemy.data.messages import in_short
from alchemy.data.sniff.encoding import guess_encoding, read_head
from alchemy.data.tables import OpenTable, TableFormat, is_blank
from alchemy.errors import AlchemyError, Problem, did_you_mean

MOST_BYTES = 2**16  # per file
MOST_ROWS = 100
LABELS = ("label", "labels")  # default names of the label column
_TABLES = ("TextClassification", "Relation", "ParallelText")


class _FileProblem(Exception):
    """A problem with a file, and the config key that it concerns."""

    def __init__(self, message: str, key: str = "path", hint: str = "") -> None:
        super().__init__(message)
        self.key, self.hint = key, hint


def preview_files(layout: Layout) -> Iterator[Problem]:
    """Yield problems with the files that alchemy's processors read, at most one per file and config line."""
    reported: set[str] = set()
    for slot in layout.slots:
        if slot.ours and slot.name in (*_TABLES, "Tagging") and not _has_wrong_types(slot):
            for path in _files(slot.value("path")):
                try:
                    _check(path, slot, layout)
                except _FileProblem as wrong:
                    key = wrong.key if wrong.key in slot.table else "path"
                    place = slot.table.where(key)
                    if place not in reported:
                        yield slot.problem(str(wrong), key, hint=wrong.hint)
                    reported.add(place)


def _has_wrong_types(slot: Slot) -> bool:
    """Return whether a value has the wrong type, which `check_keys` reports."""
    params = {param.name: param for param in slot.part.params} if slot.part else {}
    known = [(params[key], value) for key, value in slot.table.items() if key in params]
    return any(find_mismatches(param.name, value, param.annotation, param.default) for param, value in known)


def _files(paths: object) -> list[Path]:
    """Return the regular files in `paths`; pipes and devices could block, and missing files are reported elsewhere."""
    found = []
    for path in paths if isinstance(paths, list) else [paths]:
        with contextlib.suppress(AlchemyError, OSError, ValueError):
            found += [file for file in expand(path) if file.is_file()]
    return found


def _check(path: Path, slot: Slot, layout: Layout) -> None:
    written = _format(path, slot)
    if written.format == "parquet":
        return
    try:
        head, whole = read_head(path, MOST_BYTES)
    except AlchemyError as error:
        raise _FileProblem(error.problem.message, hint=error.problem.hint) from error
    text = _decode(path, head, whole, written.encoding)
    if whole and is_blank(text):
        raise _FileProblem(f"{path} is empty")
    if not whole:  # the last line may be incomplete
        text = text[: text.rfind("\n") + 1]
    if slot.name == "Tagging":
        _check_tags(path, text, slot)
    elif written.format:
        _check_table(_Start(path, text, whole, written), slot, layout)


def _format(path: Path, slot: Slot) -> TableFormat:
    """Return the format of a file; line-aligned files and tagged files are not tables."""
    encoding = slot.value("encoding")
    if slot.name == "Tagging" or (slot.name == "ParallelText" and isinstance(slot.value("path"), list)):
        return TableFormat(encoding=encoding)
    configured = TableFormat(
        slot.value("format") or "", slot.value("delimiter") or "", slot.value("quote"), True, encoding
    )
    try:
        name: Any = configured.format_of(path)
    except AlchemyError as error:
        raise _FileProblem(error.problem.message, hint=error.problem.hint) from error
    return replace(configured, format=name, header=_has_header(slot, name))


def _has_header(slot: Slot, format: str) -> bool:
    """Return whether the first row contains column names, as configured or because a column is given by name."""
    if isinstance(header := slot.value("header"), bool):
        return header
    if slot.name != "ParallelText":
        return not isinstance(slot.value("text"), int)
    columns = [slot.value("source"), slot.value("target"), *(slot.value("columns") or ())]
    return any(isinstance(column, str) for column in columns) or (format == "csv" and set(columns) == {None})


def _decode(path: Path, head: bytes, whole: bool, encoding: str) -> str:
    try:
        with contextlib.suppress(UnicodeError):
            b"a".decode(encoding)  # raises LookupError if `encoding` is not a text encoding
        plain = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        return codecs.getincrementaldecoder("utf-8-sig" if plain else encoding)().decode(head, final=whole)
    except UnicodeError as error:
        found = guess_encoding(head, whole)
        hint = f'it looks like {found}: set encoding = "{found}"' if found else "set encoding to match the file"
        raise _FileProblem(f"{path} is not {encoding} text", "encoding", hint) from error
    except (LookupError, ValueError) as error:
        near = did_you_mean(encoding, [*aliases, *aliases.values()]) or "try 'utf-8' or 'gb18030'"
        raise _FileProblem(f"unknown encoding {encoding!r}", "encoding", near) from error


# -- tables


@dataclass(frozen=True)
class _Start:
    """The first lines of a table."""

    path: Path
    text: str
    whole: bool
    written: TableFormat

    def read(self) -> tuple[list[Any], bool]:
        """Return the rows (lists or objects) before the first malformed one, and whether they are complete."""
        rows: list[Any] = []
        with contextlib.suppress(csv.Error, ValueError, RecursionError):
            for row in islice(self._rows(), MOST_ROWS):
                rows.append(row)
            return rows, self.whole
        return rows, False

    def _rows(self) -> Iterator[Any]:
        match self.written.format:
            case "jsonl":
                yield from (json.loads(line) for line in self.text.splitlines() if line.strip())
            case "json":
                yield json.JSONDecoder().raw_decode(self.text.lstrip().removeprefix("[").lstrip())[0]
            case "label text":
                yield from (line.split(None, 1) for line in self.text.splitlines() if line.strip())
            case _:
                delimiter, quote = self.written.dialect_of(self.written.format)
                quoting: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
                lines = io.StringIO(self.text, newline="")
                yield from filter(None, csv.reader(lines, delimiter=delimiter, strict=True, **quoting))


def _check_table(start: _Start, slot: Slot, layout: Layout) -> None:
    rows, whole = start.read()
    keyed = start.written.format in ("json", "jsonl")
    if not rows or (keyed and not isinstance(rows[0], dict)):
        return  # the malformed row is reported at run time
    names = None
    if keyed:
        names = list(rows[0])
    elif start.written.format == "label text":
        names = ["label", "text"]
    elif start.written.header:
        names, rows = rows[0], rows[1:]
        if not rows and whole:
            raise _FileProblem(f"{start.path} has a header but no rows")
    table = OpenTable(start.path, (), names, keyed)
    if slot.name == "ParallelText":
        _check_sides(table, slot, start.written.format)
        return
    for key in ("text", "pair"):
        if (column := slot.value(key)) not in (None, ""):
            _find_column(table, column, key, len(rows[0]) if rows else None)
    _check_labels(table, rows, slot, layout)


def _find_column(table: OpenTable, column: str | int, key: str, width: int | None = None) -> None:
    if isinstance(column, int) and not table.keyed:
        if width is not None and not -width <= column < width:
            raise _FileProblem(f"{table.path} has no column {column}", key, f"it has {width}, from 0 to {width - 1}")
        return
    try:
        table.cell(column)
    except AlchemyError as error:
        hint = error.problem.hint
        inside = table.path.absolute().is_relative_to(Path.cwd()) and ".." not in table.path.parts
        if table.names and in_short(table.names) in hint and not inside:
            hint = f"none of its {len(table.names or ())} columns has that name"
        if key == "label":
            hint += '; set label = "" for a file without labels'
        raise _FileProblem(f"{error.problem.message} in {table.path}", key, hint) from error


def _check_sides(table: OpenTable, slot: Slot, format: str) -> None:
    """Check the source and target columns; if none are named, the first ones are used, except in CSV files."""
    sides = {key: slot.value(key) for key in ("source", "target")}
    if None not in sides.values():
        for key, column in sides.items():
            _find_column(table, column, key)
        return
    named = slot.value("columns")
    assumed = table.keyed or (format == "csv" and slot.value("header") is None)
    for column in named or (slot.value("names") if assumed else ()) or ():
        _find_column(table, column, "columns" if named else "path")


def _check_labels(table: OpenTable, rows: list[Any], slot: Slot, layout: Layout) -> None:
    label = slot.value("label")
    trains = slot.section.startswith("task.datasets.train.")
    if label is None:
        label = next((name for name in LABELS if table.has(name)), None)
        task = layout.at("task")
        if label is None and trains and task is not None and task.ours and task.is_a("Classification"):
            hint = 'set the label column, for example label = "category"'
            raise _FileProblem(f"there is no column 'label' or 'labels' in {table.path}", hint=hint)
    if label in (None, ""):
        return
    _find_column(table, label, "label", len(rows[0]) if rows else None)
    key = label if table.keyed or isinstance(label, int) or table.names is None else table.names.index(label)
    with contextlib.suppress(LookupError, TypeError):  # inconsistent rows are reported at run time
        cells = [row[key] for row in rows]
        if trains and cells and slot.value("kind") != "multi" and not any(str(cell).strip() for cell in cells):
            text = f"the column {label!r} of {table.path} has no label in the first {len(cells)} rows"
            raise _FileProblem(text, "label", "is it the right column?")


# -- tagged files


def _check_tags(path: Path, text: str, slot: Slot) -> None:
    line = next((line for line in text.split("\n") if line.strip() and not line.startswith("-DOCSTART-")), "")
    width = len(line.split(slot.value("delimiter") or None))
    columns = {key: slot.value(key) for key in ("token", *["tag"] * bool(slot.value("tagged")))}
    for key, column in columns.items():
        if line and not -width <= column < width:
            raise _FileProblem(f"there is no column {column} in {path}: its first line has {width}", key)
    if line and len(columns) == 2 and columns["token"] % width == columns["tag"] % width:
        hint = "set delimiter, or tagged = false for a file without tags"
        raise _FileProblem(f"token and tag are the same column of {path}", hint=hint)
