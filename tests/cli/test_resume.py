"""`alchemy resume` in the project of `alchemy new`, whose code may have changed."""

from __future__ import annotations

import datetime
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main

STOP = """
import os, signal
from alchemy.pipeline import EndStepPipeline

class StopAt(EndStepPipeline):
    def __call__(self, outputs, **kwargs):
        if self.run.train_sched.cur_step == int(os.environ.get("STOP_AT", -1)):
            os.kill(os.getpid(), signal.SIGTERM)
        return kwargs
"""


@pytest.fixture
def record(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Path:
    """A record of a run stopped by a signal in its second step."""
    (project / "src" / "stop.py").write_text(STOP)
    (project / "short.toml").write_text(
        'base = "train.toml"\n[sched]\nepochs = 1\npipes = [{ type = "src.stop.StopAt" }]\n'
    )
    monkeypatch.setenv("STOP_AT", "1")
    assert main(["run", "short.toml", "--device", "-1"]) == 128 + signal.SIGTERM
    monkeypatch.delenv("STOP_AT")
    (folder,) = (project / "records" / "train").iterdir()
    assert f"to resume: alchemy resume records/train/{folder.name}" in capsys.readouterr().err
    return folder


def status(record: Path) -> str:
    return str(json.loads((record / "record.json").read_text())["status"])


def test_it_goes_on_and_tells_the_result(record: Path, capsys: Any) -> None:
    assert status(record) == "stopped"
    assert main(["resume", str(record), "--device", "-1"]) == 0
    out, err = capsys.readouterr()
    assert "finished" in out and f"to test the best weights: alchemy test '{record}'" in err
    assert status(record) == "finished"


def test_by_its_id_alone(record: Path) -> None:
    assert main(["resume", record.name, "--device", "-1"]) == 0
    assert status(record) == "finished"


def test_changed_code_is_refused_unless_allowed(record: Path, capsys: Any) -> None:
    with open("src/stop.py", "a") as file:
        file.write("# changed\n")
    assert main(["resume", str(record), "--device", "-1"]) == 2
    error = capsys.readouterr().err
    assert "code: src/stop.py has changed" in error
    assert "--allow code" in error
    assert status(record) == "stopped"
    assert main(["resume", str(record), "--device", "-1", "--allow", "code"]) == 0
    assert status(record) == "finished"


def test_the_code_that_a_resume_was_made_with_is_the_code_of_the_record(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("src/stop.py", "a") as file:
        file.write("# changed\n")
    monkeypatch.setenv("STOP_AT", "3")
    assert main(["resume", str(record), "--device", "-1", "--allow", "code"]) == 128 + signal.SIGTERM
    monkeypatch.delenv("STOP_AT")
    assert main(["resume", str(record), "--device", "-1"]) == 0


def runs_elsewhere(record: Path, *, silent: float) -> None:
    """Make the record look as if another machine wrote it, with its last heartbeat some seconds ago."""
    heard = datetime.datetime.now().astimezone() - datetime.timedelta(seconds=silent)
    info = json.loads((record / "record.json").read_text())
    info |= {"status": "running", "host": "elsewhere", "pid": 7, "heartbeat": heard.isoformat()}
    (record / "record.json").write_text(json.dumps(info))


def test_a_run_of_another_machine_is_waited_for(record: Path, capsys: Any) -> None:
    runs_elsewhere(record, silent=60)
    assert main(["resume", str(record), "--device", "-1"]) == 2
    error = capsys.readouterr().err
    assert "is still running on elsewhere, as process 7; stop it there, or wait if it is gone" in error
    assert "it is considered lost after 300 s" in error


def test_a_run_of_another_machine_that_is_silent_is_gone_on_with(record: Path) -> None:
    runs_elsewhere(record, silent=400)
    assert main(["resume", str(record), "--device", "-1"]) == 0
    assert status(record) == "finished"


@pytest.mark.parametrize("words", [[], ["--allow"], ["x", "y"]])
def test_a_wrong_call_is_explained(words: list[str], capsys: Any) -> None:
    assert main(["resume", *words]) == 2
    assert "alchemy resume" in capsys.readouterr().err


def test_auto_runs_what_was_asked_for_after_the_training(record: Path, capsys: Any) -> None:
    """`--test` has the same meaning for a new and a resumed run."""
    assert main(["run", "short.toml", "--resume", "auto", "--test", "--device", "-1"]) == 0
    assert status(record) == "finished"
    assert len(list((record.parents[1] / "test").iterdir())) == 1


@pytest.mark.parametrize("words", [["--no-file"], ["--fast-dev-run", "2"], ["--overfit", "1"]])
def test_auto_needs_a_whole_training_with_a_record(project: Path, words: list[str], capsys: Any) -> None:
    assert main(["run", "train.toml", "--resume", "auto", *words]) == 2
    assert "--resume auto needs a record" in capsys.readouterr().err


def test_auto_takes_one_experiment(project: Path, capsys: Any) -> None:
    assert main(["run", "train.toml", "--resume", "auto", "--seeds", "1,2", "--device", "-1"]) == 2
    assert "--resume auto supports only one experiment at a time" in capsys.readouterr().err
    assert not os.path.exists(project / "records")
