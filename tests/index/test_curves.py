"""The curves of metrics: read exactly, and stored in levels that keep the extremes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.index import metric_entries, read_curves
from alchemy.index.curves import (
    MAX_METRICS,
    START,
    Bucket,
    Curve,
    bucketize,
    build_levels,
    complete_epochs,
    merge_buckets,
    pack,
    unpack,
)
from alchemy.index.metric_entries import MetricEntries, read_metric_entries
from alchemy.records.metrics_file import read_metrics
from tests.index.metric_files import rows

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that every example writes anew."""
    return tmp_path_factory.mktemp("curves") / "metrics.jsonl"


def write(path: Path, lines: list[str], end: str = "") -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode() + end.encode())


def as_points(curve: Curve) -> list[tuple[int, str]]:
    return [(update, repr(value)) for update, value in zip(curve.updates, curve.values, strict=True)]


def read_slowly(path: Path) -> dict[str, list[tuple[int, str]]]:
    """The same curves, by `read_metrics`."""
    found: dict[str, list[tuple[int, str]]] = {}
    for row in read_metrics(path):
        for name, value in row.get("values", {}).items():
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
            if abs(row["update"]) < 2**63:
                found.setdefault(name, []).append((row["update"], repr(number)))
    return found


@given(
    lines=rows(),
    end=st.sampled_from(["", '{"update": 99', '{"update": 99, "values": {"loss": 1}}']),
    size=st.integers(1, 500),
)
def test_curves_are_those_of_read_metrics(path: Path, lines: list[str], end: str, size: int) -> None:
    """Damaged and superseded lines are skipped, and a last line without its end, wherever a block is cut."""
    write(path, lines, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_curves, "BLOCK", size)
        curves = read_curves.read_curves(path)
    assert {name: as_points(curve) for name, curve in curves.metrics.items()} == read_slowly(path)
    assert (curves.lines, curves.size) == (len(lines), len("".join(f"{line}\n" for line in lines).encode()))
    assert curves.updates == ([row["update"] for row in read_metrics(path) if row["update"] < 2**63] or [0])[-1]


@given(first=rows(damaged=False, resumed=False), second=rows(damaged=False, resumed=False), kept=st.integers(0, 30))
def test_a_resumed_run_has_the_epochs_of_its_valid_rows(
    path: Path, first: list[str], second: list[str], kept: int
) -> None:
    event = json.dumps({"event": "resume", "gen": 1, "from_update": 0, "from_line": min(kept, len(first))})
    write(path, [*first, event, *second])
    resumed = read_curves.read_curves(path).clocks
    write(path, [*first[:kept], *second])
    uninterrupted = read_curves.read_curves(path).clocks
    for name in uninterrupted:
        assert as_points(resumed[name]) == as_points(uninterrupted[name])


def test_a_line_that_is_too_long_is_skipped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_curves, "LONGEST", 1000)
    monkeypatch.setattr(read_curves, "BLOCK", 300)
    row = '{"update": %d, "step": 1, "epoch": 0, "t": 1, "values": {"loss": 1.5}}'
    write(path, [row % 1, row % 2 + " " * 5000, row % 3, "x" * 1100, row % 5])
    curves = read_curves.read_curves(path)
    assert (list(curves.metrics["loss"].updates), list(curves.metrics["loss"].lines)) == ([1, 3, 5], [1, 3, 5])
    assert curves.size == path.stat().st_size


def test_names_that_cannot_be_stored_are_skipped(path: Path) -> None:
    names = ["a\0", "\ud800", "x" * 501, *(f"m{number}" for number in range(MAX_METRICS + 10))]
    row = {"update": 1, "step": 1, "epoch": 0, "t": 1.0, "values": dict.fromkeys(names, 1.0)}
    write(path, [json.dumps(row)])
    assert list(read_curves.read_curves(path).metrics) == names[3 : 3 + MAX_METRICS]


def make_curve(values: list[float]) -> Curve:
    curve = Curve()
    for place, value in enumerate(values):
        curve.append(place + 1, 2 * place, value)
    return curve


