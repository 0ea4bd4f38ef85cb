"""The comparison detects faults of a resume: each fault is injected on purpose, and named."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of

AT_EPOCH = {"every": {"epochs": 1}}
KILL, TERM = signal.SIGKILL, signal.SIGTERM
FIRST_IS_BEST = {"checkpoint": {"every": 2, "monitor": "dev/calls", "mode": "min"}}
PATIENT = {"any": [{"type": "alchemy.stop.Patience", "monitor": "dev/calls", "mode": "min", "patience": 4}]}


@pytest.mark.parametrize(
    ("fault", "changes", "bomb", "differs"),
    [
        ("python_generator", AT_EPOCH, ["begin_epoch", 2, KILL], "state model.safetensors/0.weight"),
        ("numpy_generator", AT_EPOCH, ["begin_epoch", 2, KILL], "state model.safetensors/0.weight"),
        ("torch_generator", AT_EPOCH, ["begin_epoch", 2, KILL], "state model.safetensors/0.weight"),
        ("data_off_by_one", {}, ["forward", 9, KILL], "ledger: "),
        ("average", {}, ["forward", 9, KILL], "state ema.safetensors/0.weight"),
        ("optimizer", {}, ["forward", 9, KILL], "state optim.safetensors/"),
        ("metrics", {}, ["forward", 9, KILL], "metrics 10: train/first_epoch"),
        ("ledger", {}, ["forward", 9, KILL], "ledger: "),
        ("best_checkpoints", FIRST_IS_BEST, ["forward", 9, KILL], "state best"),
        ("schedule_off_by_one", {}, ["forward", 9, KILL], "metrics 10: "),
        ("open_window", {"period": 3, "every": 100}, ["forward", 2, TERM], "state model.safetensors/0.weight"),
        ("rules", {"stop": PATIENT}, ["forward", 9, KILL], "metrics: "),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_a_fault_is_seen(
    lab: Lab, tmp_path: Path, fault: str, changes: dict[str, Any], bomb: list[Any], differs: str
) -> None:
    baseline, _ = lab.baseline(**changes)
    for folder, faults in ((tmp_path / "whole", []), (tmp_path / "faulty", [fault])):
        at_once: dict[str, Any] = {
            "checkpoint__asynchronous": False
        }  # otherwise the state before the kill may not be complete yet
        assert lab.start(folder, [bomb], **changes, **at_once) == {KILL: -KILL, TERM: 128 + TERM}[bomb[2]]
        assert lab.resume(folder, faults=faults) == 0, text_of(folder)
    assert differences(baseline, record_of(tmp_path / "whole")) == []
    found = differences(baseline, record_of(tmp_path / "faulty"))
    assert any(text.startswith(differs) for text in found), found
