"""The rows and columns of a table, and the runs that belong to each of its cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

from alchemy.analysis.table_files import MAX_COLUMNS, MAX_ROWS, CellSpec, ColumnSpec, RowSpec, TableFile
from alchemy.errors import AlchemyError, Problem, did_you_mean
from alchemy.index.config_changes import REPEATED, find_changed_keys
from alchemy.index.filter_parser import BadFilter
from alchemy.index.filters import UnknownName, compile_filter
from alchemy.index.listing import UnknownColumn, Value, Values
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row, drop_repeats
from alchemy.index.value_format import format_names

BY_FIELDS = ("tag", "variant")  # `rows_by` and `columns_by` accept these next to config keys
_SHOWN = 3  # names in a warning
_COMPARED = 5  # configs that are compared for a warning


class TableRuns:
    """Finds the runs of each cell. Filters are evaluated once per row and column, and intersected for each cell."""

    def __init__(self, file: TableFile, index: RecordIndex) -> None:
        self.file, self.index = file, index
        self._warnings: dict[tuple[str, str], tuple[str, list[str]]] = {}  # message and hint -> place and cells
        self._known: dict[int, Row] = {}  # runs that were loaded
        self.has_records = bool(index.query(limit=1))
        self._all = self._find(file.spec.filter, file.locate("filter"), kind="train")
        if self._all and "status" not in compile_filter(file.spec.filter, index.names).names:
            self._all &= self._find("status:finished", "")
        by_row = self._group("rows_by", file.spec.rows_by, MAX_ROWS)
        by_column = self._group("columns_by", file.spec.columns_by, MAX_COLUMNS)
        rows, columns = [row.name for row in file.rows], [column.name for column in file.columns]
        self.rows = [
            *file.rows,
            *(RowSpec(name=name, where=file.locate("rows_by")) for name in by_row if name not in rows),
        ]
        self.columns = [
            *file.columns,
            *(ColumnSpec(name=name, where=file.locate("columns_by")) for name in by_column if name not in columns),
        ]
        self._of_row = {row.name: self._choose(row, by_row) for row in self.rows}
        self._of_column = {column.name: self._choose(column, by_column) for column in self.columns}

    def has_filter(self, row: RowSpec) -> bool:
        """Return whether a row describes runs; otherwise it only has the cells in the file."""
        return self._of_row[row.name] is not None

    def fitting(self, row: RowSpec, column: ColumnSpec) -> list[Row]:
        """Return the runs that fit a cell, newest first: one of each config, code and seed."""
        cell: CellSpec | None = row.cells.get(column.name)
        if cell is not None and cell.query is not None:
            return self._load(self._all & self._find(cell.query, cell.where))
        of_row, of_column = self._of_row[row.name], self._of_column[column.name]
        if of_row is None:
            return []
        return self._load(self._all & of_row if of_column is None else self._all & of_row & of_column)

    def linked(self, cell: CellSpec) -> tuple[list[Row], list[str]]:
        """Return the records that a cell is linked to, and why others were not found."""
        found, missing = [], []
        for name in cell.records:
            try:
                found.append(self.index.find(name))
            except AlchemyError as error:
                missing.append(error.problem.message)
        return found, missing

    def similar(self, rows: Iterable[Row]) -> list[Row]:
        """Return the runs that differ from the given ones only in their seed."""
        numbers = {row.id for row in rows}
        return self._load({number for group in self._groups if numbers & group for number in group})

    def values(self, rows: list[Row], metric: str, where: str) -> list[Value]:
        """Return the value of a metric, or of another column of `alchemy ls`, for each run; [] if no run has it."""
        own = self._values if all(row.id in self._fitting for row in rows) else Values(self.index, rows)
        try:
            get = own.getter(metric)
        except UnknownColumn as error:
            if self.has_records:
                self.warn(error.problem.message, where, error.problem.hint)
            return []
        return [get(row) for row in rows]

    @cached_property
    def _fitting(self) -> dict[int, Row]:
        """The runs of all cells, whose metrics are read together."""
        return {row.id: row for line in self.rows for column in self.columns for row in self.fitting(line, column)}

    @cached_property
    def _values(self) -> Values:
        return Values(self.index, list(self._fitting.values()))

    def warn_if_mixed(self, rows: list[Row], cell: str, where: str) -> None:
        """Warn if runs differ in more than their seed, since their mean is rarely what was meant."""
        distinct = list({row.fold_hash: row for row in rows}.values())[:_COMPARED]
        changed = ["code"] if len({row.code_hash for row in rows}) > 1 else []
        if len(distinct) > 1:
            changed += sorted(find_changed_keys(list(self.index.config(distinct).values()), hidden=REPEATED))
        if changed:
            hint = "restrict the filter, or add a row or column for each"
            self.warn(f"the mean is over runs that differ in {format_names(changed, _SHOWN)}", where, hint, cell)

    def warn(self, message: str, where: str, hint: str = "", cell: str = "") -> None:
        """Add a warning, which may be about several cells."""
        cells = self._warnings.setdefault((message, hint), (where, []))[1]
        if cell and cell not in cells:
            cells.append(cell)

    def list_warnings(self) -> list[Problem]:
        return [
            Problem(f"{format_names(cells, _SHOWN)}: {message}" if cells else message, where, hint=hint, error=False)
            for (message, hint), (where, cells) in self._warnings.items()
        ]

    def _load(self, numbers: set[int]) -> list[Row]:
        """Load runs, newest first, and only one of each config, code and seed."""
        rows = sorted(self._read(numbers), key=lambda row: row.age, reverse=True)
        return drop_repeats(rows)

    def _read(self, numbers: set[int]) -> list[Row]:
        self._known |= {
            row.id: row for row in self.index.load([number for number in numbers if number not in self._known])
        }
        return [self._known[number] for number in numbers if number in self._known]

    @cached_property
    def _groups(self) -> list[set[int]]:
        return [self._all & set(group) for group in self.index.query_groups(kind="train")]

    def _choose(self, item: RowSpec | ColumnSpec, generated: Mapping[str, set[int]]) -> set[int] | None:
        if item.filter is None:
            return generated.get(item.name)
        return self._find(item.filter, item.where)

    def _find(self, text: str, where: str, kind: str = "") -> set[int]:
        """Return the records that match a filter; a name that no record has is a warning."""
        if not self.has_records:
            return set()
        try:
            return {number for (number,) in self.index.query_groups(text, fold=False, kind=kind)}
        except UnknownName as error:
            self.warn(error.problem.message, where, error.problem.hint)
        except BadFilter as error:
            raise AlchemyError(error.problem.message, where=where, hint=error.problem.hint) from None
        return set()

    def _group(self, option: str, key: str, largest: int) -> dict[str, set[int]]:
        """Group the runs of the table by the value of a config key or field."""
        if not key or not self.has_records:
            return {}
        rows = self._read(self._all)
        if key in BY_FIELDS:
            texts = {row.id: row.tag if key == "tag" else row.variant for row in rows}
        else:
            texts = self.index.config_values(rows, key)
            if not self.index.names.find_keys(key):
                hint = did_you_mean(key, BY_FIELDS) or self.index.names.suggest(key)
                self.warn(f"no record has a config key {key!r}", self.file.locate(option), hint)
        groups: dict[str, set[int]] = {}
        for number, text in texts.items():
            groups.setdefault(text, set()).add(number)
        if len(groups) > largest:
            message = f"{option}: {key} has {len(groups)} values, at most {largest} are allowed"
            raise AlchemyError(message, where=self.file.locate(option), hint="use `filter` to select fewer runs")
        names = _shorten({text: text.rpartition(".")[2] or text for text in groups}) if key.endswith("type") else {}
        return {names.get(text, text) or "(empty)": groups[text] for text in sorted(groups, key=_natural)}


def _shorten(names: dict[str, str]) -> dict[str, str]:
    """Return shorter names, unless two would be equal."""
    return names if len(set(names.values())) == len(names) else {}


def _natural(text: str) -> tuple[float, list[str | int]]:
    """Return a sort key: numbers by value, then texts, with the numbers in them by value.

    >>> sorted(["exp10", "exp2", "1e-3", "0.01"], key=_natural)
    ['1e-3', '0.01', 'exp2', 'exp10']
    """
    try:
        return float(text), []
    except ValueError:
        return float("inf"), [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]
