"""Compare groups of runs: what differs in their configs, how their numbers moved, and whether that is noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from alchemy.analysis.groups import REPEATED, RunGroup, changed_keys, fold_seeds
from alchemy.analysis.statistics import Difference, paired_test, welch_test
from alchemy.errors import AlchemyError
from alchemy.index.filters import FUNCTIONS
from alchemy.index.listing import Cell, summarize_values
from alchemy.index.metric_direction import find_minimizing, is_minimized
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row, drop_repeats
from alchemy.index.value_format import format_count, format_names, format_number
from alchemy.records.metrics_file import MACHINE_PREFIXES

MANY_TESTS = 3  # from this number on, the p-values get a caution


@dataclass
class MetricRow:
    """A metric of each group: its values by run, and the test of each group against the first one."""

    name: str
    monitored: bool
    values: list[list[tuple[Row, float]]]
    tests: list[Difference | None] = field(default_factory=list)

    @property
    def cells(self) -> list[Cell]:
        return [summarize_values([value for _, value in group]) for group in self.values]

    @property
    def means(self) -> list[float | None]:
        return [fmean([value for _, value in group]) if group else None for group in self.values]


@dataclass
class GroupComparison:
    """The result of comparing groups; `config` and `code` list only what differs, with a value for each group."""

    groups: list[RunGroup]
    config: dict[str, list[str | None]]
    code: list[str]
    metrics: list[MetricRow]
    verdicts: list[str]
    notes: list[str]


def compare_groups(
    index: RecordIndex,
    groups: Sequence[RunGroup],
    *,
    metrics: Sequence[str] = (),
    at: str = "best",
    confidence: float = 0.95,
) -> GroupComparison:
    """Compare groups of runs with the first one, by their values `at` the best checkpoint, or another statistic."""
    notes = [note for group in groups for note in _find_caveats(index, group)]
    notes += _find_shared(groups)
    groups = [group._replace(rows=drop_repeats(group.rows)) for group in groups]
    rows = summarize_metrics(index, groups, metrics, at)
    tested = [row for row in rows if row.monitored or row.name in metrics]
    verdicts = []
    for row in tested:
        lower = is_lower_better(index, groups, row.name)
        row.tests = [None, *(_test(row.values[0], values, confidence) for values in row.values[1:])]
        verdicts += [
            _judge(row, place, groups, lower, confidence) for place in range(1, len(groups)) if row.means[0] is not None
        ]
    count = sum(test is not None for row in tested for test in row.tests)
    if count >= MANY_TESTS:
        notes.append(
            f"{count} tests were made: expect about one in {1 / (1 - confidence):.0f} to be positive by chance"
        )
    codes = [_join_codes(group.rows) for group in groups]
    return GroupComparison(
        list(groups),
        changed_keys(index, [group.rows for group in groups]),
        codes if len(set(codes)) > 1 else [],
        rows,
        verdicts,
        notes,
    )


def _find_caveats(index: RecordIndex, group: RunGroup) -> list[str]:
    """Return what a reader must know about a group before believing its numbers."""
    notes = []
    if keys := list(changed_keys(index, fold_seeds(group.rows))):
        notes.append(f"the runs of {group.label} differ in more than their seed: {format_names(keys, 5)}")
    codes = {row.code_hash for row in group.rows}
    if len(codes) > 1:
        notes.append(f"{group.label} mixes runs of {len(codes)} versions of the code: {_join_codes(group.rows)}")
    repeated = len(group.rows) - len(drop_repeats(group.rows))
    if repeated:
        notes.append(f"{group.label}: {format_count(repeated, 'run')} {REPEATED}")
    statuses = Counter(row.status for row in group.rows if row.status != "finished")
    notes += [
        f"{group.label}: {format_count(count, 'run')} {status or 'unknown'}" for status, count in statuses.items()
    ]
    return notes


def _find_shared(groups: Sequence[RunGroup]) -> list[str]:
    first = {row.id for row in groups[0].rows}
    shared = {group.label: len(first.intersection(row.id for row in group.rows)) for group in groups[1:]}
    return [
        f"{groups[0].label} and {label} share {format_count(count, 'run')}" for label, count in shared.items() if count
    ]


def summarize_metrics(
    index: RecordIndex, groups: Sequence[RunGroup], chosen: Sequence[str] = (), at: str = "best"
) -> list[MetricRow]:
    """Return the chosen metrics, or all of them except time and system metrics, the monitored ones first."""
    tables = index.metrics([row for group in groups for row in group.rows])
    known = {name for table in tables.values() for name in table}
    for name in chosen:
        if name not in known:
            raise AlchemyError(f"none of these runs has a metric {name!r}", hint=index.names.suggest(name))
    monitored = dict.fromkeys(row.best_metric for group in groups for row in group.rows if row.best_metric in known)
    tests = [f"test/{name.partition('/')[2]}" for name in monitored]
    main = list(dict.fromkeys([*monitored, *(name for name in tests if name in known)]))
    others = sorted(name for name in known if name not in main and not name.startswith(MACHINE_PREFIXES))
    names = chosen or [*main, *sorted(others, key=lambda name: not name.startswith("test/"))]
    key = FUNCTIONS[at]
    return [MetricRow(name, name in main, [_values_of(group, tables, name, key) for group in groups]) for name in names]


def _values_of(
    group: RunGroup, tables: Mapping[int, Mapping[str, Mapping[str, Any]]], name: str, key: str
) -> list[tuple[Row, float]]:
    values = [(row, tables[row.id].get(name, {}).get(key)) for row in group.rows]
    return [(row, value) for row, value in values if value is not None]


def _test(one: Sequence[tuple[Row, float]], other: Sequence[tuple[Row, float]], confidence: float) -> Difference | None:
    """Test whether two groups differ: paired if they have the same seeds. None with fewer than two runs in a group."""
    if min(len(one), len(other)) < 2:
        return None
    ours, others = ({row.seed or str(row.id): value for row, value in group} for group in (one, other))
    if ours.keys() == others.keys() and len(ours) == len(one) == len(other):
        return paired_test(list(ours.values()), [others[seed] for seed in ours], confidence)
    return welch_test([value for _, value in one], [value for _, value in other], confidence)


def is_lower_better(index: RecordIndex, groups: Sequence[RunGroup], metric: str) -> bool:
    """Return whether lower values are better: as the runs monitor the metric, else by its name."""
    score = metric.partition("/")[2]
    rows = [row for group in groups for row in group.rows if row.best_metric.partition("/")[2] == score]
    return find_minimizing(index, rows[:1])[rows[0].id] if rows else is_minimized(metric)


def _judge(row: MetricRow, place: int, groups: Sequence[RunGroup], lower: bool, confidence: float) -> str:
    """Return the verdict on a group, compared with the first one, as a sentence."""
    a, b, test = groups[0].label, groups[place].label, row.tests[place]
    base, mean = row.means[0], row.means[place]
    if base is None or mean is None:
        return f"{b} has no value of {row.name}"
    if test is None:
        single = [label for label, values in ((a, row.values[0]), (b, row.values[place])) if len(values) < 2]
        what = f"{' and '.join(single)} {'have' if len(single) > 1 else 'has'} 1 run"
        moved = f"{b} - {a} = {_signed(mean - base)}"
        return f"{row.name}: {moved}, but no statement is possible: {what}; run more seeds, for example --seeds 1,2,3"
    return describe_difference(row.name, (a, b), test, lower=lower, confidence=confidence)


def describe_difference(
    metric: str, labels: tuple[str, str], test: Difference, *, lower: bool, confidence: float = 0.95
) -> str:
    """Return whether two groups of runs differ on a metric by more than the noise of their seeds, as a sentence."""
    a, b = labels
    over = (
        f"paired over {test.counts[0]} seeds"
        if test.paired
        else f"Welch's test, {test.counts[0]} and {test.counts[1]} runs"
    )
    if test.mean == 0 and test.error == 0:
        return f"{a} and {b} have the same {metric} ({over})"
    better, worse = (b, a) if (test.mean < 0) == lower else (a, b)
    if test.error <= 1e-9 * abs(test.mean):  # equal up to rounding: scores of few samples take few values
        ahead = f"{better} is ahead of {worse} on {metric} by {_brief(abs(test.mean))} with every seed"
        return f"{ahead}, but no statement is possible without any spread ({over}); run more seeds"
    low, high = (test.low, test.high) if test.mean > 0 or test.p >= 1 - confidence else (-test.high, -test.low)
    interval = f"{confidence * 100:g} % interval {_brief(low)} .. {_brief(high)}"
    evidence = f"(standard error {_brief(test.error)}, {interval}, p {_format_p(test.p)}, {over})"
    if test.p >= 1 - confidence:
        what = f"{b} - {a} = {_signed(test.mean)} {evidence} is within the noise of the seeds"
        return f"no clear difference between {a} and {b} on {metric}: {what}"
    return f"{better} is better than {worse} on {metric} by {_brief(abs(test.mean))} {evidence}"


def _format_p(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"= {p:.2g}"


def _brief(value: float) -> str:
    return format_number(value, 3)


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{_brief(value)}"


def _join_codes(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(row.code_hash[:10] or "?" for row in rows))
