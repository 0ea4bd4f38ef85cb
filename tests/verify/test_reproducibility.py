"""`verify resume` and `verify determinism`: real processes, one of them killed; and a model that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.verify.reproducibility import STREAM, verify_determinism, verify_resume
from alchemy.verify.trial_runs import Trial

UNSEEDED: dict[str, Any] = {"breaks": "unseeded", "after": 3}


def document(train: dict[str, Any] | None = None, **model: Any) -> Document:
    from promises import config  # type: ignore[import-not-found]

    cfg = config(**model)
    cfg["task"]["datasets"]["train"] |= train or {}
    return prepare_cfg(cfg)


def test_layers_of_lstm_with_dropout_are_resumed_to_the_bit() -> None:
    told: list[str] = []
    report = verify_resume(document(), updates=5, tell=told.append)
    (run,) = report.runs
    assert report.equal, str(report)
    assert (report.updates, run.facts["killed_at"], run.found.updates, run.found.rows) == (5, 3, 5, 8)
    assert 0 <= (run.facts["resumed_from"] or 0) < 3
    assert str(report).endswith(f"equal: {run.found.tensors} tensors, 8 rows, 5 ledger updates")
    assert told[0] == "training without interruption, 5 updates"
    assert not list(Path().iterdir())


def test_numbers_that_no_seed_reaches_are_caught() -> None:
    report = verify_determinism(document(**UNSEEDED), updates=5)
    (run,) = report.runs
    assert not report.equal
    assert run.what == "a second time"
    assert run.found.differences[0].startswith("first logged difference at update 4: train/loss ")
    assert any(text.startswith("tensor model.") for text in run.found.differences)
    assert report.notes[-1].startswith("a CPU run does not test cuDNN algorithm choice")


def test_layers_of_lstm_with_dropout_are_the_same_each_time_and_with_workers() -> None:
    report = verify_determinism(document())
    assert [run.what for run in report.runs] == ["a second time", "with 2 workers instead of 0"]
    assert report.equal, str(report)


@pytest.mark.slow
def test_a_resume_is_caught_too_and_workers_make_no_difference() -> None:
    report = verify_resume(document(**UNSEEDED), kill_at=4)
    assert str(report).splitlines()[2].startswith("first logged difference at update 4: train/loss ")
    assert verify_resume(document({"num_workers": 1}), kill_at=4, workers=[0, 2]).equal


def test_streams_are_compared_with_the_same_number_of_workers() -> None:
    stream = {"pipes": [{"type": "promises.Spoken"}], "shuffle": False}
    report = verify_determinism(document(stream), updates=4)
    assert report.equal
    assert [run.what for run in report.runs] == ["a second time"]
    assert report.notes[0] == STREAM
    assert verify_resume(document(stream), updates=4).equal


def test_a_trial_is_the_same_training_without_what_writes_elsewhere() -> None:
    from promises import config

    cfg = config("records", breaks="")
    cfg["plugins"] += [{"type": "alchemy.plugins.Backup", "paths": ["src"]}]
    cfg["stop"] = {"any": [{"type": "alchemy.stop.Epochs", "epochs": 9}]}
    trial = Trial.of(prepare_cfg(cfg), updates=7)
    job = trial.train(Path("there"), workers=0)
    plain = job.arguments[0].plain()
    assert trial.left_out == ["Backup"]
    assert [row["type"] for row in plain["plugins"]] == ["alchemy.plugins.FileLogger"]
    assert job.folder == Path("there")
    assert [rule["type"] for rule in plain["stop"]["any"]] == ["alchemy.stop.Epochs", "alchemy.verify.trial_runs.Limit"]
    assert plain["sched"] == cfg["sched"]
    assert plain["checkpoint"]["every"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"updates": 1}, "--updates must be at least 2, got 1"),
        ({"kill_at": 0}, "--kill-at must be at least 1, got 0"),
        ({"doc": {"tag": "x", "task": {"type": "alchemy.task.DefaultTask"}}}, "there is no training data"),
    ],
)
def test_what_cannot_be_checked_is_one_error(change: dict[str, Any], message: str) -> None:
    doc = change.pop("doc", None)
    with pytest.raises(AlchemyError, match=message):
        verify_resume(prepare_cfg(doc) if doc else document(), **change)
