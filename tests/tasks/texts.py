"""Small texts with labels, tags or relations, and the configs of their tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.runner import run_task

TEXTS = [("good", "a fine day"), ("bad", "a sad rain"), ("good", "fine fine sun"), ("bad", "rain and sad fog")] * 4
BMES = "小 B-NAME\n明 E-NAME\n在 O\n北 B-LOC\n京 E-LOC\n\n我 S-NAME\n去 O\n\n" * 6
MARKED = ["cause\tthe <e1> rain </e1> made <e2> mud </e2>", "Other\ta <e1> cat </e1> and a <e2> dog </e2>"] * 6


def tables(root: Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables of the task and of the model."""
    small = {"type": "alchemy.models.encoders.Recurrent", "dim": 16, "hidden": 12, "dropout": 0.0}
    if kind == "tagging":
        (root / "data.txt").write_text(BMES)
        pipe: dict[str, Any] = {"type": "alchemy.pipeline.processors.Tagging", "scheme": "BMES"}
        task = {"type": "alchemy.tasks.Tagging", "scheme": "BMES", "tokenizer": "alchemy.text.Characters"}
        model = {"type": "alchemy.models.Tagger", "encoder": small}
    elif kind == "relation":
        (root / "data.txt").write_text("\n".join(MARKED))
        pipe = {"type": "alchemy.pipeline.processors.Relation", "format": "tsv"}
        task = {"type": "alchemy.tasks.Relation", "tokenizer": "alchemy.text.Words"}
        model = {"type": "alchemy.models.RelationClassifier", "encoder": small}
    else:
        (root / "data.txt").write_text("".join(f"{label}\t{text}\n" for label, text in TEXTS))
        pipe = {"type": "alchemy.pipeline.processors.TextClassification", "format": "tsv", "text": 1, "label": 0}
        task = {"type": "alchemy.tasks.Classification", "tokenizer": "alchemy.text.Words"}
        model = {"type": "alchemy.models.TextClassifier", "encoder": small}
    pipe["path"] = str(root / "data.txt")
    split = {"pipes": [pipe], "batch_size": 4}
    return {**task, "datasets": {"train": split, "dev": split}}, {**model, "dropout": 0.0}


def config(root: Path, kind: str, **task: Any) -> dict[str, Any]:
    table, model = tables(root, kind)
    return {
        "tag": "t",
        "seed": 3,
        "runner": "alchemy.runner.Trainer",
        "plugins": [{"type": "alchemy.plugins.FileLogger", "log_dir": str(root / "records")}],
        "task": table | task,
        "model": model,
        "optim": {"type": "alchemy.optim.AdamW", "lr": 0.02},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 12},
    }


def refused(cfg: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        run_task(cfg, raise_errors=True)
