"""Text tasks write a report by default, others if configured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.context import Run
from alchemy.pipeline.eval import Accuracy
from alchemy.pipeline.output import Classify, Collect
from alchemy.pipeline.report import Report
from alchemy.runner import run_task
from tests.tasks.texts import config

NAME = "alchemy.pipeline.report.Report"


def results(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("records/*/results/*"))


@pytest.mark.parametrize(("kind", "table"), [("classes", "classes"), ("tagging", "spans"), ("relation", "relations")])
def test_a_task_on_texts_has_one(kind: str, table: str, tmp_path: Path) -> None:
    cfg = config(tmp_path, kind)
    cfg["sched"]["epochs"] = 1
    result = run_task(cfg, raise_errors=True)
    (file,) = tmp_path.glob("records/*/results/dev_report.json")
    report = json.loads(file.read_text("utf-8"))
    assert report["update"] > 0 and report["rows"] == len(result.ret["preds"])
    assert report[table] and report["scores"]["loss"] == pytest.approx(result.ret["loss"])
    assert "dev_confusion.png" in results(tmp_path)


def test_the_one_of_the_config_takes_its_place(tmp_path: Path) -> None:
    pipes = [{"type": NAME, "pieces": ["hardest"], "predictions": "csv"}]
    cfg = config(tmp_path, "classes", evalpipes=pipes)
    cfg["sched"]["epochs"] = 1
    assert "accuracy" in run_task(cfg, raise_errors=True).ret
    assert results(tmp_path) == ["dev_hardest.jsonl", "dev_predictions.csv"]


def test_it_can_be_left_out(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes", evalpipes=[{"type": NAME, "enabled": False}])
    cfg["sched"]["epochs"] = 1
    assert "accuracy" in run_task(cfg, raise_errors=True).ret
    assert results(tmp_path) == []


def test_rows_that_classify_made_are_reported(run: Run, tmp_path: Path, capture_log: Any) -> None:
    batch = {"label": torch.tensor([1, 0, 1]), "text": ["a", "b", "c"]}
    logits = torch.tensor([[0.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    Collect("preds")(Classify(keep=["text"])({"logits": logits}, batch), batch)
    found = Report(names=["neg", "pos"])("dev", **Accuracy()("dev"))
    assert found["accuracy"] == pytest.approx(1 / 3)
    report = json.loads((tmp_path / "results" / "dev_report.json").read_text("utf-8"))
    assert report["classes"]["pos"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    hardest = (tmp_path / "results" / "dev_hardest.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["text"] for line in hardest] == ["c", "b"]
    assert "WARNING" not in capture_log.text
