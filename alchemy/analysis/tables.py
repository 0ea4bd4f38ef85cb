"""Result tables: compute the cells of a table file, and mark the best and the stale ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from alchemy.analysis.table_files import CellSpec, ColumnSpec, Options, RowSpec, TableFile
from alchemy.analysis.table_results import Results, SavedRun, describe_run, load_results
from alchemy.analysis.table_runs import TableRuns
from alchemy.errors import Problem, did_you_mean
from alchemy.index.listing import Value
from alchemy.index.metric_direction import is_minimized
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.value_format import format_count

Kind = Literal["", "typed", "linked", "computed", "saved"]


@dataclass(frozen=True)
class TableCell:
    """A cell of a table; `rank` is 1 for the best of its column, 2 for the second best, 0 otherwise."""

    text: str = ""  # the number or text, as shown
    spread: str = ""  # the standard deviation, as shown
    n: int = 0
    value: float | None = None  # the number, scaled
    std: float | None = None
    kind: Kind = ""
    source: str = ""
    runs: tuple[str, ...] = ()
    stale: str = ""  # why the cell is stale, or an empty string
    rank: int = 0

    def __str__(self) -> str:
        spread = f" ± {self.spread}" if self.spread else ""
        return f"{self.text}{spread} ({self.n})" if self.n > 1 else f"{self.text}{spread}"


@dataclass(frozen=True)
class ResultTable:
    """A computed table: `cells[row][column]`, both by position."""

    file: TableFile
    rows: list[RowSpec]
    columns: list[ColumnSpec]
    cells: list[list[TableCell]]
    warnings: list[Problem]

    @property
    def first_column(self) -> str:
        return self.file.spec.first_column or self.file.spec.rows_by.rpartition(".")[2]

    def walk(self) -> Iterator[tuple[str, str, TableCell]]:
        """Yield the row, the column and the cell, for all cells."""
        for row, cells in zip(self.rows, self.cells, strict=True):
            for column, cell in zip(self.columns, cells, strict=True):
                yield row.name, column.name, cell

    def stale(self) -> list[str]:
        """Return a message for each stale cell."""
        return [f"{row} / {column} is stale: {cell.stale}" for row, column, cell in self.walk() if cell.stale]

    def sources(self) -> dict[str, list[str]]:
        """Return the cells by their source: `{source: ["row / column", ..]}`."""
        found: dict[str, list[str]] = {}
        for row, column, cell in self.walk():
            if cell.source:
                found.setdefault(cell.source, []).append(f"{row} / {column}")
        return found


def build_table(file: TableFile, index: RecordIndex) -> ResultTable:
    """Compute all cells of a table."""
    runs = TableRuns(file, index)
    saved = load_results(file.results_path) if file.results_path else {}
    builder = _Builder(file, runs, saved)
    cells = [[builder.compute(row, column) for column in runs.columns] for row in runs.rows]
    for place, column in enumerate(runs.columns):
        ranks = _rank([line[place] for line in cells], _direction(file, runs.rows, column))
        for line, rank in zip(cells, ranks, strict=True):
            line[place] = replace(line[place], rank=rank)
    known = [column.name for column in runs.columns]
    for row in runs.rows:
        for name in row.cells.keys() - known:  # with `columns_by`, columns are known only now
            runs.warn(f"there is no column {name!r}", row.cells[name].where, did_you_mean(name, known))
    if not runs.has_records and not saved and (file.spec.rows_by or any(map(runs.has_filter, runs.rows))):
        runs.warn(f"there are no records below {', '.join(map(str, index.roots))}", file.locate())
    return ResultTable(file, runs.rows, runs.columns, cells, runs.list_warnings())


class _Builder:
    def __init__(self, file: TableFile, runs: TableRuns, saved: Results) -> None:
        self.file, self.runs, self.saved = file, runs, saved

    def compute(self, row: RowSpec, column: ColumnSpec) -> TableCell:
        given: CellSpec | None = row.cells.get(column.name)
        if given is not None and given.value is not None:
            return _typed(given)
        options = self.file.options(row, column)
        if not options.metric:
            return TableCell()
        source = given.source if given is not None else ""
        saved = self.saved.get((row.name, column.name))
        where, name = (given or row).where, f"{row.name} / {column.name}"
        if saved is not None:
            cell = self._summarize_saved(saved, options, name, where)
            stale = self._find_newer(
                self.runs.fitting(row, column),
                options,
                {run.id for run in saved},
                max(run.time for run in saved),
                where,
            )
        elif given is not None and given.query is None:
            linked, missing = self.runs.linked(given)
            cell = replace(self._summarize(linked, options, name, where), kind="linked")
            fitting = self.runs.fitting(row, column) if self.runs.has_filter(row) else self.runs.similar(linked)
            newest = max((run.started or 0.0 for run in linked), default=math.inf)
            stale = "; ".join(missing) or self._find_newer(
                fitting, options, {run.name for run in linked}, newest, where
            )
        else:
            fitting = self.runs.fitting(row, column)
            cell, stale = self._summarize(fitting, options, name, where), ""
            self.runs.warn_if_mixed(fitting, name, where)
        return replace(cell, source=source, stale=stale)

    def _summarize(self, rows: list[Row], options: Options, name: str, where: str) -> TableCell:
        values = self.runs.values(rows, options.metric, where) if rows else []
        known = [(row.name, value) for row, value in zip(rows, values) if value is not None]
        if len(known) < len(values):
            hint = "`alchemy test RECORD` evaluates a run" if options.metric.startswith("test/") else ""
            lacking = f"{len(rows) - len(known)} of {format_count(len(rows), 'run')}"
            self.runs.warn(f"no finite value of {options.metric} in {lacking}", where, hint, name)
        cell = summarize_runs([value for _, value in known], options)
        return replace(cell, kind="computed" if known else "", runs=tuple(run for run, _ in known))

    def _summarize_saved(self, saved: Sequence[SavedRun], options: Options, name: str, where: str) -> TableCell:
        values = [run.metrics.get(options.metric) for run in saved]
        if None in values:
            hint = f"run `alchemy table save {self.file.name}`"
            self.runs.warn(f"{self.file.spec.results} lacks values of {options.metric}", where, hint, name)
        cell = summarize_runs([value for value in values if value is not None], options)
        return replace(cell, kind="saved", runs=tuple(run.id for run in saved if run.id))

    def _find_newer(self, rows: list[Row], options: Options, shown: set[str], newest: float, where: str) -> str:
        """Return why a cell is stale: newer runs fit that it does not show; or an empty string."""
        newer = [row for row in rows if (row.started or 0.0) > newest and row.name not in shown]
        values = self.runs.values(newer, options.metric, where) if newer else []
        names = [row.name for row, value in zip(newer, values) if value is not None]
        if len(names) > 1:
            return f"{len(names)} newer runs fit, such as {names[0]}"
        return f"a newer run fits: {names[0]}" if names else ""


def collect_results(file: TableFile, index: RecordIndex) -> Results:
    """Return the runs behind each cell that is computed or linked, with the metrics of all columns, to save them."""
    runs = TableRuns(file, index)
    found: Results = {}
    for row in runs.rows:
        metrics = {file.options(row, column).metric for column in runs.columns} - {""}
        for column in runs.columns:
            given, metric = row.cells.get(column.name, CellSpec()), file.options(row, column).metric
            if given.value is not None or not metric:
                continue
            rows = runs.linked(given)[0] if any(given.records) else runs.fitting(row, column)
            values = {name: runs.values(rows, name, row.where) for name in metrics} if rows else {}
            saved = [
                describe_run(run, {name: value[place] for name, value in values.items() if value}, index)
                for place, run in enumerate(rows)
                if values[metric] and isinstance(values[metric][place], float)
            ]
            if saved:
                found[row.name, column.name] = sorted(saved, key=lambda run: (len(run.seed), run.seed, run.started))
    return found


def _typed(given: CellSpec) -> TableCell:
    """Return a cell that is typed in, as written; a string such as "90.90" is a number too."""
    text = given.value if isinstance(given.value, str) else repr(given.value)
    spread = "" if given.std is None else repr(given.std)
    return TableCell(text, spread, given.n or 0, _parse(text), given.std, "typed", given.source)


def _parse(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def summarize_runs(values: Sequence[Value], options: Options) -> TableCell:
    """Summarize the values of several runs: numbers by mean and standard deviation, or median; texts as a list."""
    numbers = [value * options.scale for value in values if isinstance(value, float)]
    if len(numbers) < len(values):
        return TableCell(", ".join(dict.fromkeys(str(value) for value in values)))
    if not numbers:
        return TableCell()
    if options.average == "median":
        middle = statistics.median(numbers)
        return TableCell(format_value(middle, options.digits), value=middle)
    mean = sum(number / len(numbers) for number in numbers)  # cannot overflow
    if len(numbers) == 1:
        return TableCell(format_value(mean, options.digits), n=1, value=mean)
    std = math.hypot(*(number - mean for number in numbers)) / math.sqrt(len(numbers) - 1)
    shown = format_value(mean, options.digits), format_value(std, options.digits)
    return TableCell(*shown, n=len(numbers), value=mean, std=std)


def format_value(value: float, digits: int) -> str:
    """Format a number with a fixed number of decimals; very large numbers get an exponent.

    >>> format_value(90.1499, 2), format_value(-0.001, 2), format_value(1e300, 2)
    ('90.15', '0.00', '1.00e+300')
    """
    if not math.isfinite(value) or abs(value) >= 1e12:
        return f"{value:.{digits}e}"
    return f"{round(value, digits) + 0.0:.{digits}f}"  # adding zero removes the sign of -0.00


def _direction(file: TableFile, rows: Sequence[RowSpec], column: ColumnSpec) -> str:
    """Return whether `higher` or `lower` values of a column are better, or `none` if they cannot be ranked."""
    chosen = column.better or file.spec.better
    if chosen:
        return chosen
    metrics = {file.options(row, column).metric for row in rows} - {""}
    lower = {is_minimized(metric) for metric in metrics}
    if len(lower) != 1 or not all("/" in metric for metric in metrics):
        return "none"
    return "lower" if True in lower else "higher"


def _rank(cells: Sequence[TableCell], better: str) -> list[int]:
    """Return the rank of each cell by the number that it shows: 1 for the best, 2 for the second best, else 0."""
    shown = [_parse(cell.text) if cell.value is not None else None for cell in cells]
    numbers = sorted({number for number in shown if number is not None}, reverse=better == "higher")
    if better == "none" or sum(number is not None for number in shown) < 2:
        return [0] * len(cells)
    return [numbers[:2].index(number) + 1 if number in numbers[:2] else 0 for number in shown]
