"""Streams are replayed up to the last position; their order depends on the number of workers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from alchemy.records.status import read_info
from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of

KILL, TERM = signal.SIGKILL, signal.SIGTERM


def streamed(workers: int) -> dict[str, Any]:
    pipes: list[dict[str, Any]] = [
        {"type": "tests.resume.parts.NoisyStream", "count": 12},
        {"type": "alchemy.pipeline.itr.SplitByWorker"},
        {"type": "alchemy.pipeline.itr.Shuffle", "buffer_size": 4},
    ]
    dev = {"pipes": [{"type": "tests.resume.parts.Noisy", "count": 4}], "batch_size": 2}
    return {
        "task__datasets": {"train": {"pipes": pipes, "batch_size": 2, "num_workers": workers}, "dev": dev},
        "sched": {
            "type": "alchemy.sched.Constant",
            "epochs": 3,
            "pipes": [{"type": f"tests.resume.parts.{name}"} for name in ("ShakeBE", "PassES", "ShakeEE")],
        },
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize(
    "place",
    [
        ["end_step", 3, KILL],
        ["end_step", 8, TERM],
        pytest.param(["end_step", 5, TERM], marks=pytest.mark.slow),
        pytest.param(["begin_epoch", 2, KILL], marks=pytest.mark.slow),
        pytest.param(["end_epoch", 1, TERM], marks=pytest.mark.slow),
        pytest.param(["end_epoch", 3, KILL], marks=pytest.mark.slow),
    ],
    ids=lambda place: f"{place[0]}-{place[1]}",
)
def test_a_stream(lab: Lab, tmp_path: Path, workers: int, period: int, place: list[Any]) -> None:
    changes = {**streamed(workers), "period": period}
    baseline, _ = lab.baseline(**changes)
    assert lab.start(tmp_path, [place], **changes) in (-KILL, 128 + TERM)
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []
    if place[:2] == ["end_step", 8]:
        assert "reading the stream up to batch" in text_of(tmp_path)


def test_another_number_of_workers_is_refused_and_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline(**streamed(0))
    assert lab.start(tmp_path, [["end_step", 8, TERM]], **streamed(0)) == 128 + TERM
    assert lab.resume(tmp_path, overrides=["task.datasets.train.num_workers=2"]) != 0
    assert "num_workers" in text_of(tmp_path)
    assert "--allow num_workers" in text_of(tmp_path)
    # the next attempt, without overrides, uses the config of the saved state
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []


def test_another_number_of_workers_goes_on_when_it_is_allowed(lab: Lab, tmp_path: Path) -> None:
    assert lab.start(tmp_path, [["end_step", 8, TERM]], **streamed(0)) == 128 + TERM
    code = lab.resume(tmp_path, overrides=["task.datasets.train.num_workers=2"], allow=["num_workers"])
    assert code == 0, text_of(tmp_path)
    assert read_info(record_of(tmp_path))["status"] == "finished"
