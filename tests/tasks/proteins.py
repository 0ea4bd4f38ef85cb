"""Small proteins with effects of substitutions or tags of residues, and the configs of their tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tasks.texts import config

WILD = "MSIQHFRVAL"
ROWS = ["p1\tMSIQHFRVAL\tHHHHH--CCC", "p2\tKLMUNPQ\tEEE-CCC", "p3\tAAAAX\tHHHHH"]
CONVOLUTION = {"type": "alchemy.models.encoders.Convolution", "dim": 8, "hidden": 8, "kernel": 3, "dropout": 0.0}
ENCODERS: dict[str, dict[str, Any]] = {
    "substitutions": {"type": "alchemy.models.encoders.Substitutions", "reference": WILD, "dim": 8, "dropout": 0.0},
    "one-hot": {"type": "alchemy.models.encoders.OneHot"},
    "kmers": {"type": "alchemy.models.encoders.Embedding", "dim": 16},
}


def tagging(root: Path, rows: list[str] = ROWS, **task: Any) -> dict[str, Any]:
    lines = ["id\tseq\tss3", *(f"{number}{row}" for number, row in enumerate(rows * 4))]
    (root / "data.tsv").write_text("\n".join(lines) + "\n")
    cfg = config(root, "tagging", scheme="", unscored="-", tokenizer="alchemy.text.Residues", **task)
    pipe = {"type": "alchemy.pipeline.processors.Proteins", "path": str(root / "data.tsv"), "sequence": "seq"}
    split = {"pipes": [{**pipe, "tags": "ss3", "unknown": "X"}], "batch_size": 4}
    cfg["task"]["datasets"] = {"train": split, "dev": split}
    cfg["model"] |= {"encoder": CONVOLUTION, "decoder": "softmax"}
    return cfg


def variants(root: Path, encoder: dict[str, Any], **task: Any) -> dict[str, Any]:
    entries = []
    for place, old in enumerate(WILD):
        for new in "GKW":
            text, effect = WILD[:place] + new + WILD[place + 1 :], place / 10 + "GKW".index(new)
            entries.append(f">{place}{new}|{old}{place + 1}{new}|{effect}\n{text}\n")
    (root / "data.fasta").write_text("".join(entries))
    cfg = config(root, "classes", tokenizer="alchemy.text.Residues", **task)
    cfg["task"]["kind"] = "regression"
    pipe = {"type": "alchemy.pipeline.processors.Proteins", "path": str(root / "data.fasta"), "label": -1}
    split = {"pipes": [{**pipe, "kind": "regression", "mutation": 1}], "batch_size": 4}
    cfg["task"]["datasets"] = {"train": split, "dev": split}
    cfg["model"]["encoder"] = encoder
    return cfg
