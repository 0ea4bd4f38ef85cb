"""What a sweep has found: importance, the best against the second, and plots."""

import math

import pytest

from alchemy.analysis.plot_svg import draw_svg
from alchemy.analysis.plot_text import draw_text
from alchemy.sweep.plots import build_sweep_plot
from alchemy.sweep.results import compare_best, measure_importance
from alchemy.sweep.space import Choice, Range, Space
from alchemy.sweep.study import open_study
from tests.sweep.trivial import make_plan, make_settings

SPACE = Space((Range("lr", 1e-4, 1e-1, log=True), Choice("b", ("x", "y")), Choice("n", range(1, 9), {"b": ("x",)})))


def make_study(values, seeds=(1,), space=SPACE):
    """Return a study; `values` maps points, as tuples, to the values of the seeds."""
    settings = make_settings(space, method="random", trials=99, seeds=list(seeds))
    with open_study(make_plan(settings)) as study:
        for place, own in values.items():
            point = dict(zip(("lr", "b", "n"), place, strict=False))
            named = dict(zip(map(str, seeds), own, strict=True))
            study.settle(study.ask(point), "done", value=sum(own) / len(own), values=named)
    return study


def lr_matters():
    return {(10 ** -(1 + step / 4), "xy"[step % 2]): [float(step)] for step in range(12)}


def test_importance_is_the_share_of_the_variance():
    found = measure_importance(make_study(lr_matters()))
    assert list(found) == ["lr", "b"]
    assert found["lr"] > 0.8
    assert found["b"] < 0.1


def test_few_points_have_no_importance():
    assert measure_importance(make_study({(0.1, "x"): [1.0], (0.01, "y"): [2.0]})) == {}


def test_a_clear_winner_is_named():
    study = make_study({(0.1, "y"): [1.0, 1.1, 1.2], (0.01, "y"): [2.0, 2.2, 2.1]}, (1, 2, 3))
    assert compare_best(study).startswith("point 0 is better than point 1 on dev/loss by 1 (")


def test_seed_noise_is_called_noise():
    study = make_study({(0.1, "y"): [1.0, 3.0, 2.0], (0.01, "y"): [2.2, 2.1, 2.0]}, (1, 2, 3))
    assert "is within the noise of the seeds" in compare_best(study)


def test_one_seed_allows_no_statement():
    study = make_study({(0.1, "y"): [1.0], (0.01, "y"): [2.0]})
    assert "with one seed per point, this may be noise" in compare_best(study)


def test_equal_values_are_called_equal():
    study = make_study({(0.1, "y"): [1.0], (0.01, "y"): [1.0]})
    assert compare_best(study) == "point 0 and point 1 have the same dev/loss, with one seed per point"


def test_plots_have_parallel_coordinates_and_a_panel_per_key():
    values = lr_matters() | {(0.05, "x", 3): [0.5], (0.02, "x", 8): [1.5]}
    plot = build_sweep_plot(make_study(values))
    assert [panel.title.partition(" (")[0] for panel in plot.panels] == [
        "parallel coordinates",
        "dev/loss by lr",
        "dev/loss by b",
        "dev/loss by n",
    ]
    parallel = plot.panels[0]
    assert [line.label for line in parallel.lines] == [
        "best quarter",
        "second quarter",
        "third quarter",
        "last quarter",
    ]
    assert [text for _, text in parallel.ticks] == ["lr", "b", "n", "dev/loss"]
    assert [text for x, _, text in parallel.labels if x == 0.0] == ["0.0001", "0.000562", "0.00316", "0.0178", "0.1"]
    assert [y for x, y, _ in parallel.labels if x == 1.0] == [1.0, 0.0]  # the best and the worst value
    assert all(0 <= y <= 1 for line in parallel.lines for y in line.ys if not math.isnan(y))
    assert "dev/loss by lr" in draw_text(plot, 80, 8)
    assert draw_svg(plot).count("<circle") >= 3 * 14
    assert draw_svg(plot).count('class="label"') == len(parallel.labels)


def test_without_values_there_is_no_plot():
    settings = make_settings()
    with open_study(make_plan(settings)) as study:
        assert build_sweep_plot(study) is None


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_points_can_be_plotted(count):
    plot = build_sweep_plot(make_study(dict(list(lr_matters().items())[:count])))
    assert draw_svg(plot) and draw_text(plot, 60, 6, unicode=False)
