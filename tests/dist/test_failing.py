"""`alchemy run --processes 2` when a process fails, is killed or terminated: record and console give the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alchemy.config.toml_writer import dumps
from alchemy.records.status import read_info
from tests.dist.leaving import recorded
from tests.dist.start import python
from tests.dist.work import record

pytestmark = pytest.mark.dist
KILLED = "was killed by signal 9 (SIGKILL)"


def run(folder: Path, code: int, *, fails: bool = False, **leave: object) -> tuple[str, dict[str, Any]]:
    """Return the output of a run, and the information in its record; `leave` are keywords of `LeaveAt`."""
    cfg = recorded(folder, "run", dropout=0.0)
    cfg["sched"]["pipes"][0] |= leave
    if fails:
        del cfg["model"]["dropout"]
        cfg["model"] |= {"type": "tests.dist.leaving.Failing", "step": 2}
    (folder / "cfg.toml").write_text(dumps(cfg))
    said = python("alchemy", "run", folder / "cfg.toml", "--processes", 2, "--device", -1, code=code)
    assert "torch.distributed.elastic" not in said and "torch/distributed/run.py" not in said
    return said, read_info(record(folder, "run"))


def test_the_failure_of_a_rank_is_told_once_with_its_traceback_in_the_log(tmp_path: Path) -> None:
    said, info = run(tmp_path, 1, fails=True)
    log = (record(tmp_path, "run") / "run.log").read_text()
    assert said.count("ValueError: no such word") == said.count('raise ValueError("no such word")') == 1
    assert "Traceback" not in said and log.count("Traceback (most recent call last)") >= 1
    assert info["status"] == "failed"
    assert "rank 1: ValueError: no such word; in epoch 1/3, update 3, step 2, rank 1" in info["reason"]


def test_a_rank_that_is_killed_is_named_with_its_signal(tmp_path: Path) -> None:
    said, info = run(tmp_path, 1, step=5, how="SIGKILL", who="last")
    assert (info["status"], info["reason"]) == ("failed", f"RunFailed: rank 1 {KILLED}")
    assert f"rank 1 {KILLED}" in said and "Traceback" not in said
    assert f"failed: rank 1 {KILLED}" in (record(tmp_path, "run") / "run.log").read_text()


def test_that_the_first_rank_was_killed_is_told_by_the_one_that_has_started_it(tmp_path: Path) -> None:
    said, info = run(tmp_path, 1, step=5, how="SIGKILL", who="first")
    assert said.splitlines()[-1] == f"error: rank 0 {KILLED}"
    assert info["status"] == "killed"


def test_a_signal_to_the_command_saves_the_state_and_gives_the_exit_code(tmp_path: Path) -> None:
    _, info = run(tmp_path, 143, step=5, how="SIGTERM", who="launcher")
    assert info["status"] == "stopped"
    assert (record(tmp_path, "run") / "state" / "last").exists()
