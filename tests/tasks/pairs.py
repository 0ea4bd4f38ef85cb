"""Small sentence pairs, and the config of a translation model that learns them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from alchemy.cli import main

WORDS = {"a": "ein", "dog": "hund", "cat": "kater", "sees": "sieht", "runs": "läuft", "small": "kleiner"}
NETWORKS: dict[str, dict[str, Any]] = {
    "transformer": {
        "type": "alchemy.nn.transformer.Transformer",
        "dim": 32,
        "heads": 4,
        "inner": 64,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.0,
        "norm_first": True,
    },
    "lstm": {"type": "alchemy.nn.lstm.AttentionLSTM", "dim": 32, "hidden": 32, "dropout": 0.0},
}


def write_pairs(root: Path, split: str, count: int, draw: random.Random | None = None) -> list[tuple[str, str]]:
    """Write parallel files."""
    draw = draw or random.Random(split)
    words = [draw.sample(list(WORDS), draw.randint(1, 4)) for _ in range(count)]
    rows = [(" ".join(row), " ".join(WORDS[word] for word in row)) for row in words]
    for side, texts in zip(("en", "de"), zip(*rows)):
        (root / f"{split}.{side}").write_text("".join(f"{text}\n" for text in texts), "utf-8")
    return rows


def build_corpora(root: Path) -> None:
    """Pairs in which each word has a fixed translation."""
    draw = random.Random(1)
    for split, count in (("train", 160), ("dev", 20)):
        write_pairs(root, split, count, draw)
        sides = [arg for side in ("en", "de") for arg in ("--side", f"{side}={root / f'{split}.{side}'}")]
        like = ["--joined"] if split == "train" else ["--like", str(root / "train")]
        assert main(["data", "build", str(root / split), *sides, *like, "--workers", "1"]) == 0


def config(corpora: Path, root: Path, network: str = "transformer", **task: Any) -> dict[str, Any]:
    def pairs(split: str) -> list[dict[str, Any]]:
        sides = {"source": str(corpora / f"{split}.en"), "target": str(corpora / f"{split}.de")}
        return [{"type": "alchemy.pipeline.corpora.Parallel", **sides}]

    search = {"type": "alchemy.generate.BeamSearch", "beam": 3}
    return {
        "tag": "t",
        "seed": 4,
        "runner": "alchemy.runner.Trainer",
        "plugins": [{"type": "alchemy.plugins.FileLogger", "log_dir": str(root / "records")}],
        "task": {
            "type": "alchemy.tasks.Translation",
            "search": search,
            "datasets": {
                "train": {"pipes": pairs("train"), "max_tokens": 100},
                "dev": {"pipes": pairs("dev"), "max_tokens": 60},
            },
            **task,
        },
        "model": {"type": "alchemy.models.Translator", "network": NETWORKS[network]},
        "criterion": {"type": "alchemy.nn.losses.CrossEntropy", "label_smoothing": 0.1},
        "optim": {"type": "alchemy.optim.Adam", "lr": 0.005},
        "sched": {
            "type": "alchemy.sched.Constant",
            "epochs": 12,
            "pipes": [{"type": "tests.toy.Interrupt"}],
        },
        "checkpoint": {"asynchronous": False},
    }
