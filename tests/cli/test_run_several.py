"""Several runs of one `alchemy run`: in order, each for itself, and stopped together."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from alchemy.cli import main, run_several
from alchemy.queue import NewEntry
from tests.cli.pipes_in_project import QUICK, add_pipe, records

KILLED = """import os, signal
from alchemy.pipeline import EndStepPipeline

class Killed(EndStepPipeline):
    def __call__(self, outputs, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_they_end_in_a_table_in_order_and_a_failed_or_killed_one_disturbs_no_other(project, scratch, capsys):
    (project / "src" / "killed.py").write_text(KILLED)
    (project / "killed.toml").write_text('base = "train.toml"\nsched.pipes = [{ type = "src.killed.Killed" }]\n')
    assert main(["run", add_pipe(project, "Boom"), "killed.toml", "train.toml", *QUICK, "--task-per-device", "2"]) == 1
    out = capsys.readouterr().out
    _, failed, killed, good = out.partition("\nexperiment ")[2].splitlines()
    assert re.match(r"Boom.toml +failed +1/1 +records/train/\S+$", failed)
    assert re.match(r"killed.toml +failed .*its process was killed by SIGKILL +records/train/\S+$", killed)
    assert re.match(r"train.toml +finished +1/1 +accuracy [\d.]+ .* records/train/\S+$", good)
    assert re.search(r"^\[Boom.toml\] .* Boom.toml failed: ValueError: boom \[x\] \{y\}\n", out, re.M)
    assert re.search(r"^\[killed.toml\] failed: killed by SIGKILL: ", out, re.M)
    assert "=== attempt" not in out
    assert not list(scratch.glob("alchemy-*")) and not (project / ".alchemy").exists()


def test_nothing_is_written_without_a_record_and_the_mean_over_seeds_is_shown(project, scratch, capsys):
    assert main(["run", "train.toml", "--seeds", "1,2", "--no-file", *QUICK]) == 0
    *_, first, second, mean = capsys.readouterr().out.splitlines()
    assert re.match(r"train.toml seed 1 +finished +1/1 +accuracy 0", first)
    assert re.match(r"train.toml seed 2 +finished +1/1 +accuracy 0", second)
    assert re.match(r"train.toml mean ± sd +accuracy [\d.]+ ± ", mean)
    assert not (project / "records").exists() and not list(scratch.glob("alchemy-*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_stops_all_and_starts_no_more(number, code, project, scratch):
    words = ["run", add_pipe(project, "Slow"), "--seeds", "1,2,3", "--device", "-1", "--task-per-device", "2"]
    command = [sys.executable, "-m", "alchemy", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        seen: set[str] = set()
        while len(seen) < 2:
            seen |= set(re.findall(r"^\[(.*)\] stepping", process.stdout.readline()))
        process.send_signal(number)
        out = process.communicate(timeout=60)[0]
    assert process.returncode == code
    deadline = time.monotonic() + 60  # if the command was killed, its runs get SIGTERM, and save
    while [status(record) for record in records(project)] != ["stopped", "stopped"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert all((record / "state" / "last").exists() for record in records(project))
    if code > 0:
        assert out.count("to resume: alchemy resume ") == 2
        assert re.search(r"^Slow.toml seed 3 +stopped +not started", out, re.M)
        assert not list(scratch.glob("alchemy-*"))


def test_an_output_that_cannot_be_written_ends_no_run(project):
    command = [sys.executable, "-m", "alchemy", "run", "train.toml", "--seeds", "1,2", *QUICK]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert "Traceback" not in done.stderr and done.returncode != 0
    assert [status(record) for record in records(project)] == ["finished", "finished"]


def test_a_result_that_cannot_be_written_is_that_of_the_record(project, monkeypatch, capsys):
    def lose_result(**values):
        return NewEntry(**{**values, "env": {**values["env"], run_several.RESULT_FILE: "/dev/full/result"}})

    monkeypatch.setattr(run_several, "NewEntry", lose_result)
    assert main(["run", "train.toml", "--seeds", "1,2", *QUICK]) == 0
    assert len(re.findall(r"^train.toml seed \d +finished .* records/train/\S+$", capsys.readouterr().out, re.M)) == 2


def status(record):
    return json.loads((record / "record.json").read_text())["status"]


def test_each_run_gets_its_own_options(project, capsys):
    words = ["--set", "model.hidden=4", "--desc", "two words", "--fast-dev-run", "1"]
    assert main(["run", "train.toml#tiny", "--force-mp", "--device", "-1", *words]) == 0
    assert "[train.toml#tiny] " in capsys.readouterr().out
    assert main(["run", "train.toml", "--seeds", "1,2", "--device", "99"]) == 2
    assert "no device 99: found 0 GPUs; use --device -1 for the CPU" in capsys.readouterr().err
    assert "ALCHEMY_RESULT_FILE" not in os.environ


def test_torchrun_is_for_one(project, monkeypatch, capsys):
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "h", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    assert main(["run", "train.toml", "--seeds", "1,2", "--device", "-1"]) == 2
    assert "torchrun supports only one experiment at a time" in capsys.readouterr().err
