"""Values that are made when a config is loaded: `lr = { dyn = "loguniform", low = 1e-5, high = 1e-3 }`.

Each is drawn once, from the seed and its own dotted key, so that adding one changes no other; the config then holds
the concrete value, and `doc.dynamic` the recipe. Ranges inside `[sweep]` belong to the sweep and stay as they are.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alchemy.config.override import Refused, typed
from alchemy.config.scan import Path
from alchemy.config.seed import seed_of
from alchemy.config.tree import Array, Document, Table
from alchemy.config.values import dotted
from alchemy.errors import Problem, did_you_mean
from alchemy.registry import plain

_NOT_GIVEN: Any = object()


@dataclass
class Source:
    """What a recipe may draw on: a stream of numbers of its own, and the time of loading."""

    seed: int
    label: str
    now: datetime.datetime
    count: int = 0

    def draw(self) -> float:
        """The next number in [0, 1); it depends on seed, label and count alone, in every version of Python."""
        digest = hashlib.sha256(f"{self.seed}\0{self.label}\0{self.count}".encode()).digest()
        self.count += 1
        return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


# -- the recipes: the keywords are the keys that the table takes
def uniform(source: Source, *, low: float, high: float) -> float:
    _ordered(low, high)
    return low + (high - low) * source.draw()


def loguniform(source: Source, *, low: float, high: float) -> float:
    _ordered(low, high)
    if low <= 0:
        raise Refused("low must be above 0")
    return math.exp(math.log(low) + (math.log(high) - math.log(low)) * source.draw())


def normal(source: Source, *, mean: float = 0.0, std: float = 1.0) -> float:
    _numbers(mean=mean, std=std)
    return mean + std * math.sqrt(-2 * math.log(1 - source.draw())) * math.cos(2 * math.pi * source.draw())


def randint(source: Source, *, low: int, high: int) -> int:
    """Both ends are included."""
    _ordered(low, high)
    if not (isinstance(low, int) and isinstance(high, int)):
        raise Refused("low and high must be whole numbers")
    return low + math.floor(source.draw() * (high - low + 1))


def choice(source: Source, *, values: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
    if not isinstance(values, list) or not values:
        raise Refused("values must be a list that is not empty")
    weights = [1.0] * len(values) if weights is None else weights
    if not isinstance(weights, list) or len(weights) != len(values):
        raise Refused("weights must be a list as long as values")
    _numbers(**{f"weights.{index}": weight for index, weight in enumerate(weights)})
    if min(weights) < 0 or sum(weights) <= 0:
        raise Refused("weights must not be negative, nor all zero")
    mark = source.draw() * sum(weights)
    for value, weight in zip(values, weights, strict=True):
        mark -= weight
        if mark < 0:
            return value
    return values[-1]


def env(source: Source, *, name: str, default: Any = _NOT_GIVEN) -> Any:
    """An environment variable, read as a TOML value of the type of `default`, or as text."""
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise Refused("name must be the name of an environment variable")
    text = os.environ.get(name)
    if text is not None:
        return typed(text, None if default is _NOT_GIVEN else default) if text.strip() else text
    if default is _NOT_GIVEN:
        raise Refused(f"the environment variable {name} is not set", f"export {name}=.., or give a default")
    return default


def time(source: Source, *, format: str = "%Y-%m-%d_%H-%M-%S") -> str:
    if not isinstance(format, str):
        raise Refused("format must be text such as '%Y-%m-%d'")
    return source.now.strftime(format)


def date(source: Source, *, format: str = "%Y-%m-%d") -> str:
    return time(source, format=format)


RECIPES: dict[str, Callable[..., Any]] = {
    recipe.__name__: recipe for recipe in (uniform, loguniform, normal, randint, choice, env, time, date)
}
SEEDLESS = ("env", "time", "date")


# -- the walk
def resolve(doc: Document, problems: list[Problem], *, drawn: bool) -> None:
    """Replaces every `{ dyn = .. }` by its value: first those that need no seed, then, `drawn`, those that do."""
    now = datetime.datetime.now()
    seed = seed_of(doc)
    for table, key, path, label in _recipes(doc):
        recipe = table[key]
        if drawn == (recipe.get("dyn") in SEEDLESS):
            continue
        made = make(recipe, Source(seed, label, now), path)
        if isinstance(made, Problem):
            problems.append(made)
            continue
        doc.dynamic[dotted(path)] = plain(recipe)
        known = table.origins.get(key, recipe.origin) if isinstance(table, Table) else recipe.origin
        origin = replace(known, kind="dynamic")
        if isinstance(table, Table):
            table.put(key, made.value, origin)
        else:
            table[key] = Table(made.value, origin=origin) if isinstance(made.value, dict) else made.value


@dataclass
class Made:
    value: Any


def make(recipe: Table, source: Source, path: Path) -> Made | Problem:
    """The value that a recipe gives, or what is wrong with it."""
    settings = {key: plain(value) for key, value in recipe.items() if key != "dyn"}
    name, where, section = recipe.get("dyn"), recipe.where("dyn"), dotted(path)
    function = RECIPES.get(name) if isinstance(name, str) else None
    if function is None:
        hint = did_you_mean(str(name), RECIPES) or f"there are {', '.join(RECIPES)}"
        return Problem(f"there is no dynamic value {name!r}", where, section, hint)
    takes = function.__code__.co_varnames[1 : 1 + function.__code__.co_kwonlyargcount]
    for key in settings:
        if key not in takes:
            hint = did_you_mean(key, takes) or f"it takes {', '.join(takes)}"
            return Problem(f"{name} takes no {key!r}", recipe.where(key), section, hint)
    missing = [key for key in takes if key not in settings and key not in (function.__kwdefaults__ or {})]
    if missing:
        return Problem(f"{name} needs {' and '.join(map(repr, missing))}", where, section)
    try:
        return Made(function(source, **settings))
    except Refused as error:
        return Problem(f"{name}: {error}", where, section, error.hint)
    except (ValueError, OverflowError) as error:
        return Problem(f"{name}: {error}", where, section)


def _recipes(doc: Document) -> list[tuple[Table | Array, Any, Path, str]]:
    """Every place where a recipe stands, with its path and the name that its stream of numbers gets."""
    found: list[tuple[Table | Array, Any, Path, str]] = []

    def visit(node: Any, parent: Any, key: Any, path: Path, label: str) -> None:
        if isinstance(node, Table) and "dyn" in node:
            found.append((parent, key, path, label))
        elif isinstance(node, Table):
            for name, item in node.items():
                if path or name != "sweep":
                    visit(item, node, name, (*path, name), f"{label}.{name}")
        elif isinstance(node, Array):
            for index, (name, item) in enumerate(zip(part_names(node), node, strict=True)):
                visit(item, node, index, (*path, index), f"{label}.{name}")

    for key, value in doc.items():
        if key != "sweep":
            visit(value, doc, key, (key,), key)
    return found


def part_names(array: Array) -> list[str]:
    """A name for each element that does not change when another is added: its type, numbered if there are several."""
    names: list[str] = []
    for index, item in enumerate(array):
        kind = item.get("type") if isinstance(item, Table) else None
        name = kind.rpartition(".")[2] if isinstance(kind, str) else str(index)
        names.append(name if name not in names else f"{name}:{index}")
    return names


def _numbers(**values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Refused(f"{name} must be a number, not {value!r}")


def _ordered(low: Any, high: Any) -> None:
    _numbers(low=low, high=high)
    if low > high:
        raise Refused(f"low {low} is above high {high}")
