"""`alchemy queue release`: a failed run continues its record, or starts from the beginning if that is impossible."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from alchemy.queue import Attempt, Queue
from alchemy.queue.attempts import plan_command
from tests.cli.run_command import run

WORDS = ["train.toml", "--device", "-1", "--set", "sched.epochs=1", "--set", "log_every=5"]


@pytest.fixture
def record(trained_project, tmp_path, monkeypatch, capsys):
    """The record of a run that has failed in the queue after its first checkpoint."""
    folder = tmp_path / "project"
    shutil.copytree(trained_project, folder)
    monkeypatch.chdir(folder)
    (record,) = Path("records/train").resolve().iterdir()
    info = json.loads((record / "record.json").read_text())
    (record / "record.json").write_text(json.dumps({**info, "status": "failed"}))
    run(capsys, "queue", "add", *WORDS)
    Queue().path(1, "records").write_text(f"{record}\n")
    attempt = Attempt(number=1, started="", device=("cpu",), outcome="failed")
    Queue().update(1, lambda entry: replace(entry, state="failed", attempts=(attempt,)))
    return record


def is_resumed() -> bool:
    entry = Queue().get(1)
    return "--resume" in plan_command(entry, Queue().list_records(1))


def test_a_failed_run_continues_its_record(record, capsys):
    assert run(capsys, "queue", "release", "1") == f"released 1; it continues {record.name}\n"
    assert Queue().get(1).state == "waiting" and is_resumed()


def test_a_held_run_continues_without_the_changes_of_its_config(record, capsys):
    Path("train.toml").write_text(Path("train.toml").read_text().replace("hidden = 64", "hidden = 32", 1))
    Queue().update(1, lambda entry: replace(entry, state="held", attempts=()))
    text = f"it continues {record.name}, without the changes of its config (model.hidden: 64 -> 32)"
    assert text in run(capsys, "queue", "release", "1")
    assert is_resumed()


def test_it_starts_from_the_beginning_without_a_checkpoint(record, capsys):
    shutil.rmtree(record / "state")
    Path("src/model.py").write_text(Path("src/model.py").read_text() + "\n# fixed\n")
    expected = f"released 1; it starts from the beginning: {record.name} has no checkpoint\n"
    assert run(capsys, "queue", "release", "1") == expected
    assert not is_resumed() and record.exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "change"),
    [
        ("train.toml", "hidden = 64", "hidden = 32", "model.hidden: 64 -> 32"),
        ("src/model.py", "import", "# fixed\nimport", "src/model.py has changed"),
    ],
)
def test_a_change_has_to_be_confirmed(record, capsys, file, old, new, change):
    Path(file).write_text(Path(file).read_text().replace(old, new, 1))
    out = run(capsys, "queue", "release", "1", code=2)
    assert out == (
        f"error: entry 1 cannot continue {record.name}: {change}; `alchemy queue release 1 --restart` starts it from "
        "the beginning, in a new record\n"
    )
    assert Queue().get(1).state == "failed"
    assert "it starts from the beginning" in run(capsys, "queue", "release", "1", "--restart")
    assert not is_resumed()


def test_an_entry_that_is_being_stopped_cannot_start_from_the_beginning_yet(record, capsys):
    attempt = Attempt(number=2, started="", device=("slurm",))
    Queue().update(1, lambda entry: replace(entry, state="running", then="held", on="slurm", attempts=(attempt,)))
    assert "entry 1 is still being stopped; release" in run(capsys, "queue", "release", "1", "--restart", code=2)
    assert Queue().get(1).then == "held" and is_resumed()


def test_an_entry_that_was_never_started_has_nothing_to_restart(project, capsys):
    run(capsys, "queue", "add", "train.toml", "--hold")
    assert run(capsys, "queue", "release", "1", "--restart") == "released 1\n"
