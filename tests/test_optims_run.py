"""Several optimizers in complete runs: logs, checkpoints, several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import alchemy
from alchemy.checkpoint.files import read
from alchemy.verify.compare_records import compare
from tests.gan import TRAININGS, config, train

STOPS = {"type": "tests.toy.SignalAt"}


def rows_of(record: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (record / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "values" in row]


def test_each_is_logged_by_its_name(tmp_path: Path) -> None:
    (result,) = alchemy.run([config(tmp_path, task__n_critic=2, ema={})], device=[-1], raise_errors=True)
    values: dict[str, float] = {}
    for row in rows_of(Path(result.record_dir)):
        values |= row["values"]
    assert (values["train/updates_discriminator"], values["train/updates_generator"]) == (10, 5)
    assert {
        f"train/{what}_{name}" for what in ("loss", "lr", "grad_norm") for name in ("generator", "discriminator")
    } <= values.keys()


@pytest.mark.parametrize(
    "changes",
    [{}, {"task__n_critic": 3}, {"backward": {"period": 2}, "task__n_critic": 2}, {"ema": {"decay": 0.9}}],
    ids=["plain", "n_critic", "open windows", "ema"],
)
def test_a_run_that_was_stopped_and_resumed_ends_at_the_same_weights(changes: dict[str, Any], tmp_path: Path) -> None:
    def run(folder: str, pipes: list[dict[str, Any]], **options: Any) -> Any:
        cfg = config(tmp_path / folder, sched__pipes=pipes, **changes)
        (result,) = alchemy.run([cfg], device=[-1], raise_errors=True, **options)
        return result

    never = {**STOPS, "step": -5}
    whole = run("whole", [never])
    stopped = run("cut", [{**STOPS, "step": 4}])
    resumed = run("cut", [never], resume_from=stopped.record_dir)
    assert stopped.status == "stopped" and resumed.status == "finished"
    found = compare(Path(whole.record_dir), Path(resumed.record_dir))
    assert found.equal, str(found)
    assert (found.updates, found.tensors > 30) == (10, True)
    files = read(Path(resumed.record_dir) / "state" / "last")
    assert any("generator" in name for name in files["optim.safetensors"])


# -- several processes
@pytest.mark.dist
def test_two_processes_make_the_updates_of_one(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tests.gan"]
    root = Path(__file__).parents[1]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run([*start, str(together)], cwd=root, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    train(alone)
    for name in TRAININGS:
        one = torch.load(alone / f"{name}.0", weights_only=True)
        for rank in range(2):
            torch.testing.assert_close(
                torch.load(together / f"{name}.{rank}", weights_only=True), one, rtol=1e-9, atol=1e-12
            )
