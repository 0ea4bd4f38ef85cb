"""Result tables as files: find `tables/NAME.toml`, read it, and report all mistakes in it with file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from alchemy.annotations import find_mismatches
from alchemy.config.line_numbers import Path as KeyPath
from alchemy.config.toml_reader import parse_toml
from alchemy.config.values import line_of
from alchemy.constraints import Finite, Ge, Le
from alchemy.errors import AlchemyError, ConfigError, Problem, did_you_mean
from alchemy.files import home, read_bytes, shorten_path

FOLDER = "tables"
LARGEST = 2**20  # bytes
MAX_ROWS, MAX_COLUMNS = 1000, 200
_NAME = re.compile(r"\w[\w.-]{0,99}")

T = TypeVar("T", "CellSpec", "ColumnSpec", "RowSpec", "TableSpec")


@dataclass(frozen=True, kw_only=True)
class CellSpec:
    """A cell that is typed in, linked to records, or computed from a query instead of from its row and column."""

    value: Annotated[float, Finite()] | str | None = None  # shown as written
    std: Annotated[float, Ge(0), Finite()] | None = None
    n: Annotated[int, Ge(1)] | None = None
    source: str = ""
    record: str | list[str] = ""
    query: str | None = None
    metric: str = ""
    where: str = ""

    @property
    def records(self) -> list[str]:
        return [self.record] if isinstance(self.record, str) else self.record


@dataclass(frozen=True, kw_only=True)
class _NumberSpec:
    """Which number is shown, and how."""

    metric: str = ""
    scale: Annotated[float, Finite()] | None = None
    digits: Annotated[int, Ge(0), Le(10)] | None = None
    average: Literal["mean", "median"] | None = None
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class ColumnSpec(_NumberSpec):
    """A column: which runs it is about, and which number it shows."""

    name: str = ""
    filter: str | None = None
    better: Literal["higher", "lower", "none"] | None = None


@dataclass(frozen=True, kw_only=True)
class RowSpec(_NumberSpec):
    """A row: which runs it is about. Without a filter, it only has the cells that are given in the file."""

    name: str = ""
    filter: str | None = None
    cells: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TableSpec(_NumberSpec):
    """A table as its file describes it."""

    title: str = ""
    caption: str = ""
    first_column: str = ""
    filter: str = ""
    rows_by: str = ""
    columns_by: str = ""
    better: Literal["higher", "lower", "none"] | None = None
    results: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    columns: list[dict[str, Any]] = field(default_factory=list)


class Options(NamedTuple):
    """How the number in a cell is computed and shown."""

    metric: str
    scale: float
    digits: int
    average: str


@dataclass(frozen=True)
class TableFile:
    """A table file that was read and checked."""

    path: Path
    spec: TableSpec
    rows: tuple[RowSpec, ...]
    columns: tuple[ColumnSpec, ...]
    lines: Mapping[KeyPath, int]
    text: str
    data: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def results_path(self) -> Path | None:
        """The file with saved results, or None."""
        return self.path.parent / self.spec.results if self.spec.results else None

    def options(self, row: RowSpec, column: ColumnSpec) -> Options:
        """Return the options of a cell: the column decides, then the row, then the table.

        The scale and digits of rows and of the table apply to metrics such as `dev/f1`, not to columns like `minutes`.
        """
        cell = row.cells.get(column.name, CellSpec())
        metric = cell.metric or column.metric or row.metric or self.spec.metric
        levels = (column, row, self.spec) if "/" in metric else (column,)
        scale = next((item.scale for item in levels if item.scale is not None), 1.0)
        digits = next((item.digits for item in levels if item.digits is not None), 4 if scale == 1.0 else 2)
        averages = (item.average for item in (column, row, self.spec))
        return Options(metric, scale, digits, next(filter(None, averages), "mean"))

    def locate(self, *path: str | int) -> str:
        """Return `file:line` of a key."""
        return _place(self.path, self.lines, path)


def table_folders() -> list[Path]:
    """Return the folders that may contain tables: `tables` in the working directory and above, up to the project."""
    here, project = Path.cwd(), home().parent
    above = [folder for folder in here.parents if folder == project or project in folder.parents]
    return [folder / FOLDER for folder in (here, *above)]


def list_tables() -> list[Path]:
    """Return the table files of the project, sorted by name; the nearest file of a name counts."""
    found: dict[str, Path] = {}
    for folder in table_folders():
        for path in sorted(folder.glob("*.toml")):
            if not path.name.startswith("."):
                found.setdefault(path.stem, path)
    return [found[name] for name in sorted(found)]


def find_table(name: str) -> Path:
    """Return the file of a table, given its name or path."""
    if name.endswith(".toml") or os.sep in name:
        if not os.path.isfile(name):
            raise AlchemyError(f"file not found: {name}", hint="`alchemy table ls` lists the tables of the project")
        return Path(name)
    known = {path.stem: path for path in list_tables()}
    if name not in known:
        new = f"`alchemy table new {name}` creates {FOLDER}/{name}.toml" if _NAME.fullmatch(name) else ""
        hint = did_you_mean(name, known) or new or "`alchemy table ls` lists the tables of the project"
        raise AlchemyError(f"there is no table {name!r}", hint=hint)
    return known[name]


def new_table_path(name: str) -> Path:
    """Return where to create a table; raise an error if it exists or the name cannot be a file name."""
    if not _NAME.fullmatch(name):
        raise AlchemyError(f"invalid table name {name!r}", hint="use letters, digits, '-', '_' and '.'")
    folder = next((folder for folder in table_folders() if folder.is_dir()), home().parent / FOLDER)
    path = folder / f"{name}.toml"
    if path.exists():
        raise AlchemyError(
            f"{shorten_path(path)} exists already", hint=f"edit it, or show it: `alchemy table show {name}`"
        )
    return path


def read_table_file(path: Path) -> TableFile:
    """Read a table file; all mistakes in it are reported in one error."""
    shown = shorten_path(path)
    try:
        text = read_bytes(path, LARGEST).decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise AlchemyError(f"file not found: {shown}") from None
    except (OSError, ValueError) as error:
        raise AlchemyError(f"{shown} cannot be read: {error}") from error
    return parse_table(text, path)


def parse_table(text: str, path: Path) -> TableFile:
    """Parse the text of a table file."""
    parsed = parse_toml(text, shorten_path(path))
    reader = _Reader(path, parsed.lines)
    table = reader.read(parsed.data)
    if reader.problems:
        raise ConfigError([problem for _, problem in sorted(reader.problems, key=lambda pair: pair[0])])
    return replace(table, text=text, data=parsed.data)


class _Reader:
    """Turns the data of a table file into specs, and collects problems."""

    def __init__(self, path: Path, lines: Mapping[KeyPath, int]) -> None:
        self.path, self.lines = path, lines
        self.problems: list[tuple[int, Problem]] = []  # with their lines

    def read(self, data: dict[str, Any]) -> TableFile:
        spec = self.build(TableSpec, data, ())
        columns = [self.build(ColumnSpec, item, ("columns", place)) for place, item in enumerate(spec.columns)]
        if not columns and not spec.columns_by and spec.metric:
            columns = [ColumnSpec(name=spec.metric, where=spec.where)]
        rows = [self.build(RowSpec, item, ("rows", place)) for place, item in enumerate(spec.rows)]
        if spec.results and not re.fullmatch(r"[^/\\\0]+\.json", spec.results):
            self.report("results must be the name of a .json file next to the table", ("results",))
        self.check_names("rows", rows, MAX_ROWS)
        self.check_names("columns", columns, MAX_COLUMNS)
        names = None if spec.columns_by else [column.name for column in columns]
        rows = [
            replace(row, cells=dict(self.cells(row, ("rows", place, "cells"), names))) for place, row in enumerate(rows)
        ]
        table = TableFile(self.path, spec, tuple(rows), tuple(columns), self.lines, "", {})
        if not self.problems:
            self.check_complete(table)
        return table

    def build(self, kind: type[T], table: dict[str, Any], at: KeyPath) -> T:
        """Build a spec from the valid keys of a table."""
        known = {item.name: str(item.type).replace(" | None", "") for item in fields(kind) if item.name != "where"}
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in known:
                hint = did_you_mean(key, known) or f"expected {', '.join(known)}"
                self.report(f"unknown key {key!r}", (*at, key), hint)
                continue
            mismatches = find_mismatches(key, value, known[key])
            for message, hint in mismatches:
                lists = f"begin each of them with a line [[{key}]]" if key in ("rows", "columns") else ""
                self.report(message, (*at, key), lists or hint)
            if not mismatches:
                values[key] = value
        return kind(**values, where=_place(self.path, self.lines, at))

    def check_names(self, kind: str, items: Sequence[RowSpec | ColumnSpec], largest: int) -> None:
        seen: dict[str, str] = {}
        for place, item in enumerate(items):
            if not item.name.strip():
                self.report("name is missing", (kind, place), 'add name = ".."')
            elif item.name in seen:
                self.report(
                    f"the name {item.name!r} is used twice", (kind, place, "name"), f"first in {seen[item.name]}"
                )
            seen[item.name] = item.where
        if len(items) > largest:
            self.report(f"there are {len(items)} {kind}, at most {largest} are allowed", (kind,))

    def cells(self, row: RowSpec, at: KeyPath, columns: list[str] | None) -> Iterator[tuple[str, CellSpec]]:
        for name, value in row.cells.items():
            here = (*at, name)
            cell = self.build(CellSpec, value if isinstance(value, dict) else {"value": value}, here)
            if columns is not None and name not in columns:
                hint = did_you_mean(name, columns) or f"expected {', '.join(columns[:10])}"
                self.report(f"there is no column {name!r}", here, hint)
            given = [key for key in ("value", "record", "query") if key in value] if isinstance(value, dict) else [""]
            if len(given) != 1:
                got = f"got {' and '.join(given)}" if given else "got none of them"
                self.report(f"a cell needs a value, a record or a query, {got}", here)
            elif isinstance(value, dict) and "value" not in value and ("std" in value or "n" in value):
                self.report("std and n belong to a value that is typed in", here, "they are computed from records")
            elif "record" in given and not all(record.strip() for record in cell.records or [""]):
                self.report("record is empty", here, "use the id or path of a record")
            yield name, cell

    def check_complete(self, table: TableFile) -> None:
        """Report a table without rows or columns, and cells that are computed from runs but have no metric."""
        if not table.columns and not table.spec.columns_by:
            self.report("the table has no columns", (), "add metric = .. or [[columns]]")
        if not table.rows and not table.spec.rows_by:
            self.report("the table has no rows", (), "add rows_by = .. or [[rows]]")
        hint = 'add a line such as metric = "dev/f1" at the top'
        for place, row in enumerate(table.rows):
            for name, cell in row.cells.items():
                column = next((item for item in table.columns if item.name == name), ColumnSpec())
                if cell.value is None and not table.options(row, column).metric:
                    self.report("the cell has no metric", ("rows", place, "cells", name), hint)
        filtered = table.spec.rows_by or any(row.filter is not None for row in table.rows)
        metrics = [table.spec.metric, *(row.metric for row in table.rows), *(column.metric for column in table.columns)]
        if filtered and not any(metrics):
            self.report("the table has no metric", (), hint)

    def report(self, message: str, at: KeyPath, hint: str = "") -> None:
        section = str(at[0]) if len(at) > 1 else ""
        problem = Problem(message, _place(self.path, self.lines, at), section, hint=hint)
        self.problems.append((line_of(self.lines, at), problem))


def _place(path: Path, lines: Mapping[KeyPath, int], at: KeyPath) -> str:
    line = line_of(lines, at)
    return f"{shorten_path(path)}:{line}" if line else shorten_path(path)
