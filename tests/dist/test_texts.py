"""A text task in two processes: it trains, tests and predicts as in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alchemy.config.toml_writer import dumps
from tests.dist.start import torchrun
from tests.tasks.texts import TEXTS, config

pytestmark = pytest.mark.dist


def test_all_processes_go_on_with_the_record_of_the_first(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes")
    cfg["plugins"][0]["log_dir"] = str(tmp_path / "records" / "train")
    cfg["task"]["datasets"]["test"] = cfg["task"]["datasets"]["dev"]
    (tmp_path / "c.toml").write_text(dumps(cfg))
    torchrun(2, "alchemy", "run", tmp_path / "c.toml", "--device", -1, "--test", "--predict")
    (asked,) = (tmp_path / "records" / "inference").iterdir()
    (tested,) = (tmp_path / "records" / "test").iterdir()
    rows = [json.loads(row) for row in (asked / "results" / "predictions.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == [text for _, text in TEXTS]
    assert json.loads((tested / "results" / "test_report.json").read_text())["rows"] == len(TEXTS)
