"""The table of records: folded over seeds, with columns for fields, config keys and metrics."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.index.config_changes import find_changed_keys
from alchemy.index.filters import FUNCTIONS
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row, drop_repeats
from alchemy.index.value_format import format_number

MAX_CHANGED = 4  # columns for config keys that differ
_OF_FIRST = ("id", "purpose", "notes", "path", "cmd", "created", "ended")  # a folded line shows the first run's
_FUNCTION = re.compile(rf"({'|'.join(FUNCTIONS)})\((.*)\)", re.DOTALL)
Value = float | str | None


class UnknownColumn(AlchemyError):
    """A column that is not a field, nor a config key or metric of any record."""


class Cell(NamedTuple):
    """A value over one or several runs: the mean and standard deviation of numbers, or the distinct texts."""

    value: Value
    deviation: float | None = None
    n: int = 1

    def __str__(self) -> str:
        if self.value is None:
            return ""
        if isinstance(self.value, str):
            return self.value
        if self.deviation is None:
            return format_number(self.value)
        return f"{format_number(self.value)} ± {format_number(self.deviation, 2)} ({self.n})"


class Line(NamedTuple):
    """A line of the table: runs that differ only in their seed, the one it is named after first, and its cells."""

    runs: list[Row]
    cells: dict[str, Cell]


class Listing(NamedTuple):
    """A table of records; `total` counts all runs that match, `shown` those in the table.

    `further` are config keys that differ between the records, but for which no column was chosen.
    """

    columns: list[str]
    lines: list[Line]
    total: int
    shown: int
    further: list[str]


def build_listing(
    index: RecordIndex,
    text: str = "",
    *,
    columns: Sequence[str] = (),
    more: Sequence[str] = (),
    sort: str = "-created",
    fold: bool = True,
    limit: int | None = 30,
    kind: str = "",
) -> Listing:
    """List the records that match a filter; `kind` restricts them to one kind, unless the filter mentions it.

    Without `columns`, they are chosen by what differs between the records; `more` columns are appended.
    """
    groups = index.query_groups(text, sort=sort, fold=fold, kind=kind)
    total = sum(map(len, groups))
    chosen = groups if limit is None else groups[:limit]
    rows = {row.id: row for row in index.load([number for group in chosen for number in group])}
    found = ([rows[number] for number in group if number in rows] for group in chosen)
    runs = [sorted(group, key=lambda row: row.rank, reverse=True) for group in found]
    values = Values(index, list(rows.values()))
    changed = values.changed_keys(runs) if len(runs) > 1 and not columns else []
    chosen_columns = columns or [
        name for name in _choose_columns(runs, values, changed[:MAX_CHANGED]) if values.has(name)
    ]
    keys = {name: tuple(values.find_keys(name)) for name in dict.fromkeys([*chosen_columns, *more])}
    first = {numbers: name for name, numbers in reversed(keys.items())}  # `lr` after `optim.lr` shows the same again
    names = [name for name, numbers in keys.items() if not numbers or first[numbers] == name]
    lines = [Line(group, {}) for group in runs]
    for name in names:
        get, measured = values.getter(name), name == "best" or not (keys[name] or name in FIELD_COLUMNS)
        for line in lines:
            line.cells[name] = _cell(name, get, line.runs, measured)
    shown = {number for numbers in keys.values() for number in numbers}
    further = [key for key in changed if index.names.number_of(key) not in shown]
    return Listing(names, lines, total, sum(map(len, runs)), further)


def known_columns(index: RecordIndex, names: Sequence[str]) -> list[str]:
    """Return those columns that some record has: settings may name metrics that no run has logged yet."""
    values = Values(index, [])
    return [name for name in names if values.has(name)]


def _cell(name: str, get: Callable[[Row], Value], group: Sequence[Row], measured: bool) -> Cell:
    if name == "runs":
        return Cell(float(len(group)))
    if name == "tags":
        return Cell(", ".join(sorted({tag for row in group for tag in row.tag_list})))
    if name == "status":  # what did not finish is shown first
        group = sorted(group, key=lambda row: row.status == "finished")
    elif name not in FIELD_COLUMNS:
        group = drop_repeats(group)
    return summarize_values([get(row) for row in (group[:1] if name in _OF_FIRST else group)], measured)


def summarize_values(values: Sequence[Value], measured: bool = True) -> Cell:
    """Combine the values of several runs; equal numbers have a standard deviation only if they were `measured`.

    >>> str(summarize_values([0.8, 0.9, 1.0])), str(summarize_values(["a", "a"])), str(summarize_values([1.0, None]))
    ('0.9 ± 0.1 (3)', 'a', '1 (1)')
    >>> str(summarize_values([0.9, 0.9])), str(summarize_values([0.9, 0.9], measured=False))
    ('0.9 ± 0 (2)', '0.9')
    """
    known = [value for value in values if value is not None]
    if not known:
        return Cell(None)
    if all(isinstance(value, float) for value in known):
        numbers = [float(value) for value in known]
        alike = len(known) == len(values) and len(set(numbers)) == 1
        if len(values) == 1 or (alike and not measured):
            return Cell(numbers[0], None, len(numbers))
        if len(numbers) == 1:
            return Cell(f"{format_number(numbers[0])} (1)", None, 1)
        return Cell(statistics.fmean(numbers), statistics.stdev(numbers), len(numbers))
    counts = Counter(map(str, known))
    return Cell(
        ", ".join(
            f"{text} ×{count}" if len(counts) > 1 and count > 1 else text for text, count in counts.items() if text
        )
    )


class Values:
    """Looks up the columns of some records, reading each kind of value once."""

    def __init__(self, index: RecordIndex, rows: Sequence[Row]) -> None:
        self._index, self.rows = index, rows
        self._metrics: dict[int, dict[str, Mapping[str, Any]]] | None = None

    @property
    def metrics(self) -> dict[int, dict[str, Mapping[str, Any]]]:
        if self._metrics is None:
            self._metrics = self._index.metrics(self.rows)
        return self._metrics

    def getter(self, name: str) -> Callable[[Row], Value]:
        """Return a function that looks up a column of a record; raises an error if no record has it."""
        if name in FIELD_COLUMNS:
            return FIELD_COLUMNS[name]
        if match := _FUNCTION.fullmatch(name):
            return self._metric_getter(match[2].strip(), FUNCTIONS[match[1]])
        if self._index.names.find_metrics(name):
            return self._metric_getter(name, "at_best")
        if self.find_keys(name):
            texts = self._index.config_values(self.rows, name)
            return lambda row: _parse(texts.get(row.id))
        hint = did_you_mean(name, FIELD_COLUMNS) or self._index.names.suggest(name)
        raise UnknownColumn(f"unknown column {name!r}: no record has such a field, config key or metric", hint=hint)

    def find_keys(self, name: str) -> list[int]:
        """Return the numbers of the config keys that a column shows; an empty list for fields and metrics."""
        if name in FIELD_COLUMNS or _FUNCTION.fullmatch(name) or self._index.names.find_metrics(name):
            return []
        return self._index.names.find_keys(name)

    def has(self, name: str) -> bool:
        """Return whether a column is known; a record may name a metric as its best that no record contains."""
        try:
            self.getter(name)
            return True
        except UnknownColumn:
            return False

    def _metric_getter(self, name: str, statistic: str) -> Callable[[Row], Value]:
        if not self._index.names.find_metrics(name):
            raise UnknownColumn(f"no record has a metric {name!r}", hint=self._index.names.suggest(name))

        def get(row: Row) -> Value:
            found = self.metrics[row.id].get(name)
            return None if found is None else found[statistic]

        return get

    def changed_keys(self, groups: Sequence[Sequence[Row]]) -> list[str]:
        """Return the config keys that differ between groups of runs with the same tag, the most telling ones first."""
        configs = self._index.config([group[0] for group in groups])
        counts: Counter[str] = Counter()
        alike: dict[tuple[str, str], list[dict[str, str]]] = {}  # a test has another config than its training run
        for group in groups:
            alike.setdefault((group[0].tag, group[0].kind), []).append(configs[group[0].id])
        for tables in alike.values():
            counts.update(find_changed_keys(tables))
        return sorted(counts, key=lambda key: (-counts[key], key))


def _choose_columns(groups: Sequence[Sequence[Row]], values: Values, changed: Sequence[str]) -> list[str]:
    rows = [row for group in groups for row in group]
    columns = ["id", "status", "tag"]
    columns += ["purpose"] if any(row.purpose for row in rows) else []
    columns += ["tags"] if any(row.tags for row in rows) else []
    columns += ["runs" if any(len(group) > 1 for group in groups) else "seed"]
    configs = {row.fold_hash for row in rows}
    columns += ["code"] if len({(row.fold_hash, row.code_hash) for row in rows}) > len(configs) else []
    monitored = Counter(row.best_metric for row in rows if row.best_metric)
    scores = [name for name, _ in monitored.most_common(2)]
    tested = {name for table in values.metrics.values() for name in table if name.startswith("test/")}
    wanted = [f"test/{name.partition('/')[2]}" for name in scores]
    columns += scores + [name for name in wanted if name in tested]
    if not scores:
        known = Counter(name for table in values.metrics.values() for name in table)
        scored = [name for name, _ in known.most_common() if name.startswith(("dev/", "test/"))]
        columns += scored[:2] or [name for name in ("train/loss",) if name in known]
    return [*dict.fromkeys([*columns, *changed]), "duration", "created"]


def _parse(text: str | None) -> Value:
    """Return a config value as a number if it is one that a float can represent."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return number if abs(number) < 2**53 else text


