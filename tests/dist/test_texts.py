"""A text task in two processes: it trains, tests and predicts as in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alchemy.config.toml_writer import dumps
from alchemy.records.read_media import read_media
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


def test_one_process_captures(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes") | {"capture": {"modules": ["out"], "examples": 2, "every": 2}}
    (tmp_path / "c.toml").write_text(dumps(cfg))
    torchrun(2, "alchemy", "run", tmp_path / "c.toml", "--device", -1)
    (record,) = Path(cfg["plugins"][0]["log_dir"]).iterdir()
    found = [(row["kind"], row["update"]) for row in read_media(record) if row["name"] == "capture/out"]
    assert len(found) == len(set(found)) and {kind for kind, _ in found} == {"histogram", "table"}
    assert "[capture] failed" not in (record / "run.log").read_text()
