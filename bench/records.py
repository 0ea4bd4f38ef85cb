"""Benchmark finding and comparing records: commands on 10,000 of them, long metrics, and the cost of recording.

Commands run as processes and are timed as a user sees them, in wall time, with all files in the page cache. MLflow's
SQLite store and TensorBoard's reader take turns with alchemy, each in a process of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.measure import Figure, absolute, ratio
from bench.peer_environment import PEERS, find_peers
from bench.record_generator import RecordGenerator
from bench.recording_cost import recording_figures
from bench.start import ROOT, process_seconds
from bench.turns import Answer, Turn

# users do not set this variable, which makes Python compile all modules at every start
USER_ENV = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
VERSIONS = dict(package.split("==") for package in PEERS)
MLFLOW, TENSORBOARD = f"MLflow {VERSIONS['mlflow-skinny']}", f"TensorBoard {VERSIONS['tensorboard']}"


class Size(NamedTuple):
    """How much to measure."""

    records: int
    rows: int  # of the long run
    runs: int  # to create and list
    rounds: int
    slow_rounds: int  # of everything that takes seconds
    rebuilds: int


FULL = Size(records=10_000, rows=1_000_000, runs=1000, rounds=24, slow_rounds=5, rebuilds=3)
QUICK = Size(records=100, rows=10_000, runs=20, rounds=1, slow_rounds=1, rebuilds=1)


class Command(NamedTuple):
    """A command to time: its words, what it must print, its bound in seconds, and what to do before each round."""

    name: str
    project: Path
    words: Sequence[str]
    expected: str
    bound: float
    prepare: Callable[[], object] = lambda: None


def figures(quick: bool = False) -> list[Figure]:
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = _command_figures(folder, size) + recording_figures(quick)
        if python := find_peers(create=not quick):
            made += _mlflow_figures(_make_project(folder / "runs"), size, python)
            made += _tensorboard_figures(folder / "long", size, python)
    return made


def _make_project(folder: Path) -> Path:
    (folder / ".alchemy").mkdir(parents=True)
    return folder


# -- commands
def _command_figures(folder: Path, size: Size) -> list[Figure]:
    many, long, real = (_make_project(folder / name) for name in ("many", "long", "real"))
    RecordGenerator(long / "records").write_long(size.rows, real=False)
    name = RecordGenerator(real / "records").write_long(size.rows, real=True)
    shutil.copytree(real / "records" / name, many / "records" / name, copy_function=os.link)
    generator = RecordGenerator(many / "records")
    ids = [generator.write(number) for number in range(size.records)]
    all_runs, plot = f"{size.records:,} records", ("plot", name, "--metric", "train/loss")
    numbers = itertools.count(size.records)

    def write_new() -> None:
        generator.write(next(numbers))

    text = "status:finished lr<1e-3 dev/f1>0.5"
    quick = [
        Command(f"index, {all_runs} and a new one", many, ("index",), ": 1 added, 0 updated", 1.0, write_new),
        Command(f"ls with a filter, {all_runs}", many, ("ls", text, "--sort", "dev/f1"), "experiment", 0.5),
        Command(f"search, {all_runs}", many, ("search", "dropout"), r"20 of \d+ records", 0.3),
        Command(f"diff, {all_runs}", many, ("diff", ids[1], ids[len(ids) // 2]), "differ in: config, code", 0.3),
        Command(f"plot of {size.rows:,} rows, indexed, {all_runs}", many, plot, "train/loss", 0.5),
        Command(f"plot of {size.rows:,} rows, indexed, the only record", real, plot, "train/loss", 0.5),
    ]
    rows = f"plot of {size.rows:,} rows, not indexed"
    slow = [
        Command(f"{rows}, 1 value each", long, plot, "train/loss", 6.0, partial(_remove_index, long)),
        Command(f"{rows}, 7 values each", real, plot, "train/loss", 6.0, partial(_remove_index, real)),
    ]
    rebuild = Command(f"index --rebuild, {all_runs}", many, ("index", "--rebuild"), r"\d+ added", 60.0)
    return _time([rebuild], size.rebuilds) + _time(quick, size.rounds) + _time(slow, size.slow_rounds)


def _alchemy(*words: str) -> list[str]:
    return [sys.executable, "-m", "alchemy", *words]


def _remove_index(project: Path) -> None:
    shutil.rmtree(project / ".alchemy")
    _make_project(project)


def _time(commands: Sequence[Command], rounds: int) -> list[Figure]:
    """Time the commands in turns, after a first round that compiles the modules and checks the output."""
    times: dict[str, list[tuple[float, float]]] = {command.name: [] for command in commands}
    for command in commands:
        command.prepare()
        _check(command)
    for _ in range(rounds):
        for command in commands:
            command.prepare()
            times[command.name].append(process_seconds(_alchemy(*command.words), command.project, USER_ENV))
    made = []
    for name, _, _, _, bound, _ in commands:
        wall, cpu = zip(*times[name])
        made.append(absolute(f"alchemy {name}", wall, bound, "s"))
        made.append(absolute(f"alchemy {name}, CPU", cpu, None, "s"))  # depends less on what else the machine does
    return made


def _check(command: Command) -> None:
    env = USER_ENV | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(_alchemy(*command.words), cwd=command.project, env=env, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if done.returncode != 0 or not re.search(command.expected, output):
        raise RuntimeError(f"alchemy {' '.join(command.words)}: no {command.expected!r} in its output:\n{output}")


# -- peers
def _mlflow_figures(folder: Path, size: Size, python: str) -> list[Figure]:
    part = size.runs // (size.rounds + 1)  # the first round warms up
    runs = part * (size.rounds + 1)
    pairs = _take_turns(("alchemy create", "mlflow create"), folder, python, part, size.rounds)
    made = _compare("creating a run with 10 metrics", pairs, MLFLOW, 1000 / part, "ms")
    for work, name in {"list": f"listing {runs:,} runs", "filter": f"listing {runs:,} runs with a filter"}.items():
        pairs = _take_turns((f"alchemy {work}", f"mlflow {work}"), folder, python, runs, size.rounds)
        made += _compare(name, pairs, MLFLOW)
    return made


def _tensorboard_figures(folder: Path, size: Size, python: str) -> list[Figure]:
    with contextlib.closing(_start("tensorboard write", folder, python)) as writer:
        writer.ask(size.rows)
    pairs = _take_turns(("alchemy read", "tensorboard read"), folder, python, size.rows, size.slow_rounds)
    return _compare(f"reading {size.rows:,} values for the first time", pairs, TENSORBOARD)


def _start(work: str, folder: Path, python: str = sys.executable) -> Turn:
    return Turn("bench.record_peers", work, 1, str(folder), python=python)


def _take_turns(
    works: tuple[str, str], folder: Path, python: str, size: int, rounds: int
) -> list[tuple[Answer, Answer]]:
    """Return the pairs (alchemy, peer) of all rounds but the first."""
    with (
        contextlib.closing(_start(works[0], folder)) as ours,
        contextlib.closing(_start(works[1], folder, python)) as theirs,
    ):
        return [(ours.ask(size), theirs.ask(size)) for _ in range(rounds + 1)][1:]


def _compare(
    name: str, pairs: Sequence[tuple[Answer, Answer]], peer: str, scale: float = 1.0, unit: str = "s"
) -> list[Figure]:
    """Return the times of both programs, and their ratio; alchemy must not take longer."""
    made = []
    for clock, field in {"CPU": "cpu", "wall": "seconds"}.items():
        times = [(scale * getattr(ours, field), scale * getattr(theirs, field)) for ours, theirs in pairs]
        for program, values in zip(("alchemy", peer), zip(*times), strict=True):
            made.append(absolute(f"{name}, {clock}: {program}", values, None, unit))
        made.append(ratio(f"{name}, {clock}: alchemy / {peer}", times, 1.0))
    return made
