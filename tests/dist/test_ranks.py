"""One, two or three ranks: the same updates, the same record, every sample once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dist.parts import farthest, read
from tests.dist.work import TRAININGS, train

RANKS = (2, 3)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The folder of all trainings, for each number of ranks: started once, since a start costs seconds."""
    folders = {ranks: tmp_path_factory.mktemp(f"ranks{ranks}") for ranks in (1, *RANKS)}
    started = {ranks: torchrun(ranks, "tests.dist.work", folders[ranks]) for ranks in RANKS}
    try:
        train(folders[1])
        for ranks, process in started.items():
            said = process.communicate(timeout=300)[0]
            assert process.returncode == 0, f"{ranks} ranks:\n{said}"
    finally:
        for process in started.values():
            process.terminate()  # it ends its workers too
            process.communicate()
    return folders


def torchrun(ranks: int, module: str, *words: Any) -> subprocess.Popen[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [*start, "-m", module, *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def record(folder: Path, name: str) -> Path:
    (found,) = (folder / "records" / name).iterdir()
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def curve(path: Path) -> Iterator[tuple[int, str, float]]:
    """Every number of a run but times and the machine's own."""
    for row in rows(path):
        for name, value in row.get("values", {}).items():
            if not name.startswith(("time/", "system/")):
                yield row["update"], name, value


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("ranks", RANKS)
def test_updates_do_not_depend_on_the_number_of_ranks(trained: dict[int, Path], name: str, ranks: int) -> None:
    alone = read(trained[1] / name, "gradients")
    assert len(alone) == 4
    for rank in range(ranks):
        assert farthest(alone, read(trained[ranks] / name, "gradients", rank)) < 1e-12


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("ranks", [1, *RANKS])
def test_every_sample_is_seen_once_an_epoch(trained: dict[int, Path], name: str, ranks: int) -> None:
    seen = [row for rank in range(ranks) for row in read(trained[ranks] / name, "seen", rank)]
    for epoch in (0, 1):
        assert sorted(text for row in seen for text in row["texts"] if row["epoch"] == epoch) == list(range(13))


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("ranks", RANKS)
def test_rank_0_alone_keeps_the_record_and_it_is_that_of_one_process(
    trained: dict[int, Path], name: str, ranks: int
) -> None:
    alone, several = record(trained[1], name), record(trained[ranks], name)
    ledger = rows(alone / "ledger.jsonl")
    assert sum(row.get("n", 0) for row in ledger) == 26
    assert rows(several / "ledger.jsonl") == ledger
    ours, theirs = list(curve(alone / "metrics.jsonl")), list(curve(several / "metrics.jsonl"))
    assert [row[:2] for row in theirs] == [row[:2] for row in ours]
    assert [row[2] for row in theirs] == pytest.approx([row[2] for row in ours], rel=1e-9)
    assert {"train/loss", "train/loss_epoch", "dev/loss"} <= {name for _, name, _ in ours}
