"""The evaluation report for each kind of prediction."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.pipeline.report import Report

TEXTS = [
    {"text": "好球", "label": "体育", "pred": "体育", "prob": 0.9},
    {"text": "b", "label": "财经", "pred": "体育", "prob": 0.6},
    {"text": "c", "label": "财经", "pred": "体育", "prob": 0.8},
    {"text": "d", "label": "财经", "pred": "财经", "prob": 0.7},
]
TAGGED = [
    {
        "tokens": list("小明在北京"),
        "tags": ["B-P", "E-P", "O", "B-L", "E-L"],
        "pred": ["B-P", "E-P", "O", "B-P", "E-P"],
    },
    {"tokens": list("我去"), "tags": ["S-P", "O"], "pred": ["S-P", "O"]},
    {"tokens": list("他是我"), "tags": ["S-P", "O", "S-P"], "pred": ["O", "S-L", "O"]},
]
SEVERAL = [
    {"labels": ["a"], "pred": ["a", "b"], "probs": {"a": 0.9, "b": 0.6}},
    {"labels": ["b"], "pred": [], "probs": {"a": 0.1, "b": 0.01}},
    {"labels": ["a", "b"], "pred": ["b", "a"], "probs": {"a": 0.9, "b": 0.9}},
]


def jsonl(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def grid(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def names(results: Path) -> list[str]:
    return sorted(path.name for path in results.iterdir())


def test_classes(run: Run, results: Path, capture_log: Any) -> None:
    assert Report()("dev", accuracy=0.5, preds=TEXTS) == {"accuracy": 0.5, "preds": TEXTS}
    run.exits.close()
    ends = ["confusion.csv", "confusion.png", "hardest.jsonl", "report.json", "report.txt"]
    assert names(results) == [f"dev_{end}" for end in ends]
    report = json.loads((results / "dev_report.json").read_text("utf-8"))
    assert (report["split"], report["rows"], report["scores"]) == ("dev", 4, {"accuracy": 0.5})
    assert report["classes"]["财经"] == pytest.approx({"precision": 1.0, "recall": 1 / 3, "f1": 0.5, "support": 3})
    assert report["means"]["macro"]["f1"] == 0.5
    assert grid(results / "dev_confusion.csv") == [
        ["gold \\ predicted", "体育", "财经"],
        ["体育", "1", "0"],
        ["财经", "2", "1"],
    ]
    assert [row["text"] for row in jsonl(results / "dev_hardest.jsonl")] == ["c", "b"]
    text = (results / "dev_report.txt").read_text("utf-8")
    assert text.startswith("dev: 4 rows\naccuracy 0.5\n")
    assert "财经        1.0000  0.3333  0.5000        3" in text
    assert "财经" in capture_log.text and "WARNING" not in capture_log.text
    assert (results / "dev_confusion.png").read_bytes().startswith(b"\x89PNG")


def test_classes_told_by_numbers(run: Run, results: Path) -> None:
    rows = [{"pred": 1, "label": 0, "prob": 0.5}, {"pred": 1, "label": 1, "prob": 0.5}]
    Report(names=["neg", "pos"])("dev", preds=rows)
    assert grid(results / "dev_confusion.csv") == [
        ["gold \\ predicted", "neg", "pos"],
        ["neg", "0", "1"],
        ["pos", "0", "1"],
    ]
    Report()("test", preds=rows)
    assert grid(results / "test_confusion.csv")[0] == ["gold \\ predicted", "0", "1"]
    (results.parent / "labels").mkdir()
    (results.parent / "labels" / "label_id.json").write_text('["坏", "好"]', "utf-8")
    Report()("test", preds=rows)
    assert grid(results / "test_confusion.csv")[0] == ["gold \\ predicted", "坏", "好"]


@pytest.mark.parametrize("probs", [{"x": 0.3, "y": 0.7}, [0.3, 0.7]])
def test_the_hardest_are_those_whose_truth_was_least_likely(run: Run, results: Path, probs: Any) -> None:
    row = {"pred": 1, "label": 0, "prob": 0.7, "probs": probs}
    worse = {**row, "id": 2, "prob": 0.6, "probs": {"x": 0.1, "y": 0.6} if isinstance(probs, dict) else [0.1, 0.6]}
    Report(names=["x", "y"])("dev", preds=[row, worse])
    assert jsonl(results / "dev_hardest.jsonl") == [worse, row]
    Report(names=["x", "y"], limit=1)("dev", preds=[row, worse])
    assert jsonl(results / "dev_hardest.jsonl") == [worse]


def test_several_labels(run: Run, results: Path) -> None:
    Report()("dev", preds=SEVERAL)
    run.exits.close()
    report = json.loads((results / "dev_report.json").read_text())
    assert report["labels"]["b"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    assert set(report["means"]) == {"micro", "macro", "weighted", "samples"}
    head, _, b = grid(results / "dev_confusion.csv")
    assert dict(zip(head, b)) == {"label": "b", "right": "1", "false": "1", "missed": "1", "neither": "0"}
    first, second = jsonl(results / "dev_hardest.jsonl")
    assert (first["missed"], first["false"]) == (["b"], [])
    assert (second["missed"], second["false"]) == ([], ["b"])
    assert "dev_confusion.png" not in names(results)


def test_tags(run: Run, results: Path) -> None:
    Report(scheme="BMES")("dev", f1=0.5, preds=TAGGED)
    report = json.loads((results / "dev_report.json").read_text())
    assert report["spans"]["P"] == pytest.approx({"precision": 2 / 3, "recall": 0.5, "f1": 4 / 7, "support": 4})
    assert report["means"]["micro"] == pytest.approx({"precision": 0.5, "recall": 0.4, "f1": 4 / 9, "support": 5})
    assert grid(results / "dev_confusion.csv") == [
        ["gold \\ predicted", "L", "P", "O"], ["L", "0", "1", "0"], ["P", "0", "2", "2"], ["O", "1", "0", "0"],
    ]  # fmt: skip
    first, second = jsonl(results / "dev_hardest.jsonl")
    assert (first["missed"], first["false"]) == ([[0, 1, "P"], [2, 3, "P"]], [[1, 2, "L"]])
    assert (second["missed"], second["false"]) == ([[3, 5, "L"]], [[3, 5, "P"]])


def test_tags_without_a_span(run: Run, results: Path, capture_log: Any) -> None:
    Report()("dev", preds=[{"tags": ["O"], "pred": ["O"]}])
    assert json.loads((results / "dev_report.json").read_text())["spans"] == {}
    assert "WARNING" not in capture_log.text


def test_numbers(run: Run, results: Path) -> None:
    rows = [{"label": 1.0, "pred": 1.5}, {"label": 2, "pred": 0.0}, {"label": 3.0, "pred": float("nan")}]
    Report()("dev", mse=1.0, preds=rows)
    run.exits.close()
    report = json.loads((results / "dev_report.json").read_text())
    assert report["numbers"]["gold"]["mean"] == 2.0
    assert report["numbers"]["said"]["mean"] is None
    assert [row["label"] for row in jsonl(results / "dev_hardest.jsonl")] == [3.0, 2, 1.0]
    assert "dev_numbers.png" in names(results)


def test_relations(run: Run, results: Path) -> None:
    said = ["A(e1,e2)", "A(e2,e1)", "Other"]
    rows = [{"label": gold, "pred": pred} for gold, pred in zip(["A(e1,e2)", "A(e1,e2)", "Other"], said)]
    Report(other="Other")("test", preds=rows)
    report = json.loads((results / "test_report.json").read_text())
    assert report["relations"] == {"A": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}}
    assert set(report["classes"]) == {"A(e1,e2)", "A(e2,e1)", "Other"}


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_predictions_are_written_when_asked_for(run: Run, results: Path, suffix: Any) -> None:
    Report(predictions=suffix, pieces=[])("dev", preds=TEXTS)
    assert names(results) == [f"dev_predictions.{suffix}"]
    rows = jsonl if suffix == "jsonl" else grid
    assert len(rows(results / f"dev_predictions.{suffix}")) == 4 + (suffix == "csv")
    Report(predictions=suffix)("new", preds=[{"text": "a", "pred": "b"}])
    assert [name for name in names(results) if name.startswith("new")] == [f"new_predictions.{suffix}"]


def test_pieces_and_splits_are_chosen(run: Run, results: Path) -> None:
    report = Report(pieces=["hardest"], splits=["test"])
    report("dev", preds=TEXTS)
    assert not results.exists()
    report("test", preds=TEXTS)
    assert names(results) == ["test_hardest.jsonl"]
    Report(enabled=False)("dev", preds=TEXTS)
    assert names(results) == ["test_hardest.jsonl"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pieces": ["hardst"]}, "pieces.0 must be one of .*; did you mean 'hardest'"),
        ({"predictions": "tsv"}, "predictions must be one of .*'tsv'"),
        ({"kind": "number"}, "kind must be one of .*; did you mean 'numbers'"),
        ({"scheme": "BOI"}, "scheme must be one of .*'BOI'"),
    ],
)
def test_options_that_it_does_not_know_are_told_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        Report(**options)


def test_a_long_table_is_cut_in_the_log_only(run: Run, results: Path, capture_log: Any) -> None:
    rows = [{"label": f"c{number}", "pred": f"c{number if number != 7 else 8}"} for number in range(40)]
    Report()("dev", preds=rows)
    assert "classes, the lowest 12 of 40" in capture_log.text
    assert len((results / "dev_report.txt").read_text().splitlines()) > 40
