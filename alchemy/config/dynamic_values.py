"""Compute values when a config is loaded: `lr = { dyn = "loguniform", low = 1e-5, high = 1e-3 }`.

Each value is drawn once, from the seed and its dotted key, so adding one does not change the others. The config
then contains the drawn value, and `doc.dynamic` contains the recipe. Ranges inside `[sweep]` are resolved by the sweep.
"""

from __future__ import annotations

import datetime
import hashlib
import inspect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from alchemy.config.line_numbers import Path
from alchemy.config.override import CannotSet, parse_value
from alchemy.config.secrets import is_secret_recipe, remember
from alchemy.config.seed import seed_of
from alchemy.config.tree import Array, Document, Table, children
from alchemy.config.values import dotted_key, fail
from alchemy.errors import ConfigError, Problem, did_you_mean
from alchemy.registry import plain

_NOT_GIVEN: Any = object()


@dataclass
class _Stream:
    """The input of a recipe: its own stream of random numbers, and the load time."""

    seed: int
    label: str
    now: datetime.datetime
    count: int = 0

    def draw(self) -> float:
        """Return the next number in [0, 1), which depends only on seed, label and count, not on the Python version."""
        digest = hashlib.sha256(f"{self.seed}\0{self.label}\0{self.count}".encode()).digest()
        self.count += 1
        return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


# -- recipes: their keyword arguments are the keys of the table
def _uniform(source: _Stream, *, low: float, high: float) -> float:
    _check_range(low, high)
    return low + (high - low) * source.draw()


def _loguniform(source: _Stream, *, low: float, high: float) -> float:
    _check_range(low, high)
    if low <= 0:
        raise CannotSet("low must be above 0")
    return math.exp(math.log(low) + (math.log(high) - math.log(low)) * source.draw())


def _normal(source: _Stream, *, mean: float = 0.0, std: float = 1.0) -> float:
    _check_numbers(mean=mean, std=std)
    return mean + std * math.sqrt(-2 * math.log(1 - source.draw())) * math.cos(2 * math.pi * source.draw())


def _randint(source: _Stream, *, low: int, high: int) -> int:
    """Draw an integer; both bounds are inclusive."""
    _check_range(low, high)
    if not (isinstance(low, int) and isinstance(high, int)):
        raise CannotSet("low and high must be integers")
    return low + math.floor(source.draw() * (high - low + 1))


