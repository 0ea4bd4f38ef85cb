"""Texts longer than the maximum of the model, read in windows by each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.runner import run_task
from tests.tasks.texts import config, refused

FILL = ["so", "it", "went", "on", "and", "on"]
# the word that determines the label is at the beginning or the end of texts that need several windows
TEXTS = [("good", ["fine", *FILL * 2]), ("bad", [*FILL * 2, "sad"]), ("good", [*FILL, "fine"]), ("bad", ["sad"])] * 3
MARKED = [
    f"cause\tthe <e1> rain </e1> {' '.join(FILL * 2)} made <e2> mud </e2>",
    "Other\ta <e1> cat </e1> and a <e2> dog </e2>",
] * 6
TAGGED = "".join(f"{sign} {tag}\n" for sign, tag in [("小", "B-NAME"), ("明", "E-NAME"), *[("在", "O")] * 9] * 2) + "\n"


def long_config(root: Path, kind: str, **task: Any) -> dict[str, Any]:
    """An encoder that takes 8 tokens, and longer texts."""
    windows = {"max_length": 8, "long": "windows", "overlap": 3}
    cfg = config(root, kind, **(windows | task))
    rows = "".join(f"{label}\t{' '.join(text)}\n" for label, text in TEXTS)
    (root / "data.txt").write_text({"classes": rows, "relation": "\n".join(MARKED), "tagging": TAGGED * 6}[kind])
    cfg["model"]["encoder"] = {
        "type": "alchemy.models.encoders.Transformer",
        "dim": 16,
        "heads": 2,
        "inner": 32,
        "dropout": 0.0,
        "max_length": 8,
    }
    if kind == "classes":
        cfg["model"]["head"] = {"type": "alchemy.models.heads.Pool", "how": "max"}
    return cfg


@pytest.mark.parametrize(("kind", "score"), [("classes", "accuracy"), ("tagging", "f1"), ("relation", "f1")])
def test_a_task_learns_long_texts_and_answers_them(kind: str, score: str, tmp_path: Path) -> None:
    result = run_task(long_config(tmp_path, kind), raise_errors=True)
    assert result.ret[score] == 1.0
    asked = {
        "classes": " ".join([*FILL * 2, "sad"]),
        "relation": MARKED[0].partition("\t")[2],
        "tagging": "小明" + "在" * 50,
    }[kind]
    with alchemy.load(result.record_dir) as model:
        (answer,) = model.predict([asked])
    if kind == "tagging":
        assert len(answer["pred"]) == 52 and answer["spans"] == [[0, 2, "NAME"]]
    else:
        assert answer["pred"] == {"classes": "bad", "relation": "cause"}[kind]


def test_a_record_that_was_trained_on_short_texts_reads_long_ones(tmp_path: Path) -> None:
    cfg = long_config(tmp_path, "classes", long="only_first")
    record = run_task(cfg, raise_errors=True).record_dir
    asked = " ".join([*FILL * 2, "fine"])
    with alchemy.load(record) as cut, alchemy.load(record, overrides=["task.long=windows", "task.overlap=2"]) as whole:
        assert cut.predict([asked])[0]["prob"] != whole.predict([asked])[0]["prob"]
        assert cut.predict(["so fine"]) == whole.predict(["so fine"])


def test_windows_that_cannot_be_are_told(tmp_path: Path) -> None:
    refused(long_config(tmp_path, "classes", max_length=0), "long = 'windows' needs a max_length")
    refused(long_config(tmp_path, "classes", pair=True), "long = 'windows' needs single texts, not pairs")
    refused(long_config(tmp_path, "classes", overlap=8), "overlap = 8, a window adds no new tokens")
    refused(long_config(tmp_path, "classes", overlap=-1), "overlap must be")
    refused(
        long_config(tmp_path, "classes", max_length=9),
        "windows have max_length = 9 tokens, but the model takes at most 8",
    )
    cfg = long_config(tmp_path, "classes")
    cfg["model"]["encoder"] = {"type": "alchemy.models.fasttext.NGrams", "dim": 8, "buckets": 10}
    refused(cfg, "TextClassifier needs one vector per token, but NGrams does not return them")
