"""The profiler writes a trace to the record, even if training ends first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.runner import run_task
from tests.toy import config


def profiled(folder: Path | None, **settings: Any) -> Any:
    cfg = config(folder)
    cfg["plugins"].append({"type": "alchemy.plugins.Profile", **settings})
    return run_task(cfg, raise_errors=True)


@pytest.mark.parametrize("settings", [{"wait": 2, "warmup": 1, "active": 2, "memory": True}, {"wait": 2, "active": 99}])
def test_a_trace_in_the_record_and_a_table_in_the_log(tmp_path: Path, settings: dict[str, Any]) -> None:
    result = profiled(tmp_path, **settings)
    trace = json.loads((result.record_dir / "profile" / "trace.json").read_text())
    names = {row.get("name") for row in trace["traceEvents"]}
    assert "aten::linear" in names
    log = (result.record_dir / "run.log").read_text()
    assert "profile:\n" in log
    assert "aten::" in log


def test_it_counts_updates(tmp_path: Path) -> None:
    result = profiled(tmp_path, wait=1, warmup=1, active=3)
    trace = json.loads((result.record_dir / "profile" / "trace.json").read_text())
    steps = {row["name"] for row in trace["traceEvents"] if str(row.get("name")).startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"}


def test_without_a_record_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert profiled(None, wait=0, warmup=1, active=2).status == "finished"
    assert not list(tmp_path.iterdir())


def test_wrong_numbers_are_told() -> None:
    with pytest.raises(AlchemyError, match="active must be at least 1, not 0"):
        profiled(None, active=0)
