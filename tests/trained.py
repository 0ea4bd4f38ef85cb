"""Small trained records of every text task; the training data are deleted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from alchemy.runner import run_task
from alchemy.text import Words
from tests.models import tiny
from tests.tasks.texts import TEXTS, config

KINDS = ("classes", "relation", "tagging", "pairs", "several", "numbers", "bert")
# by kind of table task: the table, and the options of processor and task
TABLES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "pairs": ("text,pair,label\na fine day,sun,good\na sad rain,fog,bad\n", {"pair": "pair"}, {"pair": True}),
    "several": ('text,labels\na fine day,"good,warm"\na sad rain,bad\n', {"kind": "multi"}, {"kind": "multi"}),
    "numbers": ("text,label\na fine day,1.5\na sad rain,-1\n", {"kind": "regression"}, {"kind": "regression"}),
}


def trained(root: Path, kind: str) -> tuple[Path, list[dict[str, Any]]]:
    """A record, and the predictions on dev at the end of training."""
    cfg = config(root, kind)
    if kind in TABLES:
        table, pipe, task = TABLES[kind]
        (root / "data.csv").write_text(table)
        named = {"type": "alchemy.pipeline.processors.TextClassification", "path": str(root / "data.csv")}
        split = {"pipes": [named | pipe], "batch_size": 2}
        cfg["task"] |= {"datasets": {"train": split, "dev": split}, **task}
    if kind == "bert":
        Words.train(text for _, text in TEXTS).save(root / "words")
        (root / "labels.txt").write_text("bad\ngood\n")
        cfg["task"] |= {"tokenizer": str(root / "words"), "labels": str(root / "labels.txt")}
        folder = tiny.folder(root, "bert", hidden_dropout_prob=0.0)
        cfg["model"]["encoder"] = {"type": "alchemy.models.pretrained.Pretrained", "path": str(folder)}
    cfg["sched"]["epochs"] = 2
    result = run_task(cfg, raise_errors=True)
    for path in root.iterdir():
        if path.name != "records":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert result.record_dir is not None
    return result.record_dir, result.ret["preds"]
