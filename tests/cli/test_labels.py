"""A record keeps the label ids of its training run, even if the file in the config changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from alchemy.config.tree import Document
from alchemy.files import write_atomic
from alchemy.records import newest
from alchemy.records.labels import labels_file
from alchemy.records.local_copies import use_own_labels
from tests.toy import config

READ = {"type": "alchemy.pipeline.processors.TextClassification", "path": "a.csv", "labels": "names.txt"}


def point(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": [1.0], "y": [float(sample["label_id"])]}


def test_a_record_is_tested_with_its_own_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("text,label\nx,good\ny,bad\n")
    Path("names.txt").write_text("good\nbad\n")
    pipes = [READ, {"type": "alchemy.pipeline.lst.Map", "fn": f"{__name__}.point"}]
    split = {"pipes": pipes, "batch_size": 2, "collate_fn": "alchemy.data.collate.Pad"}
    cfg = config("records", task__datasets={"train": split, "dev": split, "test": split}, sched__epochs=1)
    Path("train.toml").write_text(dumps(cfg))
    assert main(["run", "train.toml", "--device", "-1"]) == 0
    trained = newest()
    Path("names.txt").unlink()
    assert main(["test", str(trained), "--device", "-1"]) == 0
    assert f'labels = "{trained}/labels/label_id.json"' in (newest() / "cfg.toml").read_text()


def test_only_names_of_files_are_changed_and_types_become_tags(tmp_path: Path) -> None:
    for field in ("label_id", "tag_ids"):
        (file := labels_file(tmp_path, field)).parent.mkdir(exist_ok=True)
        write_atomic(file, "[]")
    pipes = [READ, {**READ, "labels": ["a"]}, {**READ, "kind": "multi"}, {"type": "x.Tagging", "types": "types.txt"}]
    document = Document({"task": {"labels": "names.txt", "datasets": {"test": {"pipes": pipes}}}})
    use_own_labels(document, tmp_path)
    tables = document["task"]["datasets"]["test"]["pipes"]
    assert [table.get("labels") for table in tables] == [f"{tmp_path}/labels/label_id.json", ["a"], "names.txt", None]
    assert tables[3]["tags"] == f"{tmp_path}/labels/tag_ids.json" and "types" not in tables[3]
    assert document["task"]["labels"] == "names.txt"
