"""The config of a record stays unchanged, even if parts modify their tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy import runner
from alchemy.config import load
from alchemy.config.load import prepare_cfg
from alchemy.context import Run
from alchemy.resuming import resume
from alchemy.runner import run
from alchemy.state import open_state
from tests.toy import Line, config


class Popping(Line):
    """A model of an old project that removes keys from its table."""

    def __init__(self) -> None:
        super().__init__()
        self.model_cfg.pop("width")


def test_what_a_part_takes_out_of_the_config_stays_in_the_record(tmp_path: Path) -> None:
    model = {"type": "tests.resume.test_config.Popping", "width": 3}
    (first,) = run([config(tmp_path, model=model, sched__epochs=1)], device=[-1], raise_errors=True)
    assert first.record_dir is not None
    for epochs in (2, 3):
        change = [f"sched.epochs={epochs}"]
        resume(first.record_dir, device=[-1], overrides=change, allow=["sched.epochs"], raise_errors=True)
        written = prepare_cfg(first.record_dir / "cfg.toml").plain()
        assert (written["model"], written["sched"]["epochs"]) == (model, epochs)


def test_taking_up_a_state_parses_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = run([config(tmp_path, sched__epochs=1)], device=[-1], raise_errors=True)
    assert first.record_dir is not None

    def watched(context: Run) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(load, "Layers", None)  # fails if anything parses a config
            open_state(context)

    monkeypatch.setattr(runner, "open_state", watched)
    change = ["sched.epochs=2"]
    resumed = resume(first.record_dir, device=[-1], overrides=change, allow=["sched.epochs"], raise_errors=True)
    assert resumed.status == "finished"
