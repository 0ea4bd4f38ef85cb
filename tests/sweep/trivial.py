"""Sweeps whose runs take milliseconds: each writes the metrics of a record, and a line to a ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from alchemy.queue import NewEntry, Queue, Slots, Worker
from alchemy.sweep.controller import Controller
from alchemy.sweep.settings import Settings
from alchemy.sweep.space import Choice, Point, Range, Space
from alchemy.sweep.study import Plan, Study, describe_dimension, open_study

SPACE = Space((Choice("a", (1, 2, 3)), Choice("b", ("x", "y"))))

# a run: appends to the ledger, and logs the values of the metric, one evaluation each
RUN = """
import json, os, sys, time
name, values, metric, pause = sys.argv[1:]
with open("ledger", "a") as ledger:
    ledger.write(name + "\\n")
if values == "fail":
    sys.exit("it went wrong")
folder = os.path.abspath(os.path.join("records", name))
os.makedirs(folder, exist_ok=True)
with open(os.environ["ALCHEMY_QUEUE_RECORDS"], "a") as records:
    records.write(folder + "\\n")
with open(os.path.join(folder, "metrics.jsonl"), "w") as metrics:
    for update, value in enumerate(json.loads(values)):
        row = {"update": update, "step": update, "epoch": 0, "t": 0.0, "gen": 0, "values": {metric: value}}
        metrics.write(json.dumps(row) + "\\n")
        metrics.flush()
        time.sleep(float(pause))
"""


def make_settings(space: Space = SPACE, **fields) -> Settings:
    known = {"method": "grid", "metric": "dev/loss", "mode": "min", "trials": None, "seeds": [1]}
    return Settings(**{"space": space, **known, **fields})


def make_plan(settings: Settings, **fields) -> Plan:
    known = {key: vars(settings)[key] for key in ("metric", "mode", "seeds", "method", "trials", "prune", "seed")}
    space = {dimension.key: describe_dimension(dimension) for dimension in settings.space.dimensions}
    more = {"name": "toy", "config": "toy.toml", "overrides": [], "digest": "d", "created": "now"}
    return Plan(**{**more, "space": space, **known, **fields})


def command(
    curve: Callable[[Point, int], Sequence[float] | str], *, metric: str = "dev/loss", pause: float = 0.0
) -> Callable[[Point, int], NewEntry]:
    """Return a function that makes a run whose evaluations are `curve(point, seed)`; a text makes it fail."""

    def make(point: Point, seed: int) -> NewEntry:
        name = "-".join([*map(str, point.values()), str(seed)])
        values = curve(point, seed)
        text = values if isinstance(values, str) else str(list(values))
        return NewEntry(argv=(sys.executable, "-I", "-S", "-c", RUN, name, text, metric, str(pause)))

    return make


def loss(point: Point, seed: int) -> list[float]:
    """The best point is a=2, b=y; seeds shift all points alike."""
    a = point.get("a")
    return [abs((a if isinstance(a, int) else 0) - 2) + (point.get("b") != "y") + 0.01 * seed]


def sweep(settings: Settings, runs=None, *, slots: int = 1, retry: bool = False, plan: Plan | None = None) -> Study:
    """Run a sweep to its end."""
    with open_study(plan or make_plan(settings)) as study:
        worker = Worker(Queue(), Slots(slots), study.group)
        controller = Controller(study, settings, worker, runs or command(loss))
        if retry:
            controller.retry()
        assert controller.run()
    return study


def ledger() -> list[str]:
    """The runs that were started, in order."""
    return Path("ledger").read_text().split() if Path("ledger").exists() else []


LR = Range("lr", 1e-5, 1e-1, log=True)
