"""The metrics of a run: rows invalidated by a resume, and what two equal runs have in common."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from alchemy.records.metrics_file import MetricsFile, comparable, read_metrics


def logged(path: Path, updates: range, series: MetricsFile | None = None, **extra: float) -> MetricsFile:
    series = series or MetricsFile(path)
    for update in updates:
        series.log({"train/loss": update / 7, "time/step": 0.1, **extra}, update=update, step=update, epoch=0)
    return series


def test_a_row_is_what_it_always_was(tmp_path: Path) -> None:
    series = MetricsFile(tmp_path / "m")
    series.log({"a": 1, "b": math.nan, "词": -math.inf}, update=1, step=2, epoch=3)
    series.close()
    text = (tmp_path / "m").read_text("utf-8")
    row = json.loads(text)
    assert text == json.dumps(row, ensure_ascii=False) + "\n"
    assert list(row) == ["update", "step", "epoch", "t", "gen", "values"]
    assert row | {"t": 0} == {"update": 1, "step": 2, "epoch": 3, "t": 0, "gen": 0} | {
        "values": {"a": 1, "b": "nan", "词": "-inf"}
    }


def test_a_row_is_that_of_the_moment_and_any_name_can_be_written(tmp_path: Path) -> None:
    series, values = MetricsFile(tmp_path / "m"), {"half \udc80": 1.5}
    series.log(values, update=1, step=1, epoch=0)
    values["later"] = 2.0  # the caller may change its dict later
    series.close()
    (row,) = read_metrics(tmp_path / "m")
    assert row["values"] == {"half \udc80": 1.5}
    assert (series.lines, series.dropped) == (1, 0)


def test_a_resumed_run_counts_on_and_its_dead_rows_are_passed_over(tmp_path: Path) -> None:
    series = logged(tmp_path / "m", range(4))
    lines = series.lines
    logged(tmp_path / "m", range(4, 6), series).close()
    again = MetricsFile(tmp_path / "m")
    again.resume(1, 3, lines, seconds=100.0)
    assert (lines, again.lines) == (4, 7)
    logged(tmp_path / "m", range(4, 9), again).close()
    rows = list(read_metrics(tmp_path / "m"))
    assert [(row["update"], row["gen"]) for row in rows] == [(n, n > 3) for n in range(9)]
    assert rows[-1]["t"] >= 100
    assert [row["update"] for row in read_metrics(tmp_path / "m", alive=False)] == [*range(6), *range(4, 9)]
    assert set(again.cost) == {"calling", "writing"}
    assert again.flush() is True and again.sync() is False  # closed: all written, nothing left to sync


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=4))
def test_a_run_killed_at_any_time_any_number_of_times_equals_one_that_was_not(
    tmp_path_factory: Any, kills: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("series")
    logged(folder / "whole", range(10)).close()
    series, begin, lines = MetricsFile(folder / "killed"), 0, {0: 0}
    for gen, (end, back) in enumerate(kills, 1):
        for update in range(begin, end):
            logged(folder / "killed", range(update, update + 1), series)
            lines[update + 1] = series.lines
        series.close()
        begin = min(max(begin, end), back)  # resumed from a state saved there
        series = MetricsFile(folder / "killed")
        series.resume(gen, begin, lines[begin])
    logged(folder / "killed", range(begin, 10), series).close()
    assert comparable(folder / "killed") == comparable(folder / "whole")


def test_clock_and_machine_do_not_count(tmp_path: Path) -> None:
    one = logged(tmp_path / "one", range(3), None, **{"system/rss": 1.0})
    one.log({"time/eval_dev": 1.0}, update=3, step=3, epoch=0)
    one.close()
    other = MetricsFile(tmp_path / "other", gen=2)
    logged(tmp_path / "other", range(3), other, **{"system/rss": 2.0}).close()
    assert comparable(tmp_path / "one") == comparable(tmp_path / "other")
    assert comparable(tmp_path / "one")[2] == {"update": 2, "step": 2, "epoch": 0, "values": {"train/loss": 2 / 7}}
