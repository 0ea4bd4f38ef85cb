"""Translation in two processes: the same updates and output as in one, for any split of the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from alchemy.records.metrics_file import comparable
from tests.dist.start import torchrun
from tests.tasks.pairs import config

pytestmark = pytest.mark.dist


def numbers(root: Path) -> list[dict[str, Any]]:
    (record,) = (root / "records").iterdir()
    return [row["values"] for row in comparable(record / "metrics.jsonl")]


def test_two_processes_train_and_write_as_one_does(tmp_path: Path) -> None:
    # longer than the initial number of positions, so that one process needs more than the other
    lines = [" ".join(["dog", "cat", "runs"][: 1 + place % 3]) for place in range(24)] + ["dog " * 200]
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("".join(f"{line.strip()}\n" for line in lines), "utf-8")
    sides = [arg for side in ("en", "de") for arg in ("--side", f"{side}={tmp_path / f'train.{side}'}")]
    assert main(["data", "build", str(tmp_path / "train"), *sides, "--joined", "--workers", "1"]) == 0
    for name in ("one", "two"):
        cfg = config(tmp_path, tmp_path / name)
        cfg["task"]["datasets"] = {"train": {**cfg["task"]["datasets"]["train"], "max_tokens": 300}}
        cfg["task"]["datasets"]["dev"] = {**cfg["task"]["datasets"]["train"], "max_tokens": 600}
        cfg["sched"]["epochs"] = 2
        cfg["backward"] = {"window": 2}  # the same number of batches per update for any number of processes
        (tmp_path / f"{name}.toml").write_text(dumps(cfg))
    assert main(["run", str(tmp_path / "one.toml"), "--device", "-1"]) == 0
    torchrun(2, "alchemy", "run", tmp_path / "two.toml", "--device", -1)
    one, two = numbers(tmp_path / "one"), numbers(tmp_path / "two")
    assert [row.keys() for row in one] == [row.keys() for row in two]
    for values, others in zip(one, two):
        assert others == pytest.approx(values, rel=1e-3)
    assert any("dev/bleu" in row for row in one)
