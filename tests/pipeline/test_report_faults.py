"""A failing report never aborts training, and its plots have glyphs for all letters."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alchemy.context import Run
from alchemy.pipeline import error_analysis, plots, report
from alchemy.pipeline.report import Report

ROWS = [{"label": "财经", "pred": "体育"}, {"label": "体育", "pred": "体育"}]


def full(path: Path, content: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_warning(run: Run, tmp_path: Path, capture_log: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(report, "write_atomic", full)
    pipe = Report(predictions="csv")
    for _ in range(3):
        assert pipe("dev", preds=ROWS)["preds"] is ROWS
    assert capture_log.text.count("WARNING") == 1
    assert "cannot write the report: [Errno 28] No space left on device" in capture_log.text


def test_without_matplotlib_all_else_is_written(run: Run, tmp_path: Path, capture_log: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    pipe = Report()
    for split in ("dev", "dev"):
        pipe(split, preds=ROWS)
    run.exits.close()
    assert capture_log.text.count("WARNING") == 1
    assert "cannot create dev_confusion.png: a plot needs the package matplotlib; pip install" in capture_log.text
    assert len(list((tmp_path / "results").iterdir())) == 4


@pytest.mark.parametrize("rows", [None, [], ["text"], [{"label": "a"}]])
def test_rows_that_nobody_gave_are_told_once(run: Run, capture_log: Any, rows: Any) -> None:
    pipe = Report()
    for _ in range(2):
        assert pipe("dev", preds=rows) == {"preds": rows}
    told = "no pipe before Report returned rows with 'pred' as 'preds'; put Accuracy before it"
    assert capture_log.text.count(told) == 1


def test_answers_without_the_truth_have_no_report(run: Run, tmp_path: Path, capture_log: Any) -> None:
    Report()("dev", preds=[{"pred": "a"}])
    assert list(tmp_path.iterdir()) == [] and capture_log.text == ""


def test_without_a_record_only_the_table_of_the_last_evaluation_is_logged(
    run: Run, tmp_path: Path, capture_log: Any
) -> None:
    run.record_dir = None
    pipe = Report()
    pipe("dev", preds=ROWS)
    pipe("dev", preds=ROWS * 2)
    assert "INFO" not in capture_log.text
    run.exits.close()
    assert list(tmp_path.iterdir()) == []
    assert "INFO dev: 4 rows" in capture_log.text and "INFO dev: 2 rows" not in capture_log.text


def test_only_the_last_picture_is_drawn(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    drawn = []
    monkeypatch.setattr(
        error_analysis, "draw_confusion", lambda names, counts, legend: drawn.append(counts.sum()) or b"png"
    )
    pipe = Report()
    pipe("dev", preds=ROWS)
    pipe("dev", preds=ROWS * 2)
    assert drawn == []
    run.exits.close()
    assert drawn == [4]
    assert (tmp_path / "results" / "dev_confusion.png").read_bytes() == b"png"


def shown(monkeypatch: Any, names: list[str]) -> tuple[list[str], str]:
    """Return the tick labels and the title of a plot."""
    figures: list[Any] = []
    monkeypatch.setattr(plots, "_png", lambda figure: figures.append(figure) or pictures_png(figure))
    assert plots.draw_confusion(names, np.eye(len(names), dtype=int), "dev_confusion.csv").startswith(b"\x89PNG")
    (axes,) = figures[0].axes
    return [label.get_text() for label in axes.get_xticklabels()], axes.get_xlabel()


pictures_png = plots._png


def test_names_that_look_like_formulas_are_names(monkeypatch: Any) -> None:
    names = ["$\\frac$", "été", "a\nb"]
    assert shown(monkeypatch, names) == (["$\\frac$", "été", "a b"], "predicted")


def test_letters_that_no_font_has_are_numbered(monkeypatch: Any) -> None:
    monkeypatch.setattr(plots, "font_for", lambda text: "")
    assert shown(monkeypatch, ["体育", "b"]) == (["1", "2"], "predicted (line numbers of dev_confusion.csv)")


def test_a_font_that_has_the_letters_is_found(monkeypatch: Any) -> None:
    assert plots.font_for("sport") == "DejaVu Sans"
    letters = {"DejaVu Sans": set(map(ord, "sport…")), "Last Resort": set(range(1 << 16))}
    letters["Noto CJK"] = set(map(ord, "体育sport…"))

    class Fonts:
        class fontManager:
            ttflist = [type("Font", (), {"fname": name, "name": name}) for name in letters]

        @staticmethod
        def findfont(name: str) -> str:
            return name

    monkeypatch.setattr(plots, "import_package", lambda *names: Fonts)
    monkeypatch.setattr(plots, "_characters_of", lambda path: letters[path])
    plots._font_for.cache_clear()
    found = [plots.font_for("sport"), plots.font_for("体育 sport"), plots.font_for("语")]
    plots._font_for.cache_clear()
    assert found == ["DejaVu Sans", "Noto CJK", ""]


@pytest.mark.parametrize("count", [1, 40, 100])
def test_many_classes_fit_into_a_picture(count: int) -> None:
    counts = np.ones((count, count), int)
    assert plots.draw_confusion([f"class {n}" for n in range(count)], counts, "x.csv").startswith(b"\x89PNG")
