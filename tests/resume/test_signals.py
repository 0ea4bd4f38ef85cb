"""SIGTERM and SIGINT at any time: the state is saved, the exit code is right, and the run resumes exactly."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from alchemy.checkpoint.manifest import newest_valid, read_manifest
from alchemy.records.status import read_info
from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of

INT, TERM = signal.SIGINT, signal.SIGTERM
RARELY: dict[str, Any] = {"every": 100}


def pipes(*types: str) -> list[dict[str, Any]]:
    return [{"type": f"tests.resume.parts.{name}"} for name in types]


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


AT_BEGIN = pipes("ShakeBE", "EvalBE", "TakeBE", "ShakeEE")
NO_EVAL = pipes("ShakeBE", "ShakeEE", "PassES")
UPDATES = {"any": [{"type": "alchemy.stop.Updates", "updates": 7}]}  # in the middle of the second epoch


@pytest.mark.parametrize(
    ("place", "count", "changes"),
    [
        slow("forward", 1, {}),
        ("forward", 8, {}),
        slow("forward", 15, {}),
        ("forward", 7, {"period": 3}),  # within a window
        slow("forward", 10, {"period": 3}),  # in a window that is cut by the end of the epoch
        slow("forward", 4, {"period": 3, "workers": 2}),
        slow("eval", 1, {}),  # an evaluation after a step
        slow("eval", 2, {"log_every": 1}),
        ("eval", 1, {"log_every": 4}),  # the update of that step is logged after it
        slow("eval", 5, {"period": 3, "log_every": 1}),
        ("eval", 3, {}),  # after an epoch
        slow("eval", 11, {}),  # after the last epoch
        slow("eval", 4, {"period": 3}),
        slow("eval", 1, {"sched__pipes": AT_BEGIN}),  # before the first epoch
        ("eval", 3, {"sched__pipes": AT_BEGIN}),
        slow("eval", 6, {"sched__pipes": AT_BEGIN, "period": 3}),
        ("eval", 1, {"sched__pipes": NO_EVAL}),  # at the end
        slow("scored", 2, {}),  # after the last batch of an evaluation
        slow("begin_epoch", 1, {}),
        slow("begin_epoch", 2, {}),
        slow("begin_step", 3, {}),
        slow("end_step", 6, {"period": 3}),
        ("end_epoch", 1, {}),  # in a pipe that does not evaluate
        slow("end_epoch", 3, {}),
        slow("row", 3, {}),
        ("disk", 30, {"every": 2}),  # during a save
        slow("disk", 70, {"every": 2}),
        slow("disk", 3, {}),  # during the last save
        slow("eval", 5, {"stop": UPDATES}),  # a stop rule has ended training before the signal
        slow("eval", 1, {"stop": UPDATES, "sched__pipes": NO_EVAL}),
        ("forward", 7, {"stop": UPDATES}),
        slow("end_epoch", 2, {"stop": UPDATES}),
    ],
)
@pytest.mark.parametrize("number", [pytest.param(INT, marks=pytest.mark.slow), TERM], ids=["int", "term"])
def test_a_signal(lab: Lab, tmp_path: Path, place: str, count: int, changes: dict[str, Any], number: int) -> None:
    changes = RARELY | changes
    baseline, _ = lab.baseline(**changes)
    cfg = lab.write(tmp_path, **changes)
    assert lab.command(tmp_path, "run", cfg, "--device", "-1", bombs=[[place, count, number]]) == 128 + number
    record = record_of(tmp_path)
    assert read_info(record)["status"] == "stopped"
    newest, _ = newest_valid(record / "state")
    assert newest is not None
    assert "signal" in read_manifest(newest).why or place == "disk"
    assert lab.command(tmp_path, "resume", str(record), "--device", "-1") == 0, text_of(tmp_path)
    assert differences(baseline, record) == []
    assert read_info(record)["status"] == "finished"


@pytest.mark.parametrize(("first", "second"), [(TERM, TERM), slow(INT, INT), slow(INT, TERM)])
@pytest.mark.parametrize("place", ["forward", "eval"])
def test_a_second_signal_leaves_at_once(lab: Lab, tmp_path: Path, place: str, first: int, second: int) -> None:
    baseline, _ = lab.baseline(every=2)
    cfg = lab.write(tmp_path, every=2)
    at = 8 if place == "forward" else 6
    twice = [[place, at, first], ["twice", 1, second]]
    assert lab.command(tmp_path, "run", cfg, "--device", "-1", bombs=twice) == 128 + second
    record = record_of(tmp_path)
    assert read_info(record)["status"] == "stopped"
    assert "received" in read_info(record)["reason"]
    assert lab.command(tmp_path, "resume", str(record), "--device", "-1") == 0, text_of(tmp_path)
    assert differences(baseline, record) == []


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_signal_while_data_is_loaded(lab: Lab, tmp_path: Path, number: int) -> None:
    baseline, _ = lab.baseline(every=2)
    cfg = lab.write(tmp_path, every=2)
    assert lab.command(tmp_path, "run", cfg, "--device", "-1", bombs=[["data", 1, number]]) == 128 + number
    record = record_of(tmp_path)
    assert read_info(record)["status"] == "stopped"
    assert newest_valid(record / "state")[0] is None
    assert lab.command(tmp_path, "resume", str(record), "--device", "-1") == 0, text_of(tmp_path)
    assert "training starts from the beginning" in text_of(tmp_path)
    assert differences(baseline, record) == []


def test_signals_in_every_generation(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline(period=3, **RARELY)
    places: list[Any] = [
        ["forward", 2, TERM],
        ["eval", 1, INT],
        ["eval", 3, TERM],
        ["begin_epoch", 1, TERM],
        ["forward", 4, INT],
    ]
    assert lab.start(tmp_path, [places[0]], period=3, **RARELY) == 128 + TERM
    for place in places[1:]:
        assert lab.resume(tmp_path, [place]) == 128 + place[2], text_of(tmp_path)
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []
