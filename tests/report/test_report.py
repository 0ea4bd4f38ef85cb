"""A report contains what its records contain, within its bounds, and everything in it is inert."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.records.readme import add_note, set_purpose
from tests.analysis.fake_curves import change_info, write_code, write_curves, write_environment
from tests.analysis.fake_runs import write_run
from tests.report.fake_media import build_png, write_all_kinds, write_media

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202eevil\x1b[31m\ud800<!--"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "records"


def read_report(*words: str) -> dict[str, Any]:
    """Write a report and return its data."""
    assert main(["report", *words]) == 0
    html = Path("report.html").read_text("utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(data, parse_constant=pytest.fail)


def section(page: dict[str, Any], name: str) -> Any:
    found = [one for one in page["sections"] if one["id"] == name]
    return found[0].get("blocks", found[0].get("media")) if found else None


def write_two(root: Path) -> list[Path]:
    """Write two seeds of each of two configs, with their code."""
    folders = []
    for number, (lr, seed) in enumerate([(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]):
        curves = {"train/loss": [1.0, 0.5, 0.4], "dev/f1": [0.1, 0.3 + number / 100, 0.2]}
        folder = write_curves(root, number, curves, {"optim": {"lr": lr}}, seed=seed)
        change_info(folder, fold_hash=f"{lr}")
        write_code(folder, {"src/a.py": f"lr = {lr}\n"})
        write_environment(folder, packages={"numpy": f"2.{lr}"})
        set_purpose(folder, "Does a larger step help?")
        folders.append(folder)
    return folders


def test_seeds_become_groups_with_numbers_curves_and_differences(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_two(project)
    page = read_report("tag:demo", "--title", "Steps")
    assert re.fullmatch(r"wrote report.html \([\d.]+ KiB\)\n", capsys.readouterr().out)
    clocks = {"epoch": [[1.0, 0.333333], [2.0, 0.666667], [3.0, 1.0]], "time": [[1.0, 0.5], [2.0, 1.0], [3.0, 1.5]]}
    assert page["title"] == "Steps" and page["groups"] == [
        {"letter": "A", "label": "lr=0.1", "best": 2, "clocks": clocks},
        {"letter": "B", "label": "lr=0.2", "best": 2, "clocks": clocks},
    ]
    lead, facts, table, verdicts = page["head"]
    assert lead["value"] == "Does a larger step help?" and facts["value"].startswith("4 runs, all finished · 2 configs")
    assert [row[1] for row in table["rows"]] == [
        {"text": "0.305", "small": " ± 0.0071", "best": False},
        {"text": "0.325", "small": " ± 0.0071", "best": True},
    ]
    assert "B is ahead of A on dev/f1 by 0.02 with every seed" in verdicts["value"][0]
    panel = page["curves"][0]
    assert panel["title"] == "dev/f1" and [line["label"] for line in panel["lines"]] == ["A", "B"]
    assert panel["lines"][0]["xs"] == [1, 1, 1] and panel["lines"][0]["runs"] == 2
    assert panel["lines"][0]["bands"][0][0][1] == pytest.approx(0.305 - 0.00707, abs=1e-4)
    assert section(page, "changes")[0]["rows"] == [["optim.lr", "0.1", "0.2"]]
    code = section(page, "code")
    assert code[1]["value"] == "Compared with A: 1 of 1 files differs"
    assert "-lr = 0.1\n+lr = 0.2" in code[2]["value"][0]["value"]
    packages = section(page, "environment")[1]
    assert packages["title"] == "Installed packages: 1 difference" and packages["value"][0]["marked"] == [0]


def test_one_run_shows_its_numbers_media_and_config(project: Path) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.1, 0.5, math.nan]}, {"model": {"depth": 3}})
    write_all_kinds(folder)
    add_note(folder, "worth a second look")
    (folder / "results").mkdir()
    (folder / "results/dev_report.json").write_text(json.dumps({"scores": {"f1": 1}, "classes": {"a": {"f1": 0.25}}}))
    page = read_report("last")
    assert [item["kind"] for item in page["head"]] == ["text", "big"]
    assert page["curves"][0]["lines"][0]["ys"] == [0.1, 0.5, None] and page["curves"][0]["lines"][0]["gaps"] == 1
    assert section(page, "classes")[1]["value"][0][0]["rows"] == [["a", 0.25]]
    for name, kind in {"images": "image", "attention": "attention", "histograms": "histogram", "texts": "text"}.items():
        (item,) = section(page, name)
        assert item["kind"] == kind and [frame["update"] for frame in item["groups"][0]] == [50, 100, 150, 200]
    assert section(page, "confusion")[0]["groups"][0][0]["matrix"] == [[41, 8], [3, 50]]
    assert "depth = 3" in section(page, "config")[0]["value"][0]["value"]
    assert "worth a second look" in json.dumps(section(page, "runs"))


def test_files_of_evaluations_and_of_the_test_are_shown_without_media(project: Path) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.1, 0.5]})
    test = project / write_run(project, 1, {"test/f1": 0.4}, kind="test", parent=folder.name)
    for record, split in ((folder, "dev"), (test, "test")):
        (record / "results").mkdir()
        (record / f"results/{split}_confusion.csv").write_text("gold \\ predicted,a,b\na,3,1\nb,0,2\n")
        rows = [{"text": "x", "label": "a", "top": {"b": 0.75, "a": 0.123456}}, {"text": "y", "extra": [1.23456]}]
        (record / f"results/{split}_hardest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "images").mkdir()
    for update in (5, 20):
        (folder / f"images/dev_u{update:06}.png").write_bytes(build_png(4, 4))
    page = read_report(folder.name)
    assert [item["name"] for item in section(page, "confusion")] == ["dev/confusion", "test/confusion"]
    table = section(page, "hardest")[0]["groups"][0][0]
    assert table["rows"] == [["x", "a", "b 0.75, a 0.1235", None], ["y", None, None, "[1.235]"]]
    (images,) = section(page, "images")
    assert images["name"] == "dev" and [frame["update"] for frame in images["groups"][0]] == [5, 20]


def test_hostile_texts_are_inert(project: Path) -> None:
    values = {"dev/f1": [0.1, 0.2], NASTY.encode("ascii", "ignore").decode(): [1.0, 2.0]}
    folder = write_curves(project, 0, values, {"name": "</script><script>"}, tag="<b>bold</b>")
    (folder / "README.md").write_text(f"# x\n\n{NASTY}\n", "utf-8", "replace")
    write_media(folder, "text", NASTY[:60], 1, NASTY.encode("utf-8", "replace"))
    write_media(folder, "table", "t", 1, {"columns": [NASTY], "rows": [[NASTY], [math.nan], [{"a": [NASTY]}]]})
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    write_media(folder, "image", "svg", 1, svg)
    write_media(folder, "image", "bomb", 1, build_png(1, 1)[:16] + b"\x7f\xff\xff\xff" * 2 + build_png(1, 1)[24:])
    page = read_report("last")
    html = Path("report.html").read_text("utf-8")
    own = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", html, flags=re.DOTALL)
    tags = re.findall(r"<(?=[a-z/!])[^>\s]*", own)
    assert {"<img", "<b", "<svg"}.isdisjoint(tags) and html.count("<script") == 2
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", html)
    assert section(page, "images") is None
    assert "2 damaged files of media cannot be shown" in section(page, "remarks")[0]["value"]
    policy = r"default-src 'none'; img-src data:; style-src 'sha256-[^ ]{44}'; script-src 'sha256-[^ ]{44}'; base-uri"
    assert re.search(policy, own)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("table", {"columns": "a", "rows": []}),
        ("table", [1]),
        ("attention", {"rows": ["a"], "columns": ["b"], "weights": [[[math.nan]]]}),
        ("attention", {"rows": ["a"], "columns": ["b"], "weights": [[[0.1, 0.2]]]}),
        ("attention", {"rows": ["a"], "columns": ["b"], "weights": []}),
        ("attention", {"rows": ["a"], "columns": ["b"], "weights": [[0.5]]}),
        ("confusion", {"labels": ["a"]}),
        ("confusion", b"\xff"),
        ("image", b""),
    ],
)
def test_damaged_media_are_counted_and_not_shown(project: Path, kind: str, content: object) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.1, 0.5]})
    write_media(folder, kind, "x", 1, content)
    assert section(read_report("last"), "remarks")[0]["value"][0] == "1 damaged file of media cannot be shown"


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"edges": [0, 1], "counts": [1, 2]},
        {"edges": [1, 0], "counts": [1]},
        {"edges": [0, math.inf], "counts": [1]},
    ],
    ids=str,
)
def test_damaged_histograms_are_not_shown(project: Path, info: dict[str, Any]) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.1, 0.5]})
    write_media(folder, "histogram", "x", 1, None, **info)
    assert section(read_report("last"), "histograms") is None


def test_many_classes_are_shown_as_the_most_frequent_confusions(project: Path) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.1, 0.5]})
    labels = [f"class {number}" for number in range(10_000)]
    cells = [[number, (number * 7) % 10_000, 1 + number % 50] for number in range(10_000)]
    write_media(
        folder, "confusion", "dev/confusion", 1, {"labels": labels, "cells": [*cells, [0, 1, 999], [-1, 2, 5], ["a"]]}
    )
    page = read_report("last")
    frame = section(page, "confusion")[0]["groups"][0][0]
    assert len(frame["pairs"]) == 40 and frame["pairs"][0] == ["class 0", "class 1", 999, 1000]
    assert "10,000 classes" in frame["note"] and Path("report.html").stat().st_size < 100_000


def test_media_within_the_bound_are_the_newest_and_evenly_spaced(project: Path) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.1, 0.5]})
    for update in range(1, 18):
        write_media(folder, "text", "log", update, "x" * 10_000)
    page = read_report("last", "--max-mb", "0.055")
    updates = [frame["update"] for frame in section(page, "texts")[0]["groups"][0]]
    assert updates == [1, 5, 9, 13, 17]
    assert (
        "12 of 17 images, texts, tables and other media are left out (--max-mb 0.055"
        in section(page, "remarks")[0]["value"][0]
    )


@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_long_curves_are_summarized(project: Path, rows: int) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.5]})
    row = '{{"update": {0}, "step": 0, "epoch": 0, "t": 1.0, "gen": 0, "values": {{"train/loss": {1}}}}}\n'
    lines = (row.format(update, 9.0 if update == 77_777 else update % 7) for update in range(1, rows + 1))
    (folder / "metrics.jsonl").write_text("".join(lines))
    page = read_report("last")
    (line,) = page["curves"][0]["lines"]
    assert 900 < len(line["xs"]) <= 2000 and sum(line["xs"]) == pytest.approx(rows, rel=0.001)
    assert max(line["bands"][0][1]) == 9 and min(line["bands"][0][0]) == 0
    assert Path("report.html").stat().st_size < 100_000


def test_a_failed_run_without_metrics_shows_its_traceback(project: Path) -> None:
    folder = project / write_run(project, 0, {}, status="failed")
    (folder / "metrics.jsonl").write_text("")
    (folder / "run.log").write_text('Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n')
    page = read_report("last")
    assert page["head"][1]["kind"] == "fail" and "KeyError: 1" in page["head"][1]["traceback"]
    assert page["head"][2]["value"] == "These runs have logged no score and no loss yet." and page["curves"] == []


def test_a_record_with_a_link_to_the_outside_has_no_code_and_environment(project: Path) -> None:
    folder = write_curves(project, 0, {"dev/f1": [0.1, 0.5]})
    (project.parent / "secret.png").write_bytes(build_png(4, 4))
    (folder / "images").symlink_to(project.parent)
    page = read_report("last")
    assert section(page, "images") is None and section(page, "environment") is None
    assert "contains links that point outside it" in section(page, "remarks")[0]["value"][0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "--out", "a.pdf"], "--out a.pdf: expected a file that ends with .html"),
        (["last", "--out", "no/such/a.html"], "cannot write no/such/a.html: No such file or directory"),
        (["last", "--max-mb", "-1"], "--max-mb must be between 0 and 1000, got -1"),
        (["last", "--max-mb", "nan"], "--max-mb must be between 0 and 1000, got nan"),
        (["tag:nothing"], "no training run matches it"),
        (["tag:demo"], "13 configs are too many for a report, at most 12 fit"),
    ],
)
def test_mistakes_have_one_clear_error(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    for number in range(13):
        write_run(project, number, {"dev/f1": 0.1}, {"lr": number})
    assert main(["report", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_page_uses_the_colors_of_plots_and_a_small_script() -> None:
    from alchemy.analysis.plot_svg import DARK, LIGHT
    from alchemy.report.render import PARTS

    folder = Path(__file__).parents[2] / "alchemy" / "report" / "page"
    _, style, *scripts = ((folder / name).read_text("utf-8") for name in PARTS)
    script = "".join(scripts)
    for place, colors in enumerate(zip(LIGHT, DARK, strict=True)):
        assert re.findall(rf"--c{place}: (#\w+)", style) == list(colors)
    assert len(script.encode()) <= 28 * 1024
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|https?://(?!www\.w3\.org)", script
    )


def test_bins_that_rounding_made_empty_are_merged() -> None:
    from alchemy.report.frames import load_histogram

    found = load_histogram({"edges": [1.0, 1.0, 1.1, 1.1, 1.2], "counts": [1, 2, 3, 4], "count": 10, "nan": 2})
    assert found == {"edges": [1.0, 1.1, 1.2], "counts": [6, 4], "caption": "count 10, nan 2", "min": 1.0, "max": 1.2}
