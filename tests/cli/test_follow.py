"""One command trains, picks the best weights, tests them and writes predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy.cli import main


def test_train_test_predict_in_one_command(project: Path) -> None:
    assert main(["run", "train.toml", "--set", "sched.epochs=1", "--device", "-1", "--test", "--predict"]) == 0
    (trained,) = (project / "records" / "train").iterdir()
    (tested,) = (project / "records" / "test").iterdir()
    assert f'model_path = "{trained.relative_to(project)}/state/best"' in (tested / "cfg.toml").read_text()
    (rows,) = (project / "records" / "inference").glob("*/results/predictions.jsonl")
    assert len(rows.read_text().splitlines()) == 150


def test_what_cannot_follow_is_refused_before_training(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "train.toml", "--test", "--no-file"]) == 2
    assert "need the weights that a record keeps" in capsys.readouterr().err
    text = (project / "train.toml").read_text()
    (project / "train.toml").write_text(text.replace("[task.datasets.test]", "[task.datasets.held_out]"))
    assert main(["run", "train.toml", "--test"]) == 2
    assert "the config has no split 'test'" in capsys.readouterr().err
    assert not (project / "records").exists()