def _choice(source: _Stream, *, values: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
    if not isinstance(values, list) or not values:
        raise CannotSet("values must be a non-empty list")
    weights = [1.0] * len(values) if weights is None else weights
    if not isinstance(weights, list) or len(weights) != len(values):
        raise CannotSet("weights must be a list of the same length as values")
    _check_numbers(**{f"weights.{index}": weight for index, weight in enumerate(weights)})
    if min(weights) < 0 or sum(weights) <= 0:
        raise CannotSet("weights must not be negative or all zero")
    mark = source.draw() * sum(weights)
    for value, weight in zip(values, weights, strict=True):
        mark -= weight
        if mark < 0:
            return value
    return values[-1]


def _env(source: _Stream, *, name: str, default: object = _NOT_GIVEN, secret: bool = False) -> Any:
    """Read an environment variable as a TOML value with the type of `default`, or as text; secrets are always text."""
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise CannotSet("name must be the name of an environment variable")
    if not isinstance(secret, bool):
        raise CannotSet("secret must be true or false")
    text = os.environ.get(name)
    if text is not None and not text.isascii() and text != text.encode("utf-8", "replace").decode():
        raise CannotSet(f"the environment variable {name} is not UTF-8")
    if text is not None and secret:
        return text.strip()
    if text is not None:
        return parse_value(text, None if default is _NOT_GIVEN else default) if text.strip() else text
    if default is _NOT_GIVEN:
        raise CannotSet(f"the environment variable {name} is not set", f"export {name}=.., or set a default")
    return default


def _time(source: _Stream, *, format: str = "%Y-%m-%d_%H-%M-%S") -> str:
    if not isinstance(format, str):
        raise CannotSet("format must be a string such as '%Y-%m-%d'")
    return source.now.strftime(format)


def _date(source: _Stream, *, format: str = "%Y-%m-%d") -> str:
    return _time(source, format=format)


_RECIPES: dict[str, Callable[..., Any]] = {
    "uniform": _uniform,
    "loguniform": _loguniform,
    "normal": _normal,
    "randint": _randint,
    "choice": _choice,
    "env": _env,
    "time": _time,
    "date": _date,
}
SEEDLESS = ("env", "time", "date")


# -- resolving
def resolve(doc: Document, problems: list[Problem], *, drawn: bool) -> None:
    """Replace `{ dyn = .. }` tables with their values: those that need the seed if `drawn`, otherwise all others."""
    now = datetime.datetime.now()
    seed = seed_of(doc)
    for table, key, path, label in list(_recipes(doc)):
        recipe = table[key]
        if drawn == (recipe.get("dyn") in SEEDLESS):
            continue
        if recipe.get("dyn") == "env" and "secret" not in recipe and is_secret_recipe(path, recipe):
            recipe.put("secret", True, recipe.origin)
        try:
            value = _evaluate(recipe, _Stream(seed, label, now), dotted_key(path))
        except ConfigError as error:
            problems += error.problems
            continue
        if recipe.get("secret") is True and recipe["dyn"] == "env":
            texts = (text for text in (value, recipe.get("default")) if isinstance(text, str) and text)
            doc.secrets |= dict.fromkeys(texts, recipe["name"])
            remember(doc.secrets)
        doc.dynamic[dotted_key(path)] = plain(recipe)
        known = table.origin_of(key) if isinstance(table, Table) else recipe.origin
        # a user's recipe may refer to values in an untrusted config
        foreign = known.foreign or any(origin.foreign for origin in recipe.origins.values())
        origin = known._replace(kind="dynamic", foreign=foreign)
        if isinstance(table, Table):
            table.put(key, value, origin)
        else:
            table[key] = Table(value, origin=origin) if isinstance(value, dict) else value


def _evaluate(recipe: Table, source: _Stream, section: str) -> Any:
    """Return the value of a recipe; raise ConfigError if the recipe is invalid."""
    settings = {key: plain(value) for key, value in recipe.items() if key != "dyn"}
    name, where = recipe["dyn"], recipe.where("dyn")
    function = _RECIPES.get(name) if isinstance(name, str) else None
    if function is None:
        hint = did_you_mean(str(name), _RECIPES) or f"available: {', '.join(_RECIPES)}"
        fail(f"unknown dynamic value {name!r}", where=where, section=section, hint=hint)
    takes = {key: row.default is row.empty for key, row in [*inspect.signature(function).parameters.items()][1:]}
    for key in settings:
        if key not in takes:
            hint = did_you_mean(key, takes) or f"it takes {', '.join(takes)}"
            fail(f"{name} has no option {key!r}", where=recipe.where(key), section=section, hint=hint)
    missing = [key for key, required in takes.items() if required and key not in settings]
    if missing:
        fail(f"{name} needs {' and '.join(map(repr, missing))}", where=where, section=section)
    try:
        return function(source, **settings)
    except CannotSet as error:
        fail(f"{name}: {error}", where=where, section=section, hint=error.hint)
    except (ValueError, OverflowError) as error:
        fail(f"{name}: {error}", where=where, section=section)


def _recipes(node: Table | Array, path: Path = (), label: str = "") -> Iterator[tuple[Table | Array, Any, Path, str]]:
    """Yield every recipe in a tree: its container, key, path, and the label of its random stream."""
    names: list[str] | None = None  # names of list elements, computed on first use
    for key, item in children(node):
        if not isinstance(item, Table | Array) or (key == "sweep" and not path):
            continue
        if isinstance(node, Array):
            names = names or part_names(node)
        name = key if names is None else names[int(key)]
        here, called = (*path, key), f"{label}.{name}" if label else str(name)
        if isinstance(item, Table) and "dyn" in item:
            yield node, key, here, called
        else:
            yield from _recipes(item, here, called)


def part_names(array: Array) -> list[str]:
    """Return a stable name for each element: its type, with a number if the type occurs more than once."""
    names: list[str] = []
    taken: set[str] = set()
    for index, item in enumerate(array):
        kind = item.get("type") if isinstance(item, Table) else None
        name = kind.rpartition(".")[2] if isinstance(kind, str) else str(index)
        names.append(name if name not in taken else f"{name}:{index}")
        taken.add(names[-1])
    return names


def _check_numbers(**values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise CannotSet(f"{name} must be a number, not {value!r}")


def _check_range(low: float, high: float) -> None:
    _check_numbers(low=low, high=high)
    if low > high:
        raise CannotSet(f"low = {low} is greater than high = {high}")
