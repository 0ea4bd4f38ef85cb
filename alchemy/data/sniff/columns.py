"""Detect the text, label and id columns of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from alchemy.data.messages import in_short, shorten
from alchemy.data.sniff import names
from alchemy.data.sniff.layout import SniffedTable, is_number
from alchemy.data.tables import is_blank
from alchemy.errors import AlchemyError, did_you_mean

FEW = 0.5  # maximum ratio of distinct labels to rows
MOST_LABELS = 500


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of a column."""

    place: int
    name: str
    kind: str  # "text", "number", "list" or "other"
    blank: int
    distinct: int
    length: float  # median, in characters

    @property
    def is_text(self) -> bool:
        return self.kind == "text"


def describe_columns(table: SniffedTable) -> list[ColumnStats]:
    """Return the statistics of all columns."""
    return [_describe_column(place, name, table.column(place)) for place, name in enumerate(table.names)]


def _describe_column(place: int, name: str, cells: Sequence[Any]) -> ColumnStats:
    filled = [cell for cell in cells if cell is not None and not (isinstance(cell, str) and is_blank(cell))]
    kind = "other"
    if filled and all(isinstance(cell, list) for cell in filled):
        kind = "list"
    elif filled and all(map(is_number, filled)):
        kind = "number"
    elif filled and all(isinstance(cell, str) for cell in filled):
        kind = "text"
    distinct = len(set(map(str, filled)))
    length = median(len(str(cell)) for cell in filled) if filled else 0.0
    return ColumnStats(place, name, kind, len(cells) - len(filled), distinct, length)


def get_column(columns: Sequence[ColumnStats], key: str, option: str, path: object) -> ColumnStats:
    """Return the column with a given name or number."""
    found = next((column for column in columns if column.name == key), None)
    if found is None and key.lstrip("-").isdigit() and -len(columns) <= int(key) < len(columns):
        found = columns[int(key)]
    if found is None:
        all_names = [column.name for column in columns]
        hint = did_you_mean(key, all_names) or f"available columns: {in_short(all_names)}"
        raise AlchemyError(f"{path} has no column {key!r} ({option})", hint=hint)
    return found


def find_texts(columns: Sequence[ColumnStats], rows: int, wanted: Sequence[str]) -> list[ColumnStats]:
    """Return a column for each wanted kind of text: found by name if possible, otherwise by text length."""
    free = [column for column in columns if column.is_text]
    found: list[ColumnStats] = []
    for what in wanted:
        if match := _find_by_name(free, what):
            found.append(match)
            free.remove(match)
    if len(found) < len(wanted):
        varied = [column for column in free if column.distinct > 1 and not is_id(column)]
        longest = sorted(varied, key=lambda column: (-_score_prose(column, rows), column.place))
        found = sorted([*found, *longest[: len(wanted) - len(found)]], key=lambda column: column.place)
    return found


def is_id(column: ColumnStats) -> bool:
    return names.normalize(column.name) in names.NAMES["id"]


def _score_prose(column: ColumnStats, rows: int) -> float:
    """Score how much a column looks like prose: long, with few repeated values."""
    return column.length * column.distinct / max(rows, 1)


def _find_by_name(columns: Iterable[ColumnStats], what: str) -> ColumnStats | None:
    ranked = [(place, column) for column in columns if (place := names.rank(column.name, what)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def find_label(columns: Sequence[ColumnStats], taken: Sequence[ColumnStats], rows: int) -> ColumnStats | None:
    """Return the label column: found by name, or else the last one with repeated values, preferring text to numbers."""
    free = [column for column in columns if column not in taken and column.kind != "other" and not is_id(column)]
    if (named := _find_by_name(free, "label")) and named.distinct > 0:
        return named
    fits = [column for column in free if 2 <= column.distinct <= min(MOST_LABELS, rows * FEW)]
    return max(fits, key=lambda column: (column.kind == "text", column.place), default=None)


def count_labels(cells: Iterable[Any]) -> Counter[str]:
    """Count the labels; each label in a list is counted."""
    flat = (value for cell in cells for value in (cell if isinstance(cell, list) else [cell]))
    return Counter(str(value).strip() for value in flat if value is not None and str(value).strip())


def check_label(path: object, column: ColumnStats, labels: Counter[str], rows: int, *, explicit: bool) -> str:
    """Return the kind of task (`"single"`, `"multi"` or `"regression"`); raise if the column cannot be the label.

    `explicit` means that the user chose the column.
    """
    if column.kind == "list":
        return "multi"
    if len(labels) == 1:
        only = next(iter(labels))
        hint = "choose another column with --label"
        raise AlchemyError(f"{path}: column {column.name!r} has only one label, {shorten(only)}", hint=hint)
    if column.kind == "number" and (len(labels) > MOST_LABELS or len(labels) > rows * FEW) and rows > 10:
        if explicit:
            return "regression"
        text = f"{path}: column {column.name!r} has {len(labels):,} values in {rows:,} rows"
        hint = f"choose another column with --label, or use '--label {column.name}' to predict a number"
        raise AlchemyError(f"{text}: it may be an id or a regression target", hint=hint)
    if len(labels) > rows * FEW and rows > 10:
        text = f"{path}: column {column.name!r} has {len(labels):,} values in {rows:,} rows"
        raise AlchemyError(f"{text}: it looks like an id or text", hint="set the label column with --label")
    return "single"