@given(values=st.lists(FLOATS, min_size=1, max_size=60), size=st.integers(1, 7), factor=st.integers(1, 5))
def test_buckets_keep_the_extremes(values: list[float], size: int, factor: int) -> None:
    finest = bucketize(make_curve(values), size)
    for buckets, width in ((finest, size), (merge_buckets(finest, factor), size * factor)):
        for place, bucket in enumerate(buckets):
            part = values[place * width : (place + 1) * width]
            known = [value for value in part if math.isfinite(value)]
            assert (bucket.first, bucket.last) == (2 * place * width, 2 * (place * width + len(part) - 1))
            if known:
                assert (bucket.low, bucket.high) == (min(known), max(known))
                slack = 1e-9 * max(map(abs, known))
                assert bucket.low - slack <= bucket.mean <= bucket.high + slack
            else:
                assert all(map(math.isnan, bucket[2:]))
        assert repr(unpack(pack(buckets))) == repr([Bucket(*map(float, bucket)) for bucket in buckets])


def test_a_level_is_never_too_long_to_plot() -> None:
    levels = build_levels(bucketize(make_curve([1.0] * 100_000), 1))
    assert [len(level) for level in levels] == [100_000, 25_000, 6250, 1563]


@pytest.mark.parametrize(
    ("ends", "updates", "expected"),
    [((), 0, ()), ((), 7, (1.0,)), ((10,), 10, (1.0,)), ((10,), 15, (1.0, 1.5)), ((10, 20), 40, (1.0, 2.0, 3.0))],
)
def test_the_last_epoch_may_be_incomplete(ends: tuple[int, ...], updates: int, expected: tuple[float, ...]) -> None:
    buckets = [Bucket(end, end, place + 1, place + 1, place + 1) for place, end in enumerate(ends)]
    assert tuple(bucket.high for bucket in complete_epochs(buckets, updates)) == expected


def without_mark(entries: MetricEntries) -> str:
    tables = [sorted(map(repr, table.items())) for table in (entries.summaries, entries.series)]
    return repr((tables, entries._replace(summaries={}, series={}, mark=START)))


@given(data=st.data())
def test_a_file_that_grows_has_the_entries_of_one_read_at_once(path: Path, data: Any) -> None:
    """In any number of steps, with any change of the best checkpoint, and for runs that are resumed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric_entries, "LARGE_FILE", 300)
        patch.setattr(read_curves, "BLOCK", data.draw(st.integers(50, 400)))
        patch.setattr("alchemy.index.curves.MAX_BUCKETS", data.draw(st.sampled_from([3, 10, 2000])))
        patch.setattr("alchemy.index.curves.FIRST_LEVEL", 4)
        known, lines, best = None, [], None
        for _ in range(data.draw(st.integers(1, 4))):
            lines += data.draw(rows())
            write(path, lines, data.draw(st.sampled_from(["", '{"upda'])))
            best = data.draw(st.sampled_from([best, None, data.draw(st.integers(0, 60))]))
            whole = read_metric_entries(path, best)
            known = read_metric_entries(path, best, known)
            assert without_mark(known) == without_mark(whole)


def test_only_the_end_of_a_long_file_is_read_again(path: Path) -> None:
    row = '{"update": %d, "step": 1, "epoch": 0, "t": 1.0, "gen": 0, "values": {"loss": %d.5}}'
    lines = [row % (number, number % 13) for number in range(1, 60_001)]
    write(path, lines[:59_990])
    known = read_metric_entries(path, None)
    assert known.mark.lines > 50_000
    write(path, lines)
    starts, whole = [], read_metric_entries(path, None)
    with pytest.MonkeyPatch.context() as patch:
        read = read_curves.read_curves
        patch.setattr(metric_entries, "read_curves", lambda path, start: starts.append(start) or read(path, start))
        assert without_mark(read_metric_entries(path, None, known)) == without_mark(whole)
    assert starts == [known.mark]
