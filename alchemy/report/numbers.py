"""The numbers of a report: the monitored metrics, and all metrics by split, over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from alchemy.analysis.compare import MetricRow, compare_groups, is_lower_better, summarize_metrics
from alchemy.analysis.groups import RunGroup
from alchemy.index.listing import Cell as Summary
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import drop_repeats
from alchemy.index.value_format import format_count, format_number
from alchemy.report.blocks import Block, Cell, build_fold, build_list, build_table, build_text, format_cell, name_group
from alchemy.report.curves import sort_splits

STATISTICS = {"best": "at the best checkpoint", "last": "last value", "min": "lowest", "max": "highest"}
FALLBACK = ("test/loss", "dev/loss", "train/loss")  # shown first if no metric is monitored
MOST_METRICS = 200
Tables = Mapping[str, Mapping[str, MetricRow]]  # by statistic and name


class Numbers(NamedTuple):
    """The numbers as blocks, the config keys that differ with a value for each group, and remarks."""

    main: list[Block]
    all: list[Block]
    config: dict[str, list[str | None]]
    notes: list[str]


def build_numbers(index: RecordIndex, groups: Sequence[RunGroup]) -> Numbers:
    """Summarize the metrics of groups of runs, and compare the groups in words."""
    compared = compare_groups(index, groups)
    groups = [group._replace(rows=drop_repeats(group.rows)) for group in groups]
    names = [row.name for row in compared.metrics]
    shown = sort_splits(names[:MOST_METRICS])
    tables = {at: {row.name: row for row in summarize_metrics(index, groups, at=at)} for at in STATISTICS}
    lower = {name: is_lower_better(index, groups, name) for name in shown}
    monitored = [row.name for row in compared.metrics if row.monitored and row.name in lower]
    main = monitored or [name for name in FALLBACK if name in lower][:2]
    notes = list(compared.notes)
    if len(names) > MOST_METRICS:
        notes.append(f"the table shows {MOST_METRICS} of {len(names):,} metrics")
    verdicts = [build_list(compared.verdicts, "verdicts")] if compared.verdicts else []
    head = [*_build_main(groups, [tables["best"][name] for name in main], lower), *verdicts]
    return Numbers(head, _build_all(groups, shown, tables, lower), compared.config, notes)


def _build_main(groups: Sequence[RunGroup], rows: Sequence[MetricRow], lower: Mapping[str, bool]) -> list[Block]:
    """Return the most important metrics: large numbers of one group, or a table of several."""
    if not rows:
        return [build_text("These runs have logged no score and no loss yet.", "note")]
    if len(groups) == 1:
        values = [{"name": row.name, **_enlarge(row.cells[0], lower[row.name])} for row in rows]
        return [{"kind": "big", "value": values}]
    head = [{"text": row.name, "small": f" {_describe_direction(lower[row.name])}"} for row in rows]
    leading = {row.name: _find_leading(row, lower[row.name]) for row in rows}
    several = len({_read_purpose(group) for group in groups} - {""}) > 1  # a single one is the lead of the page
    lines: list[list[Cell]] = []
    for place, group in enumerate(groups):
        values = [_format(row.cells[place], best=place in leading[row.name]) for row in rows]
        small = _read_purpose(group) if several else ""
        statuses = ", ".join(sorted({run.status or "unknown" for run in group.rows}))
        lines.append([name_group(place, small=small), *values, f"{format_count(len(group.rows), 'run')}, {statuses}"])
    return [build_table(["", *head, ""], lines, main=True)]


def _read_purpose(group: RunGroup) -> str:
    return next((row.purpose for row in group.rows if row.purpose), "")


def _enlarge(cell: Summary, lower: bool) -> dict[str, str]:
    value, spread = _split(cell)
    seeds = f"mean of {format_count(cell.n, 'seed')} · " if cell.deviation is not None else ""
    return {"value": value or "–", "spread": spread, "small": f"{seeds}{_describe_direction(lower)}"}


def _describe_direction(lower: bool) -> str:
    return "lower is better" if lower else "higher is better"


def _build_all(
    groups: Sequence[RunGroup], names: Sequence[str], tables: Tables, lower: Mapping[str, bool]
) -> list[Block]:
    """Return all metrics: one group with all statistics side by side, several with a table for each statistic."""
    if not names:
        return []
    if len(groups) == 1:
        rows = {name: [_format(tables[at][name].cells[0]) for at in STATISTICS] for name in names}
        return [build_table(["", *STATISTICS.values()], _add_splits(names, rows))]
    found = []
    for at, title in STATISTICS.items():
        rows = {}
        for name in names:
            row = tables[at][name]
            leading = _find_leading(row, lower[name])
            rows[name] = [_format(cell, best=place in leading) for place, cell in enumerate(row.cells)]
        head = [name_group(place, brief=True) for place in range(len(groups))]
        found.append(
            build_fold(title.capitalize(), build_table(["", *head], _add_splits(names, rows)), is_open=at == "best")
        )
    return [{"kind": "tags"}, *found]


def _add_splits(names: Sequence[str], rows: Mapping[str, Sequence[Block]]) -> list[list[Cell]]:
    """Return the rows of a table, with a heading for each split."""
    found: list[list[Cell]] = []
    last = None
    for name in names:
        split = name.rpartition("/")[0] or "other"
        found += [] if split == last else [[split]]
        found.append([name, *rows[name]])
        last = split
    return found


def _find_leading(row: MetricRow, lower: bool) -> list[int]:
    """Return the groups with the best mean; none if all are equal, or for training, where better is not the aim."""
    known = [mean for mean in row.means if mean is not None]
    if row.name.startswith("train/") or len(known) < 2 or min(known) == max(known):
        return []
    goal = min(known) if lower else max(known)
    return [place for place, mean in enumerate(row.means) if mean == goal]


def _format(cell: Summary, *, best: bool = False) -> Block:
    return format_cell(*_split(cell), best=best)


def _split(cell: Summary) -> tuple[str, str]:
    """Return the value of a cell and its standard deviation, as texts."""
    value = format_number(cell.value) if isinstance(cell.value, float) else str(cell.value or "")
    return value, "" if cell.deviation is None else f" ± {format_number(cell.deviation, 2)}"
