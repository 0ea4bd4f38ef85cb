"""The values that a training loop logs, by metric and step, for drawing them on a canvas."""

from __future__ import annotations

import datetime
import itertools
import operator
import time
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from alchemy.errors import AlchemyError, MissingKey, did_you_mean, printable
from alchemy.index.read_curves import read_curves
from alchemy.index.record_index import RecordIndex
from alchemy.index.value_format import format_names, format_number
from alchemy.media.snapshot import to_array
from alchemy.metrics.scalars import numbers_in

Step = int | tuple[int, int]  # an update, or an epoch and a step within it
Value = float | np.ndarray


@dataclass(frozen=True)
class Series:
    """The values of one metric, in the order of their steps; `places` are the steps on the x-axis."""

    name: str
    steps: list[Step]
    data: list[Value]
    places: list[int]
    x_label: str = "step"


class History:
    """Stores the values that a training loop logs.

        history = History()
        history.log((epoch, step), loss=0.3, accuracy=0.9)
        history["loss"]                    # a series that `Canvas` draws
        History.from_record("last")        # the metrics of a record

    Values are numbers, or arrays and tensors, of which a copy is stored.
    """

    def __init__(self) -> None:
        self.step: Step | None = None  # the last one logged
        self.x_label = "step"
        self._values: dict[str, dict[Step, Value]] = {}
        self._ranges: dict[int, tuple[int, int]] = {}  # the first and last step of each epoch
        self._seconds, self._first = 0.0, 0.0

    @classmethod
    def from_record(cls, record: str | Path) -> History:
        """Return the metrics of a record, by update. `record` is its folder, the start of its id, or `last`."""
        with RecordIndex.open(names=[str(record)]) as index:
            path = index.find(str(record)).folder / "metrics.jsonl"
        try:
            curves = read_curves(path)
        except OSError as error:
            raise AlchemyError(f"{path} cannot be read: {error.strerror or error}") from error
        history = cls()
        history.x_label = "update"
        history._values = {name: dict(zip(curve.updates, curve.values)) for name, curve in curves.metrics.items()}
        history.step = curves.updates if curves.metrics else None
        history._seconds = curves.clocks["time"].values[-1] if curves.metrics else 0.0
        return history

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics, in the order in which they were first logged."""
        return list(self._values)

    @property
    def seconds(self) -> float:
        """The time between the first and the last call of `log`."""
        return self._seconds

    def get_total_time(self) -> datetime.timedelta:
        """Return the time between the first and the last call of `log`."""
        return datetime.timedelta(seconds=self._seconds)

    def log(self, step: SupportsIndex | tuple[SupportsIndex, SupportsIndex], /, **values: object) -> None:
        """Store values of metrics at a step: an integer, or (epoch, step).

        Steps may be logged in any order; a second value of a metric at the same step replaces the first.
        """
        place = _check_step(step)
        if self.step is not None and isinstance(place, tuple) != isinstance(self.step, tuple):
            hint = "log all steps in the same form: an integer, or (epoch, step)"
            raise AlchemyError(f"the step {place} cannot follow {self.step}", hint=hint)
        numbers = numbers_in(values)
        found = {name: numbers[name] if name in numbers else _copy_array(name, value) for name, value in values.items()}
        self._note(place)
        now = time.monotonic()
        self._first = self._first or now - self._seconds
        self._seconds = now - self._first
        for name, value in found.items():
            self._values.setdefault(name, {})[place] = value

    def _note(self, step: Step) -> None:
        self.step = step
        if isinstance(step, tuple):
            epoch, place = step
            low, high = self._ranges.get(epoch, (place, place))
            self._ranges[epoch] = min(low, place), max(high, place)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Series:
        """Return the values of a metric."""
        if name not in self._values:
            known = f"it has {format_names(self.metrics, 8)}" if self._values else "nothing has been logged yet"
            raise MissingKey(f"the history has no {name!r}: {known}", hint=did_you_mean(name, self._values))
        values = self._values[name]
        if not all(map(operator.lt, values, itertools.islice(values, 1, None))):  # logged in another order
            values = self._values[name] = {step: values[step] for step in sorted(values)}
        starts = self._find_starts()
        places = [starts[step[0]] + step[1] if isinstance(step, tuple) else step for step in values]
        return Series(name, list(values), list(values.values()), places, self.x_label)

    def _find_starts(self) -> dict[int, int]:
        """Return where each epoch begins on the x-axis: after the steps of the previous ones.

        All epochs begin at 0 if the second number of (epoch, step) counts on from epoch to epoch.
        """
        ranges = sorted(self._ranges.items())
        if all(before[1] < after[0] for (_, before), (_, after) in itertools.pairwise(ranges)):
            return dict.fromkeys(self._ranges, 0)
        starts = itertools.accumulate((high + 1 for _, (_, high) in ranges), initial=0)
        return dict(zip(sorted(self._ranges), starts))

    def describe_step(self) -> str:
        """Return the last step and its numbers: `step 0:120  loss 0.412  accuracy 0.87`."""
        if self.step is None:
            return "nothing has been logged yet"
        values = {name: table.get(self.step) for name, table in self._values.items()}
        texts = [f"{name} {format_number(value)}" for name, value in values.items() if isinstance(value, float)]
        return printable("  ".join([f"{self.x_label} {format_step(self.step)}", *texts]))

    def progress(self) -> None:
        """Print the last step and its numbers."""
        print(self.describe_step())  # noqa: T201


def format_step(step: Step) -> str:
    """
    >>> format_step(7), format_step((0, 120))
    ('7', '0:120')
    """
    return ":".join(map(str, step)) if isinstance(step, tuple) else str(step)


def _check_step(step: object) -> Step:
    try:
        numbers = [operator.index(number) for number in (step if isinstance(step, tuple) else (step,))]
    except TypeError:
        numbers = []
    if len(numbers) != 1 + isinstance(step, tuple) or max(map(abs, numbers)) >= 2**62:
        hint = "expected an integer, or (epoch, step)"
        raise AlchemyError(f"{step!r} is not a step", hint=hint)
    return (numbers[0], numbers[1]) if isinstance(step, tuple) else numbers[0]


def to_numbers(value: object) -> np.ndarray:
    """Return an array, a tensor or a nested list as an array of real numbers; raises ValueError for anything else."""
    array = to_array(value)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{type(value).__name__} is not an array of real numbers")
    return array


def _copy_array(name: str, value: object) -> np.ndarray:
    """Return a copy of an array: weights, for example, change in place."""
    try:
        return np.array(to_numbers(value))
    except ValueError as error:
        raise AlchemyError(f"{name!r} is neither a number nor an array: {error}") from error
