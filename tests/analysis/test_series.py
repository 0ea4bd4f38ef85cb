"""The curves of a plot: axes, smoothing, and the mean over seeds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.groups import select_runs
from alchemy.analysis.series import Plot, build_plot, smooth_values
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_curves import write_curves


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build(text: str, *metrics: str, **options: object) -> Plot:
    with RecordIndex.open() as index:
        panels = [name.split(",") for name in metrics]
        return build_plot(index, select_runs(index, text), panels, **options)  # type: ignore[arg-type]


def test_a_run_is_a_curve_over_updates_epochs_or_time(project: Path) -> None:
    write_curves(project, 1, {"dev/f1": [0.1, 0.2, 0.3, 0.4]}, per_epoch=2, seconds=60)
    xs = {}
    for x in ("update", "epoch", "time"):
        plot = build("last", "dev/f1", x=x)
        (line,) = plot.panels[0].lines
        assert line.ys == [0.1, 0.2, 0.3, 0.4] and line.runs == 1 and not line.low
        xs[plot.x_label] = line.xs
    assert xs == {"update": [1, 2, 3, 4], "epoch": [0.5, 1, 1.5, 2], "time (seconds)": [60, 120, 180, 240]}


def test_seeds_become_a_mean_with_a_band(project: Path) -> None:
    for seed, values in enumerate(([1.0, 2.0, 3.0], [3.0, 4.0, 5.0])):
        write_curves(project, seed, {"dev/f1": values}, seed=seed)
    write_curves(project, 5, {"dev/f1": [9.0]}, {"lr": 0.1})
    first, second = build("tag:demo", "dev/f1").panels[0].lines
    assert (first.ys, first.runs, second.ys) == ([2, 3, 4], 2, [9])
    assert first.high[0] == pytest.approx(2 + math.sqrt(2)) and first.low[0] == pytest.approx(2 - math.sqrt(2))
    assert second.label == "lr=0.1 (1 run)"
    assert [line.runs for line in build("tag:demo", "dev/f1", each=True).panels[0].lines] == [1, 1, 1]


def test_a_repeated_run_counts_once_in_the_mean(project: Path) -> None:
    for number, (seed, value) in enumerate([(1, 9.0), (2, 3.0), (1, 1.0)]):
        write_curves(project, number, {"dev/f1": [value]}, seed=seed)
    plot = build("tag:demo", "dev/f1")
    (line,) = plot.panels[0].lines
    assert (line.ys, line.runs, line.label) == ([2.0], 2, "demo (2 runs)")
    assert plot.notes == ["1 run left out, since another run has the same config and seed"]
    plot = build("tag:demo", "dev/f1", each=True)
    assert len({line.label for line in plot.panels[0].lines}) == 3 and not plot.notes


def test_every_curve_of_a_setting_is_labeled_with_its_id(project: Path) -> None:
    names = [write_curves(project, seed, {"dev/f1": [1.0]}, {"lr": 0.1}, seed=seed).name for seed in range(3)]
    write_curves(project, 5, {"dev/f1": [9.0]}, {"lr": 0.2})
    labels = [line.label for line in build("tag:demo", "dev/f1", each=True).panels[0].lines]
    assert labels == [*(f"lr=0.1 {name[:19]}" for name in names), "lr=0.2"]


def test_runs_that_log_at_other_updates_are_interpolated(project: Path) -> None:
    one = write_curves(project, 1, {"dev/f1": [1.0, 3.0]}, seed=1)
    write_curves(project, 2, {"dev/f1": [5.0]}, seed=2)
    rows = [{"update": update, "values": {"dev/f1": float(update)}} for update in (0, 4)]
    (one / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (line,) = build("tag:demo", "dev/f1").panels[0].lines
    assert line.xs == [0, 1, 4] and line.ys == [0, 3, 4]


def test_metrics_share_a_panel_or_have_their_own(project: Path) -> None:
    write_curves(project, 1, {"train/loss": [1.0], "dev/loss": [2.0], "dev/f1": [0.5]})
    plot = build("last", "train/loss,dev/loss", "dev/f1")
    assert [panel.title for panel in plot.panels] == ["train/loss, dev/loss", "dev/f1"]
    assert [line.label for line in plot.panels[0].lines] == ["train/loss", "dev/loss"]
    with pytest.raises(AlchemyError, match="none of these runs has logged dev/f2; did you mean 'dev/f1'"):
        build("last", "dev/f2")


def test_gaps_and_values_without_a_logarithm_are_noted(project: Path) -> None:
    write_curves(project, 1, {"dev/f1": [1.0, math.nan, 3.0, -1.0]})
    assert build("last", "dev/f1", log=True).notes == [
        "not shown on the logarithmic axis: 1 value at or below 0",
        "not finite, shown as a gap: 1 value",
    ]


def test_a_long_run_is_drawn_from_buckets_with_their_extremes(project: Path) -> None:
    write_curves(project, 1, {"train/loss": [float(place % 7) for place in range(5000)], "dev/f1": range(5000)})
    (line,) = build("last", "train/loss", x="epoch").panels[0].lines
    assert len(line.xs) <= 2000 and (min(line.low), max(line.high)) == (0, 6)
    assert line.xs[-1] == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize("smooth", [-0.1, 1.0, math.nan])
def test_wrong_smoothing(project: Path, smooth: float) -> None:
    write_curves(project, 1, {"dev/f1": [1.0]})
    with pytest.raises(AlchemyError, match="smoothing must be at least 0 and below 1"):
        build("last", "dev/f1", smooth=smooth)


def test_too_many_curves(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alchemy.analysis.series.MAX_LINES", 1)
    for number in range(2):
        write_curves(project, number, {"dev/f1": [1.0]}, {"lr": number})
    with pytest.raises(AlchemyError, match="2 curves are too many"):
        build("tag:demo", "dev/f1")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 0.999))
def test_smoothing_stays_within_the_values_and_keeps_the_raw_curve(values: list[float], weight: float) -> None:
    found = smooth_values(values, weight)
    assert len(found) == len(values)
    assert found[0] == pytest.approx(values[0])
    assert all(min(values) - 1e-3 <= value <= max(values) + 1e-3 for value in found)
    assert smooth_values(values, 0.0) == pytest.approx(values)