# columns that are fields of a record
FIELD_COLUMNS: dict[str, Callable[[Row], Value]] = {
    "id": lambda row: row.name,
    "status": lambda row: row.status,
    "tag": lambda row: row.tag,
    "tags": lambda row: ", ".join(row.tag_list),
    "purpose": lambda row: row.purpose,
    "notes": lambda row: row.notes,
    "reason": lambda row: row.reason,
    "cause": lambda row: row.cause,
    "kind": lambda row: row.kind,
    "seed": lambda row: row.seed,
    "runs": lambda row: None,
    "variant": lambda row: row.variant,
    "sweep": lambda row: row.sweep,
    "point": lambda row: None if row.point is None else float(row.point),
    "parent": lambda row: row.parent,
    "host": lambda row: row.host,
    "path": lambda row: row.path,
    "cmd": lambda row: row.cmd,
    "git": lambda row: row.git[:10],
    "code": lambda row: row.code_hash[:10],
    "cfg": lambda row: row.cfg_hash[:10],
    "updates": lambda row: None if row.updates is None else float(row.updates),
    "best": lambda row: row.best_value,
    "duration": lambda row: row.elapsed,
    "minutes": lambda row: None if row.elapsed is None else row.elapsed / 60,
    "hours": lambda row: None if row.elapsed is None else row.elapsed / 3600,
    "created": lambda row: row.started,
    "ended": lambda row: row.ended,
}
