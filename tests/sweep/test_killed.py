"""A sweep that is killed, alone or with all its runs, continues: nothing is run twice, and nothing is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.cli import main
from alchemy.queue import Queue
from alchemy.sweep.study import find_study
from tests.sweep.trivial import SPACE, ledger, loss

TOY = """
from tests.sweep.trivial import command, loss, make_settings, sweep
sweep(make_settings(seeds=[1, 2]), command(loss, pause=0.1), slots=2)
"""
ROOT = str(Path(__file__).parents[2])


def start(*words: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def list_family(pid: int) -> list[int]:
    """Return a process and its descendants; supervisors are in sessions of their own."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for own in found:
        found += parents.get(own, [])
    return found


def kill(process: subprocess.Popen[bytes], *, everything: bool) -> None:
    for pid in list_family(process.pid) if everything else [process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("everything", [False, True])
def test_a_killed_sweep_loses_nothing(everything):
    for pause in (0.6, 0.75, 0.9):
        process = start("-c", TOY)
        time.sleep(pause)
        kill(process, everything=everything)
    assert start("-c", TOY).wait(60) == 0
    entries = Queue().list()
    assert sorted((entry.note["point"], entry.note["seed"]) for entry in entries) == [
        (point, seed) for point in range(6) for seed in ("1", "2")
    ]
    assert {entry.state for entry in entries} == {"done"}
    # a command without a record starts again if it was killed itself; otherwise, each one has run once
    twice = sum(len(entry.attempts) for entry in entries)
    assert len(ledger()) <= twice
    assert everything or len(ledger()) == len(set(ledger())) == 12


KILLS = st.lists(st.tuples(st.floats(0.1, 1.3), st.booleans()), min_size=1, max_size=3)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@given(kills=KILLS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_sweep_that_is_killed_at_any_moment_ends_the_same(kills, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("history"))
    for pause, everything in kills:
        process = start("-c", TOY)
        time.sleep(pause)
        kill(process, everything=everything)
    assert start("-c", TOY).wait(60) == 0
    study = find_study("toy")
    assert [(trial.point, trial.values) for trial in study.trials] == [
        (point, {str(seed): loss(point, seed)[0] for seed in (1, 2)}) for point in SPACE.list_points()
    ]
    entries = Queue().list()
    assert len(entries) == 12
    assert any(everything for _, everything in kills) or len(ledger()) == len(set(ledger())) == 12


CONFIG = """
[sweep]
trials = 2
seeds = 2
optim.lr = { log = [1e-3, 1e-1] }
model.hidden = [4, 16]
"""
COMMAND = ("-m", "alchemy", "sweep", "train.toml", "--device", "-1", "--set", "sched.epochs=3", "--set", "log_every=1")


def make_project(folder: Path, monkeypatch) -> None:
    assert main(["new", str(folder)]) == 0
    monkeypatch.chdir(folder)
    Path("train.toml").write_text(Path("train.toml").read_text() + CONFIG)


def read_values() -> dict[int, dict[str, float]]:
    rows = [json.loads(line) for line in Path(".alchemy/sweeps/train/points.jsonl").read_text().splitlines()]
    return {row["point"]: row["values"] for row in rows if row["event"] == "done"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_sweep_of_real_trainings_is_killed_with_everything_and_ends_the_same(tmp_path, monkeypatch):
    make_project(tmp_path / "whole", monkeypatch)
    assert start(*COMMAND).wait(120) == 0
    whole = read_values()
    make_project(tmp_path / "killed", monkeypatch)
    process = start(*COMMAND)
    time.sleep(3.0)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    for pause in (3.0, 4.0):
        process = start(*COMMAND)
        time.sleep(pause)
        kill(process, everything=True)
    assert start(*COMMAND).wait(120) == 0
    assert read_values() == whole  # bit by bit
    queue = Queue()
    records = [queue.list_records(entry.id) for entry in queue.list()]
    finished = [
        path
        for paths in records
        for path in paths
        if json.loads((path / "record.json").read_text())["status"] == "finished"
    ]
    assert len(records) == len(finished) == len(set(finished)) == 4
    assert start(*COMMAND).wait(60) == 0
    assert [queue.list_records(entry.id) for entry in queue.list()] == records
