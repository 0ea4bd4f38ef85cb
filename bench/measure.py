"""Compute figures from paired measurements: the median, its bootstrap interval, and the load of the machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
RESAMPLES = 2000
PAIRS, HALF_WIDTH = 40, 0.03  # minimum number of pairs, and largest half-width of the interval


@dataclass
class Figure:
    """A figure and its upper bound. It holds if its whole interval is within the bound, or if it has none."""

    name: str
    value: float
    low: float
    high: float
    bound: float | None
    unit: str
    pairs: int
    load: float

    @property
    def holds(self) -> bool:
        return self.bound is None or self.high <= self.bound

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        bound = "" if self.bound is None else f", bound {self.bound} {self.unit}: {verdict}"
        interval = f"[{self.low:.3f}, {self.high:.3f}]"
        return f"{self.name}: {self.value:.3f} {self.unit} {interval}{bound} ({self.pairs} pairs, load {self.load:.2f})"


def ratio(name: str, pairs: Sequence[tuple[float, float]], bound: float) -> Figure:
    """Return the figure of the ratio first / second over all pairs."""
    return _figure(name, [ours / other for ours, other in pairs], bound, "x")


def settle(draw: Callable[[], Sequence[tuple[float, float]]], cap: int = 400) -> list[tuple[float, float]]:
    """Draw pairs until the interval of their median ratio is narrow enough, or until there are `cap` pairs."""
    pairs: list[tuple[float, float]] = []
    while len(pairs) < cap:
        pairs += draw()
        low, high = interval([ours / other for ours, other in pairs], statistics.median)
        if len(pairs) >= PAIRS and high - low <= 2 * HALF_WIDTH:
            break
    return pairs


def difference(name: str, pairs: Sequence[tuple[float, float]], bound: float) -> Figure:
    """Return the figure of the difference first - second over all pairs, in seconds."""
    return _figure(name, [ours - other for ours, other in pairs], bound, "s")


def absolute(name: str, values: Sequence[float], bound: float | None, unit: str) -> Figure:
    """Return the figure of values that are not compared with anything; those of other programs have no bound."""
    return _figure(name, list(values), bound, unit)


def _figure(name: str, values: list[float], bound: float | None, unit: str) -> Figure:
    low, high = interval(values, statistics.median)
    return Figure(name, statistics.median(values), low, high, bound, unit, len(values), os.getloadavg()[0])


def interval(values: list[float], statistic: Callable[[list[float]], float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a statistic."""
    draw = random.Random(0)
    again = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return again[int(0.025 * RESAMPLES)], again[int(0.975 * RESAMPLES)]


def save(name: str, figures: Sequence[Figure]) -> None:
    RESULTS.mkdir(exist_ok=True)
    row = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m bench", name]),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("alchemy", "torch", "rich")},
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "cpus": os.cpu_count(),
        "platform": sys.platform,
        "figures": [{**asdict(figure), "holds": figure.holds} for figure in figures],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
