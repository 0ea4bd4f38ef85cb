"""A run killed during startup never blocks `--resume auto`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from alchemy.records.folder import folders
from alchemy.records.status import read_info
from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of

KILL, TERM = signal.SIGKILL, int(signal.SIGTERM)
LAST = 24  # enough for the first steps of a run, also if the code has uncommitted changes, which are saved too


def case(count: int) -> Any:
    return pytest.param(count, marks=() if count in (1, 4, 8, 12, 16) else pytest.mark.slow)


@pytest.mark.parametrize("count", [case(count) for count in range(1, LAST + 1)])
def test_killed_at_every_file_of_the_start(lab: Lab, tmp_path: Path, count: int) -> None:
    baseline, _ = lab.baseline()
    run, runs = ("run", lab.write(tmp_path), "--device", "-1", "--resume", "auto"), str(tmp_path / "runs")
    assert lab.command(tmp_path, *run, bombs=[["file", count, KILL]], watched=runs) == -KILL
    assert lab.command(tmp_path, *run) == 0, text_of(tmp_path)
    (record,) = folders(tmp_path / "runs")
    assert read_info(record)["status"] == "finished"
    assert differences(baseline, record) == []


def test_the_cases_reach_the_first_step(lab: Lab, tmp_path: Path) -> None:
    run, runs = ("run", lab.write(tmp_path), "--device", "-1"), str(tmp_path / "runs")
    assert lab.command(tmp_path, *run, bombs=[["file", LAST, TERM]], watched=runs) == 128 + TERM
    (record,) = folders(tmp_path / "runs")
    assert read_info(record)["reason"] == f"signal {TERM}: ended at the next step"


@pytest.mark.parametrize("count", [case(count) for count in range(1, LAST + 1)])
def test_killed_at_every_file_of_a_resume(lab: Lab, tmp_path: Path, count: int) -> None:
    """With another config, which is written during the resume."""
    assert lab.start(tmp_path, [["end_step", 8, TERM]]) == 128 + TERM
    record, runs = record_of(tmp_path), str(tmp_path / "runs")
    resume = ("resume", str(record), "--device", "-1")
    change = ("--set", "log_every=1", "--allow", "log_every")
    assert lab.command(tmp_path, *resume, *change, bombs=[["file", count, KILL]], watched=runs) == -KILL
    assert lab.command(tmp_path, *resume) == 0, text_of(tmp_path)
    assert read_info(record)["status"] == "finished"


@pytest.mark.parametrize("lacking", ["cfg.toml", "versions"])
def test_auto_skips_a_record_that_is_not_whole(lab: Lab, tmp_path: Path, lacking: str) -> None:
    """Folders left by earlier versions: `record.json` was written before the config and the versions."""
    run = ("run", lab.write(tmp_path), "--device", "-1")
    assert lab.command(tmp_path, *run, bombs=[["data", 1, KILL]]) == -KILL
    (record,) = folders(tmp_path / "runs")
    if lacking == "versions":
        info = json.loads((record / "record.json").read_text())
        (record / "record.json").write_text(json.dumps(info | {"versions": {}, "code_hash": ""}))
    else:
        (record / "cfg.toml").unlink()
    assert lab.command(tmp_path, *run, "--resume", "auto") == 0, text_of(tmp_path)
    assert "no unfinished record of this config: starting a new run" in text_of(tmp_path)
    assert len(list(folders(tmp_path / "runs"))) == 2
