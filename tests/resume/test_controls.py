"""The comparison detects faults of a resume: each fault is injected on purpose, and named."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of

AT_EPOCH = {"every": {"epochs": 1}}
KILL, TERM = signal.SIGKILL, signal.SIGTERM
FIRST_IS_BEST = {"checkpoint": {"every": 2, "monitor": "dev/calls", "mode": "min"}}
PATIENT = {"any": [{"type": "alchemy.stop.Patience", "monitor": "dev/calls", "mode": "min", "patience": 4}]}


Killed = Callable[[dict[str, Any], list[Any]], Path]


@pytest.fixture(scope="module")
def killed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Return the folder of a run that was killed; without a fault, it resumes exactly."""
    made: dict[str, Path] = {}

    def kill(changes: dict[str, Any], bomb: list[Any]) -> Path:
        key = json.dumps([changes, bomb])
        if key not in made:
            folder = tmp_path_factory.mktemp("killed")
            # at once: otherwise the state before the kill may not be complete yet
            code = lab.start(folder / "run", [bomb], **changes, checkpoint__asynchronous=False)
            assert code == {KILL: -KILL, TERM: 128 + TERM}[bomb[2]]
            shutil.copytree(folder / "run", folder / "whole")
            assert lab.resume(folder / "whole") == 0, text_of(folder / "whole")
            assert differences(lab.baseline(**changes)[0], record_of(folder / "whole")) == []
            made[key] = folder / "run"
        return made[key]

    return kill


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
    lab: Lab, killed: Killed, tmp_path: Path, fault: str, changes: dict[str, Any], bomb: list[Any], differs: str
) -> None:
    baseline, _ = lab.baseline(**changes)
    shutil.copytree(killed(changes, bomb), tmp_path / "faulty")
    assert lab.resume(tmp_path / "faulty", faults=[fault]) == 0, text_of(tmp_path / "faulty")
    found = differences(baseline, record_of(tmp_path / "faulty"))
    assert any(text.startswith(differs) for text in found), found
