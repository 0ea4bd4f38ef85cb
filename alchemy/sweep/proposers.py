"""Choose the next point of a sweep: a pure function of the space, a seed, and the points so far.

A killed sweep therefore continues from its files alone. Values are such that lower ones are better; a point that is
running, has failed or was pruned has none.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from alchemy.config.toml_writer import format_inline
from alchemy.sweep.samplers import propose_cmaes, propose_sobol, propose_tpe
from alchemy.sweep.space import Choice, Dimension, Point, Range, Space, Value

History = Sequence[tuple[Point, float | None]]
Proposer = Callable[[Space, str, History, int], Point]  # space, seed, history, number of trials
ATTEMPTS = 5  # to find a new point, before the first one that is left is taken
MOVES = 10  # of annealing between two new points
DRAWS = 1000  # to find a new point of a continuous space
STEP = 0.15  # standard deviation of a move along a range, in parts of its length
HOT, COLD = 1.0, 0.01  # first and last temperature of annealing, in standard deviations of the values


def propose(method: str, space: Space, seed: int, history: History, trials: int) -> Point | None:
    """Return the next point, which is always a new one; None if there is none left."""
    seen = {freeze(point) for point, _ in history}
    if space.count_points(len(seen) + 1) <= len(seen):
        return None
    for attempt in range(ATTEMPTS):
        point = _PROPOSERS[method](space, f"{seed}/{attempt}", history, trials)
        if freeze(point) not in seen:
            return point
    drawn = (_draw(space, _random(seed, number)) for number in range(DRAWS))
    points = drawn if space.continuous else space.list_points()
    return next((point for point in points if freeze(point) not in seen), None)


def freeze(point: Point) -> tuple[tuple[str, str], ...]:
    """Return a point as a key of a dict."""
    return tuple((key, format_inline(value)) for key, value in sorted(point.items()))


def _random(*parts: object) -> random.Random:
    return random.Random("/".join(map(str, parts)))


def _draw(space: Space, numbers: random.Random) -> Point:
    return space.build_point([numbers.random() for _ in space.dimensions])


def propose_grid(space: Space, seed: str, history: History, trials: int) -> Point:
    """Return the points in order, the last key varying fastest."""
    return next(islice(space.list_points(), len(history), None), {})


def propose_random(space: Space, seed: str, history: History, trials: int) -> Point:
    return _draw(space, _random(seed, len(history)))


# -- annealing and hill climbing


def propose_annealing(space: Space, seed: str, history: History, trials: int) -> Point:
    """Simulated annealing: move to a random neighbor, even to a worse one while the temperature is high.

    The walk is repeated from the start. A neighbor that has been evaluated before is visited without running it again;
    if there are only such neighbors, the next point is a random one.
    """
    first: dict[object, int] = {}
    for place, (point, _) in enumerate(history):
        first.setdefault(freeze(point), place)
    walk, new = _Walk(), None
    for place in range(len(history) + 1):
        numbers, new = _random(seed.partition("/")[0], place), None
        temperature = HOT * (COLD / HOT) ** min(place / max(trials, 1), 1.0)
        for _ in range(MOVES):
            candidate = _draw(space, numbers) if walk.point is None else _step(space, walk.point, numbers)
            known = first.get(freeze(candidate), len(history))
            if known >= place:
                new = candidate
                break
            walk.visit(*history[known], temperature, numbers)
        if place < len(history):
            walk.visit(*history[place], temperature, numbers)
    return new if new is not None else _draw(space, _random(seed, len(history)))


class _Walk:
    """The current point of a random walk, and the spread of the values it has met."""

    def __init__(self) -> None:
        self.point: Point | None = None
        self._value = math.inf
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def visit(self, point: Point, value: float | None, temperature: float, numbers: random.Random) -> None:
        """Move to a point, depending on its value."""
        if value is None:
            return
        self._count += 1
        change = value - self._mean
        self._mean += change / self._count
        self._squares += change * (value - self._mean)
        spread = math.sqrt(self._squares / self._count) or 1.0
        if value <= self._value or numbers.random() < math.exp((self._value - value) / (spread * temperature)):
            self.point, self._value = point, value


def propose_hill_climbing(space: Space, seed: str, history: History, trials: int) -> Point:
    """Hill climbing: try the neighbors of the best point of this climb; at a local optimum, start again elsewhere."""
    top: Point | None = None
    best = math.inf
    around: set[object] = set()
    for point, value in history:
        is_near = freeze(point) in around
        if value is not None and (value < best or not is_near):  # a point that is not a neighbor starts a new climb
            top, best = point, value
            around = {freeze(neighbor) for neighbor in list_neighbors(space, point)}
    seen = {freeze(point) for point, _ in history}
    left = [point for point in list_neighbors(space, top) if freeze(point) not in seen] if top is not None else []
    numbers = _random(seed, len(history))
    return numbers.choice(left) if left else _draw(space, numbers)


def list_neighbors(space: Space, point: Point) -> Iterator[Point]:
    """Yield the points of a discrete space that differ in one key: by one place if its values are numbers."""
    for dimension in space.dimensions:
        if isinstance(dimension, Choice) and dimension.key in point:
            place = dimension.values.index(point[dimension.key])
            near = (place - 1, place + 1) if dimension.is_numeric else range(len(dimension.values))
            for other in near:
                if 0 <= other < len(dimension.values) and other != place:
                    yield space.move(point, dimension.key, dimension.values[other])


def _step(space: Space, point: Point, numbers: random.Random) -> Point:
    """Return a random neighbor of a point."""
    movable = [own for own in space.dimensions if own.key in point and (isinstance(own, Range) or len(own.values) > 1)]
    if not movable:
        return point
    dimension = numbers.choice(movable)
    return space.move(point, dimension.key, _shift(dimension, point[dimension.key], numbers))


def _shift(dimension: Dimension, value: Value, numbers: random.Random) -> Value:
    if isinstance(dimension, Range):
        return dimension.from_unit(min(max(dimension.to_unit(value) + numbers.gauss(0, STEP), 0.0), 1.0))
    place, count = dimension.values.index(value), len(dimension.values)
    if not dimension.is_numeric:
        return dimension.values[(place + numbers.randrange(1, count)) % count]
    reach = max(1, round(abs(numbers.gauss(0, STEP * count))))
    return dimension.values[min(max(place + numbers.choice((-reach, reach)), 0), count - 1)]


_PROPOSERS: dict[str, Proposer] = {
    "grid": propose_grid,
    "random": propose_random,
    "sobol": propose_sobol,
    "annealing": propose_annealing,
    "hill_climbing": propose_hill_climbing,
    "tpe": propose_tpe,
    "cmaes": propose_cmaes,
}
