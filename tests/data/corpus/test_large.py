"""A corpus of 2 GB of text: memory for building and training does not grow with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from alchemy.data.corpus.mapped_corpus import Corpus
from bench.data import MIB, anonymous
from tests.toy import config

GIB = 2**30
BUILDING, TRAINING = 400 * MIB, 1200 * MIB  # peak anonymous memory of all processes; torch alone needs 300


def written(path: Path, size: int) -> int:
    """Write lines of 5 to 34 random words from a vocabulary of 20,000; return the number of lines."""
    draw = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(20_000)], dtype=object)
    block = "".join(f"{' '.join(words[draw.zipf(1.3, n) % 20_000])}\n" for n in draw.integers(5, 35, 100_000)).encode()
    times = -(-size // len(block))
    with open(path, "wb") as file:
        for _ in range(times):
            file.write(block)
    return 100_000 * times


def peak_of(command: list[str], folder: Path) -> float:
    process = subprocess.Popen([sys.executable, "-m", "alchemy", *command], cwd=folder, stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, anonymous(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0
    return peak


@pytest.mark.slow
def test_two_gigabytes_are_built_and_trained_on_in_bounded_memory(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 12 * GIB:
        pytest.skip("it needs 12 GB of free disk")
    lines = written(tmp_path / "t.txt", 2 * GIB)
    building = peak_of(["data", "build", "c", "t.txt", "--workers", "2"], tmp_path)
    (tmp_path / "t.txt").unlink()
    assert len(Corpus(tmp_path / "c")) == lines
    cfg = config()
    cfg["plugins"] = [{"type": "alchemy.plugins.BasicSetup"}]
    cfg["task"] = {
        "type": "alchemy.task.DefaultTask",
        "datasets": {
            "train": {
                "max_tokens": 4096,
                "shuffle": True,
                "pipes": [{"type": "alchemy.pipeline.corpora.Mapped", "path": "c", "field": "target"}],
            }
        },
    }
    cfg["model"] = {"type": "src.words.Next", "size": Corpus(tmp_path / "c").manifest.vocabulary}
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "words.py").write_text(MODEL)
    (tmp_path / "cfg.json").write_text(json.dumps(cfg))
    training = peak_of(["run", "cfg.json", "--device", "-1", "--no-file", "--fast-dev-run", "20"], tmp_path)
    print(f"building {building / MIB:.0f} MiB, training {training / MIB:.0f} MiB, {lines:,} lines")
    assert (building < BUILDING, training < TRAINING) == (True, True)
    for path in tmp_path.glob("c.*"):
        if path.is_file():
            os.unlink(path)


MODEL = """
from torch import nn
from torch.nn import functional

from alchemy.model import AlchemyModel


CLASSES = 50


class Next(AlchemyModel):
    def __init__(self, *, size: int) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Embedding(size, 16, padding_idx=0), nn.Linear(16, CLASSES))

    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        words = batch["target"]
        logits = self.model(words[:, :-1]).flatten(0, 1)
        # few classes: what is measured is the data, not a large softmax
        loss_sum = functional.cross_entropy(logits, words[:, 1:].flatten() % CLASSES, ignore_index=0, reduction="sum")
        count = int((words[:, 1:] != 0).sum())
        loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
        return {"loss": loss, "loss_sum": loss_sum.detach(), "count": count}
"""
