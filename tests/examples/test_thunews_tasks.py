"""Datasets that a user adds with a processor: text pairs, and numbers instead of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.examples.thunews import ALL, flags, rows, tables, write_bert

pytest.importorskip("transformers", reason="the extra `text` is not installed")
PAIRS = "a,b,same\n" + "球赛,冠军,yes\n股票,学校,no\n基金,股票,yes\n高考,球赛,no\n" * 3
NUMBERS = "text,labels\n" + "球赛冠军,1.5\n股票,-2\n高考学校,0.25\n" * 3


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "bert")
    return tmp_path


def write(folder: Path, content: str) -> None:
    folder.mkdir()
    for name in ("train", "dev", "test"):
        (folder / f"{name}.csv").write_text(content, encoding="utf-8")


def register(thunews: Any, name: str, mode: str, pairs: bool, **columns: str) -> None:
    """A processor as a user would write it."""
    module = __import__("src.processors", fromlist=["DataProcessor"])

    class Own(module.DataProcessor):  # type: ignore[name-defined]
        output_mode = mode

        def get_train_examples(self, data_dir: str) -> Any:
            return self.read_csv(data_dir, "train", **columns)

        def get_dev_examples(self, data_dir: str) -> Any:
            return self.read_csv(data_dir, "dev", **columns)

        def get_test_examples(self, data_dir: str) -> Any:
            return self.read_csv(data_dir, "test", **columns)

        def get_labels(self) -> list[str]:
            return ["yes", "no"]

    Own.pairs = pairs
    module.processor(name)(Own)


def test_pairs(thunews: Any, place: Path) -> None:
    write(place / "data", PAIRS)
    register(thunews, "Same", "classification", True, text="a", pair="b", label="same")
    assert thunews.main(flags(*ALL, task_name="same", max_steps=2)) == 0
    assert (place / "out" / "config.toml").read_text().count("pair = true") == 1
    assert {row["label"] for row in rows(place / "out")} <= {"yes", "no"}
    assert [int(row["pred"]) for row in rows(place / "out")] == [
        ["yes", "no"].index(row["label"]) for row in rows(place / "out")
    ]


def test_a_second_text_is_not_left_out_in_silence(
    thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place / "data", PAIRS)
    register(thunews, "Same", "classification", False, text="a", pair="b", label="same")
    assert thunews.main(flags("--do_train", task_name="Same")) == 2
    assert (
        "train.csv:2 the example has a second text, which would be ignored; set pairs = True" in capsys.readouterr().err
    )


def test_numbers(thunews: Any, place: Path) -> None:
    write(place / "data", NUMBERS)
    register(thunews, "Grades", "regression", False, label="labels")
    argv = flags(*ALL, "--eval_all_checkpoints", task_name="GRADES", model_type="bert", max_steps=4, save_steps=2)
    assert thunews.main(argv) == 0
    assert {"mse", "pearson", "spearman", "loss"} <= set(tables(place / "out"))
    answers = rows(place / "out")
    assert [set(row) for row in answers] == [{"pred"}] * 9
    assert all(isinstance(float(row["pred"]), float) for row in answers)


def test_a_number_that_is_none(thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place / "data", NUMBERS + "股票,many\n")
    register(thunews, "Grades", "regression", False, label="labels")
    assert thunews.main(flags("--do_train", task_name="grades")) == 2
    assert "train.csv:11 the label is 'many', expected a finite number" in capsys.readouterr().err
