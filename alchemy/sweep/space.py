"""The space of a sweep: its dimensions, their conditions, and the points in it.

A point is a dict of config keys and values: `{"optim.lr": 0.001, "model.depth": 4}`. The keys whose condition does not
hold are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

Scalar = bool | int | float | str | None
Value = Scalar | list[Scalar]
Point = dict[str, Value]
Condition = Mapping[str, Sequence[Value]]  # key of another dimension -> the values for which this one is used
MOST_PROBED = 100
DIGITS = 6  # significant digits of a drawn number, so that commands stay readable


@dataclass(frozen=True)
class Choice:
    """A key with a finite number of values; integers of a range are a `range`."""

    key: str
    values: Sequence[Value]
    when: Condition = field(default_factory=dict)

    @property
    def is_numeric(self) -> bool:
        """Whether neighboring values are alike: numbers in order."""
        if isinstance(self.values, range):  # may be too long for a list
            return True
        numbers = [value for value in self.values if isinstance(value, int | float) and not isinstance(value, bool)]
        return len(numbers) == len(self.values) and numbers == sorted(numbers)

    def from_unit(self, place: float) -> Value:
        """Return the value at a place from 0 to 1."""
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]

    def to_unit(self, value: Value) -> float:
        return (self.values.index(value) + 0.5) / len(self.values)

    def contains(self, value: object) -> bool:
        return value in self.values

    def probe(self) -> list[Value]:
        """Return the values to check before the first run: all of them, or the ends of many numbers in order."""
        is_long = isinstance(self.values, range) or (len(self.values) > MOST_PROBED and self.is_numeric)
        return [self.values[0], self.values[-1]] if is_long else list(self.values)


@dataclass(frozen=True)
class Range:
    """A key with a number from `low` to `high`, drawn on a linear or logarithmic scale."""

    key: str
    low: float
    high: float
    log: bool = False
    integer: bool = False
    when: Condition = field(default_factory=dict)

    is_numeric = True

    @property
    def values(self) -> Sequence[Value]:
        """All values of a range of integers."""
        assert self.integer
        return range(int(self.low), int(self.high) + 1)

    def from_unit(self, place: float) -> Value:
        """
        >>> Range("lr", 1e-4, 1e-2, log=True).from_unit(0.5), Range("n", 1, 64, log=True, integer=True).from_unit(1.0)
        (0.001, 64)
        """
        # an integer owns the interval of half a unit around it
        reach = 0.5 if self.integer else 0.0
        low, high = self.low - reach, self.high + reach
        number = low * (high / low) ** place if self.log else low + (high - low) * place
        if self.integer:
            return min(max(round(number), int(self.low)), int(self.high))
        return min(max(float(f"{number:.{DIGITS}g}"), self.low), self.high)

    def to_unit(self, value: Value) -> float:
        assert isinstance(value, int | float)
        if self.low == self.high:
            return 0.5
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def contains(self, value: object) -> bool:
        kind = int if self.integer else float
        return type(value) is kind and self.low <= value <= self.high

    def probe(self) -> list[Value]:
        return [self.from_unit(0.0), self.from_unit(1.0)]


Dimension = Choice | Range


@dataclass(frozen=True)
class Space:
    """The dimensions of a sweep; each follows the dimensions that its condition names."""

    dimensions: tuple[Dimension, ...]

    def build_point(self, places: Sequence[float]) -> Point:
        """Return the point at a place from 0 to 1 along each dimension."""
        point: Point = {}
        for dimension, place in zip(self.dimensions, places, strict=True):
            if is_active(dimension, point):
                point[dimension.key] = dimension.from_unit(place)
        return point

    def contains(self, point: Mapping[str, Value]) -> bool:
        """Return whether a point has exactly the keys whose conditions hold, with possible values."""
        active = [dimension for dimension in self.dimensions if is_active(dimension, point)]
        return {dimension.key for dimension in active} == point.keys() and all(
            dimension.contains(point[dimension.key]) for dimension in active
        )

    @property
    def continuous(self) -> list[str]:
        """The keys whose values cannot be listed."""
        return [own.key for own in self.dimensions if isinstance(own, Range) and not own.integer]

    @property
    def ranges(self) -> list[str]:
        """The keys with a range, whose values are drawn rather than listed."""
        return [dimension.key for dimension in self.dimensions if isinstance(dimension, Range)]

    def list_points(self) -> Iterator[Point]:
        """Yield every point of a space without continuous keys once."""
        yield from self._complete({}, 0)

    def _complete(self, point: Point, place: int) -> Iterator[Point]:
        if place == len(self.dimensions):
            yield point
            return
        dimension = self.dimensions[place]
        if not is_active(dimension, point):
            yield from self._complete(point, place + 1)
            return
        for value in dimension.values:
            yield from self._complete({**point, dimension.key: value}, place + 1)

    def count_points(self, most: int) -> int:
        """Return the number of points, at most `most`, which is also the answer for a continuous space."""
        return most if self.continuous else sum(1 for _ in islice(self.list_points(), most))

    def move(self, point: Point, key: str, value: Value) -> Point:
        """Return a point with another value of one key; keys that are new or no longer used follow the conditions."""
        moved: Point = {}
        for dimension in self.dimensions:
            if is_active(dimension, moved):
                default = point.get(dimension.key, dimension.probe()[0])
                moved[dimension.key] = value if dimension.key == key else default
        return moved

    def probe_points(self) -> Iterator[Point]:
        """Yield, for each dimension, points that have each of its values, or the ends of its range."""
        for dimension in self.dimensions:
            base = self.activate(dimension)
            for value in dimension.probe():
                yield self.move(base, dimension.key, value)

    def activate(self, dimension: Dimension) -> Point:
        """Return a point that has the key of a dimension, unless its conditions, and those of their keys, conflict."""
        allowed: dict[str, list[Value]] = {}
        needed = [dimension]
        for own in needed:
            for key, values in own.when.items():
                allowed[key] = [value for value in allowed.get(key, values) if value in values]
                needed += [other for other in self.dimensions if other.key == key]
        chosen = {key: values[0] for key, values in allowed.items() if values}
        return self.move(chosen, dimension.key, dimension.probe()[0])


def is_active(dimension: Dimension, point: Mapping[str, Value]) -> bool:
    """Return whether the condition of a dimension holds."""
    return all(key in point and point[key] in values for key, values in dimension.when.items())
