"""`alchemy plot` and `alchemy compare`: options, output and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alchemy.cli import main
from tests.analysis.fake_curves import write_curves


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    for number, (lr, seed) in enumerate([(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]):
        curves = {"train/loss": [1.0, 0.5, 0.4], "dev/f1": [0.1, 0.2, 0.3 + number / 100]}
        write_curves(tmp_path / "records", number, curves, {"optim": {"lr": lr}}, seed=seed)
    return tmp_path


def test_a_plot_shows_the_loss_and_the_monitored_metric(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "tag:demo"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("train/loss\n") and "\n\ndev/f1\n" in out
    assert out.count(" * lr=0.1 (2 runs): last") == 2 and "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 60


def test_pictures_are_written_and_are_the_same_each_time(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.svg", "b.SVG"):
        assert main(["plot", "last", "--metric", "train/loss,dev/f1", "--smooth", "0.5", "--out", name]) == 0
    assert (project / "a.svg").read_bytes() == (project / "b.SVG").read_bytes()
    assert capsys.readouterr().out == ""
    pytest.importorskip("matplotlib", reason="the extra `score` is not installed")
    assert main(["plot", "last", "--out", "a.png", "--log"]) == 0
    assert (project / "a.png").read_bytes().startswith(b"\x89PNG")


def test_points_as_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "lr=0.1", "--metric", "dev/f1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (line,) = found["panels"][0]["lines"]
    assert (found["x"], line["xs"], line["runs"]) == ("update", [1, 2, 3], 2)


def test_gaps_are_null_in_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_curves(project, 9, {"dev/f1": [0.5, float("nan"), float("inf")]})
    assert main(["plot", "last", "--metric", "dev/f1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["panels"][0]["lines"][0]["ys"] == [0.5, None, None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "--out", "a.pdf"], "expected a file that ends with .svg or .png"),
        (["last", "--out", "no/such/a.svg"], "cannot write no/such/a.svg: No such file or directory"),
        (["last", "--metric", "dev/f2"], "none of these runs has logged dev/f2; did you mean 'dev/f1'"),
        (["last", "--smooth", "2"], "smoothing must be at least 0 and below 1"),
        (["last", "--height", "1"], "--height must be between 3 and 200"),
        (["tag:nothing"], "no training run matches it"),
        (["last", "--x", "step"], "'step' is not a valid --x"),
    ],
)
def test_mistakes_have_one_clear_error(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["plot", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_comparison_is_a_table_and_a_sentence(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "lr=0.1", "last", "--seeds", "--at", "last"]) == 0
    out = capsys.readouterr().out
    assert "optim.lr  0.1  0.2" in out
    assert "dev/f1 *" in out and "+0.02" in out
    assert "B is ahead of A on dev/f1 by 0.02 with every seed" in out and "(paired over 2 seeds)" in out
    assert main(["compare", "last~1", "last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"] == {} and found["metrics"]["dev/f1"]["tests"] == [None, None]


def test_seeds_of_a_comparison_are_sorted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, seed in enumerate((10, 2, 1), 10):
        write_curves(project / "records", number, {"dev/f1": [0.1]}, tag="other", seed=seed)
    assert main(["compare", "tag:demo", "tag:other"]) == 0
    assert "other  3  1, 2, 10\n" in capsys.readouterr().out


def test_mistakes_in_a_comparison(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "last"]) == 2
    assert main(["compare", "last", "last~1", "--confidence", "95"]) == 2
    errors = capsys.readouterr().err
    assert "needs at least two records" in errors and "--confidence must be at least 0.5 and below 1" in errors
