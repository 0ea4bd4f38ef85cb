"""Benchmark sweeps: what they add to each run, next to Optuna and Ray Tune, and how soon each method finds optima."""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product

from alchemy.queue import NewEntry, Queue, Slots, Worker
from alchemy.sweep.controller import Controller
from alchemy.sweep.proposers import propose
from alchemy.sweep.settings import Settings
from alchemy.sweep.space import Choice, Point, Range, Space
from alchemy.sweep.study import Plan, describe_dimension, open_study
from bench.measure import Figure, absolute, interval
from bench.peer_environment import RAY, find_peers

ROUNDS, RUNS, SEEDS, TRIALS = 8, 200, 20, 80
RAY_ROUNDS, RAY_RUNS = 3, 50  # a run takes about a second
SPACE = Space((Range("x", 0.0, 1.0), Range("y", 0.0, 1.0)))
METHODS = ("random", "sobol", "tpe", "cmaes", "annealing", "hill_climbing")
# a run: logs one value, as fast as Python starts
RUN = """
import json, os, sys
folder = os.path.abspath(sys.argv[1])
os.makedirs(folder, exist_ok=True)
if "ALCHEMY_QUEUE_RECORDS" in os.environ:
    open(os.environ["ALCHEMY_QUEUE_RECORDS"], "a").write(folder + "\\n")
row = {"update": 1, "step": 1, "epoch": 0, "t": 0.0, "gen": 0, "values": {"dev/loss": float(sys.argv[2])}}
open(os.path.join(folder, "metrics.jsonl"), "w").write(json.dumps(row) + "\\n")
"""


def figures(quick: bool = False) -> list[Figure]:
    """Measure the seconds per run of a sweep and of Optuna minus those of the bare process, and the methods."""
    rounds, runs = (1, 10) if quick else (ROUNDS, RUNS)
    found: dict[str, list[float]] = {}
    ray = find_peers(create=not quick, packages=RAY)
    for number in range(rounds):
        with _folder():
            bare = _time(lambda: [subprocess.run(_command({"x": n / runs}, 1), check=True) for n in range(runs)], runs)
        for method in ("random", "tpe"):
            with _folder():
                seconds = _time(lambda: _run_sweep(method, runs), runs)  # noqa: B023
                found.setdefault(f"a sweep of {runs} runs, {method}", []).append(seconds - bare)
            with _folder():
                seconds = _time(lambda: _run_optuna(method, runs), runs)  # noqa: B023
                found.setdefault(f"Optuna alone, {runs} runs, {method}", []).append(seconds - bare)
        if ray and number < RAY_ROUNDS:
            with _folder():
                found.setdefault(f"Ray Tune, {RAY_RUNS} runs, random", []).append(_run_ray(ray) - bare)
    made = [absolute(f"{name}: overhead per run", values, _bound(name), "s") for name, values in found.items()]
    return made + _compare_methods(3 if quick else SEEDS)


def _bound(name: str) -> float | None:
    return 0.1 if name.startswith("a sweep") else None


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        yield


def _time(work: Callable[[], object], runs: int) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / runs


def _command(point: Point, seed: int) -> tuple[str, ...]:
    value = sum((float(str(own)) - 0.3) ** 2 for own in point.values())
    name = "-".join(map(str, point.values()))
    return (sys.executable, "-I", "-S", "-c", RUN, f"records/{name}", str(value))


def _make_entry(point: Point, seed: int) -> NewEntry:
    return NewEntry(argv=_command(point, seed))


def _run_sweep(method: str, runs: int) -> None:
    settings = Settings(space=SPACE, method=method, metric="dev/loss", mode="min", trials=runs, seeds=[1])
    space = {dimension.key: describe_dimension(dimension) for dimension in SPACE.dimensions}
    known = {key: vars(settings)[key] for key in ("metric", "mode", "seeds", "method", "trials", "prune", "seed")}
    plan = Plan(name="bench", config="", overrides=[], digest="", created="", space=space, **known)
    with open_study(plan) as study:
        assert Controller(study, settings, Worker(Queue(), Slots(1), study.group), _make_entry).run()
        assert len(study.rank_trials()) == runs


def _run_optuna(method: str, runs: int) -> None:
    """The same runs from Optuna's own loop, with the same kind of storage."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = optuna.samplers
    sampler = samplers.TPESampler(seed=0) if method == "tpe" else samplers.RandomSampler(seed=0)
    backend = optuna.storages.journal.JournalFileBackend("optuna.log")
    study = optuna.create_study(sampler=sampler, storage=optuna.storages.JournalStorage(backend))

    def objective(trial: optuna.Trial) -> float:
        command = _command({name: trial.suggest_float(name, 0, 1) for name in ("x", "y")}, 1)
        subprocess.run(command, check=True)
        with open(os.path.join(command[5], "metrics.jsonl")) as file:
            value: float = json.loads(file.read())["values"]["dev/loss"]
        return value

    study.optimize(objective, n_trials=runs)


def _run_ray(python: str) -> float:
    """Return the seconds per run of Ray Tune, one run at a time, without the start of Ray itself."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_tune.py")
    bare = _command({}, 1)[:5]
    # -I: `queue.py` in the folder of the script would hide the module of Python
    command = [python, "-I", script, str(RAY_RUNS), *bare]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().rpartition("\n")[2])


# -- three known functions on grids, whose optimum is known


def _sphere(point: Point) -> float:
    return sum((_place(own) - 0.62) ** 2 for own in point.values())


def _rastrigin(point: Point) -> float:
    places = [8 * _place(own) - 3 for own in point.values()]
    return sum(x * x - 5 * math.cos(2 * math.pi * x) + 5 for x in places)


def _branin(point: Point) -> float:
    x, y = 15 * _place(point["a"]) - 5, 15 * _place(point["b"])
    rest = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return rest**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def _place(value: object) -> float:
    return int(str(value)) / 31


def _grid(keys: str) -> Space:
    return Space(tuple(Choice(key, range(32)) for key in keys))


FUNCTIONS: dict[str, tuple[Callable[[Point], float], Space]] = {
    "sphere, 4 keys": (_sphere, _grid("abcd")),
    "Rastrigin, 2 keys": (_rastrigin, _grid("ab")),
    "Branin, 2 keys": (_branin, _grid("ab")),
}


def _compare_methods(seeds: int) -> list[Figure]:
    """Return the regret of each method after 80 points: the best value found minus the best one of the grid."""
    made = []
    for name, (function, space) in FUNCTIONS.items():
        best = _find_minimum(function, space)
        for method in METHODS:
            regrets = [_search(method, function, space, seed) - best for seed in range(seeds)]
            made.append(absolute(f"{name}, {method}: regret after {TRIALS} points", regrets, None, ""))
            found = [float(regret <= 1e-9) for regret in regrets]
            low, high = interval(found, statistics.fmean)
            share, load = statistics.fmean(found), os.getloadavg()[0]
            made.append(Figure(f"{name}, {method}: optimum found", share, low, high, None, "of seeds", seeds, load))
    return made


def _find_minimum(function: Callable[[Point], float], space: Space) -> float:
    if function is _sphere:  # the sum of the minima of its keys
        return len(space.dimensions) * min(_sphere({"a": place}) for place in range(32))
    return min(function({"a": a, "b": b}) for a, b in product(range(32), repeat=2))


def _search(method: str, function: Callable[[Point], float], space: Space, seed: int) -> float:
    history: list[tuple[Point, float | None]] = []
    values = []
    while len(history) < TRIALS and (point := propose(method, space, seed, history, TRIALS)) is not None:
        values.append(function(point))
        history.append((point, values[-1]))
    return min(values)
