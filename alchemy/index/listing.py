"""The table of records: folded over seeds, with columns for fields, config keys and metrics."""

from __future__ import annotations

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
    """A line of the table: runs that differ only in their seed, the one that names it first, and its cells by column."""

    runs: list[Row]
    cells: dict[str, Cell]


class Listing(NamedTuple):
    """A table of records; `total` counts all runs that match, `shown` those in the table."""

    columns: list[str]
    lines: list[Line]
    total: int
    shown: int


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
    chosen_columns = columns or [name for name in _choose_columns(runs, values) if values.has(name)]
    names = list(dict.fromkeys([*chosen_columns, *more]))
    getters = {name: values.getter(name) for name in names}
    lines = [Line(group, {name: _cell(name, get, group) for name, get in getters.items()}) for group in runs]
    return Listing(names, lines, total, sum(map(len, runs)))


def known_columns(index: RecordIndex, names: Sequence[str]) -> list[str]:
    """Return those columns that some record has: settings may name metrics that no run has logged yet."""
    values = Values(index, [])
    return [name for name in names if values.has(name)]


def _cell(name: str, get: Callable[[Row], Value], group: Sequence[Row]) -> Cell:
    if name == "runs":
        return Cell(float(len(group)))
    if name == "tags":
        return Cell(", ".join(sorted({tag for row in group for tag in row.tag_list})))
    if name == "status":  # what did not finish is shown first
        group = sorted(group, key=lambda row: row.status == "finished")
    elif name not in FIELD_COLUMNS:
        group = drop_repeats(group)
    return summarize_values([get(row) for row in (group[:1] if name in _OF_FIRST else group)])


def summarize_values(values: Sequence[Value]) -> Cell:
    """Combine the values of several runs.

    >>> str(summarize_values([0.8, 0.9, 1.0])), str(summarize_values(["a", "a"])), str(summarize_values([1.0, None]))
    ('0.9 ± 0.1 (3)', 'a', '1 (1)')
    """
    known = [value for value in values if value is not None]
    if not known:
        return Cell(None)
    if all(isinstance(value, float) for value in known):
        numbers = [float(value) for value in known]
        if len(values) == 1 or (len(known) == len(values) and len(set(numbers)) == 1):
            return Cell(numbers[0], None, len(numbers))
        if len(numbers) == 1:
            return Cell(f"{format_number(numbers[0])} (1)", None, 1)
        return Cell(statistics.fmean(numbers), statistics.stdev(numbers), len(numbers))
    counts = Counter(map(str, known))
    return Cell(
        ", ".join(f"{text} ×{count}" if len(counts) > 1 and count > 1 else text for text, count in counts.items())
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
        kind, _, metric = name.partition("(")
        if kind in FUNCTIONS and metric.endswith(")"):
            return self._metric_getter(metric[:-1].strip(), FUNCTIONS[kind])
        if self._index.names.find_metrics(name):
            return self._metric_getter(name, "at_best")
        if self._index.names.find_keys(name):
            texts = self._index.config_values(self.rows, name)
            return lambda row: _parse(texts.get(row.id))
        hint = did_you_mean(name, FIELD_COLUMNS) or self._index.names.suggest(name)
        raise UnknownColumn(f"unknown column {name!r}: no record has such a field, config key or metric", hint=hint)

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
        return sorted(counts, key=lambda key: (-counts[key], key))[:MAX_CHANGED]


def _choose_columns(groups: Sequence[Sequence[Row]], values: Values) -> list[str]:
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
    columns += values.changed_keys(groups) if len(groups) > 1 else []
    return [*dict.fromkeys(columns), "duration", "created"]


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
