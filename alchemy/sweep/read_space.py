"""Read the dimensions of a space from a `[sweep]` table and from `--grid`, collecting all mistakes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alchemy.config.line_numbers import split_key
from alchemy.config.override import CannotSet, parse_value
from alchemy.config.tree import Document, Table
from alchemy.config.values import dotted_key, literal
from alchemy.errors import Problem, did_you_mean
from alchemy.sweep.space import Choice, Dimension, Range, Value

KINDS = ("log", "uniform", "int", "log_int", "choice")
FORM = "a list of values, or a table such as { log = [1e-5, 1e-2] }, { uniform = [0, 0.5] } or { int = [1, 8] }"


LARGEST_INT = 2**53  # beyond it, a float no longer represents every integer
MOST_POINTS = 10_000  # of a range that is replaced by a list
RESERVED = ("base", "sweep", "variant")  # keys that are not part of the config of a run


class SpaceReader:
    """Collects the dimensions of a space with their places, and all problems."""

    def __init__(self, doc: Document, settings: Collection[str], problems: list[Problem]) -> None:
        self._doc, self._settings, self._problems = doc, settings, problems
        self.dimensions: dict[str, Dimension] = {}
        self.where: dict[str, str] = {}

    def read(self, table: Table, path: tuple[str, ...] = ()) -> None:
        for key, item in table.items():
            here, where = (*path, key), table.where(key)
            if not path and key in self._settings:
                continue
            if isinstance(item, Table) and item and not self._is_dimension(item, here):
                self.read(item, here)
            else:
                self.add(dotted_key(here), item, where)

    def _is_dimension(self, table: Table, path: tuple[str, ...]) -> bool:
        """Return whether a table describes values. If it is a table of the config, it contains keys, even a `log`."""
        node: object = self._doc
        for key in path:
            node = node.get(key) if isinstance(node, Table) else None
        return not isinstance(node, Table | None) or (node is None and any(kind in table for kind in KINDS))

    def read_grid(self, texts: Sequence[str]) -> None:
        seen: set[str] = set()
        for text in texts:
            key, sign, values = text.partition("=")
            where = f"--grid {text}"
            if not sign or not key.strip() or not values.strip():
                self._report("expected KEY=VALUE,VALUE", where, "for example, optim.lr=1e-3,1e-4")
                continue
            split = split_key(key.strip())
            name = dotted_key(tuple(split[0])) if split and not split[1] else key.strip()
            if name in seen:
                self._report(f"{name} is given twice", where, "list all values in one --grid")
                continue
            seen.add(name)
            self.add(name, _split_values(values), where)

    def _report(self, text: str, where: str, hint: str = "") -> None:
        self._problems.append(Problem(text, where, "" if where.startswith("--") else "sweep", hint))

    def add(self, key: str, item: object, where: str) -> None:
        self.where[key] = where
        if key == "seed":
            self._report("a sweep does not search the seed", where, "use --seeds, or seeds in [sweep]")
            return
        if key.partition(".")[0] in RESERVED:
            self._report(f"a sweep cannot search {key}", where, "search a key that parts read, such as optim.lr")
            return
        table = item if isinstance(item, Table) else Table({"choice": item})
        kinds = [kind for kind in KINDS if kind in table]
        if len(kinds) > 1:  # perhaps one of them from a base file
            self._report(f"{key} has {' and '.join(kinds)}, of which only one is possible", where)
            return
        if not isinstance(item, Table | list) or len(kinds) != 1:
            near = did_you_mean(key, self._settings) if "." not in key else did_you_mean("".join(table), KINDS)
            self._report(f"{key} is not a set of values", where, near or f"write {FORM}")
            return
        (kind,) = kinds
        allowed = {kind, "when", *(("step",) if kind == "int" else ()), *(("points",) if kind != "choice" else ())}
        for name in table.keys() - allowed:
            hint = did_you_mean(name, allowed) or f"it has {', '.join(sorted(allowed))}"
            self._report(f"{key}: {{ {kind} = .. }} has no {name!r}", where, hint)
        found = self._read_choice(key, table["choice"]) if kind == "choice" else self._read_range(key, kind, table)
        if isinstance(found, str):
            self._report(f"{key}: {found}", where)
        else:
            self.dimensions[key] = replace(found, when=self._read_condition(key, table.get("when"), where))

    def _read_choice(self, key: str, values: object) -> Choice | str:
        if not isinstance(values, list) or not values:
            return "expected a list with at least one value"
        if any(isinstance(value, dict) for value in values):
            return "a value is a table; search its keys one by one, with `when` if they depend on each other"
        if not all(isinstance(value, bool | int | float | str | list | None) for value in values):
            return "expected numbers, strings, true, false, or lists of them"
        plain = [list(value) if isinstance(value, list) else value for value in values]
        double = next(([value] for place, value in enumerate(plain) if value in plain[:place]), None)
        return Choice(key, tuple(plain)) if double is None else f"{double[0]!r} is listed twice"

    def _read_range(self, key: str, kind: str, table: Table) -> Dimension | str:
        bounds = table[kind]
        whole = kind in ("int", "log_int")
        if not isinstance(bounds, list) or len(bounds) != 2 or not all(_is_number(end, whole) for end in bounds):
            return f"{kind} must be a list of two {'integers' if whole else 'numbers'}, not {bounds!r}"
        low, high = bounds
        if low >= high:
            return f"the lower bound {low} is not below the upper bound {high}"
        if kind in ("log", "log_int") and low <= 0:
            return f"a logarithmic range needs a lower bound above 0, not {low}"
        if whole and max(abs(low), abs(high)) > LARGEST_INT:
            return f"the bounds must be integers from -2**53 to 2**53, not {bounds!r}"
        if not whole and not _is_finite_range(low, high, log=kind == "log"):
            return f"the range from {low:.6g} to {high:.6g} is too large for floating-point numbers"
        for name in ("step", "points"):
            if name in table and not (type(table[name]) is int and table[name] >= 1):
                return f"{name} must be an integer of at least 1, not {table[name]!r}"
        if table.get("points", 1) > MOST_POINTS:
            return f"points must be at most {MOST_POINTS}, not {table['points']}"
        if kind == "int" and "points" not in table:
            return Choice(key, range(low, high + 1, table.get("step", 1)))
        found = Range(key, low if whole else float(low), high if whole else float(high), "log" in kind, whole)
        if "points" not in table:
            return found
        return Choice(key, tuple(_spread(found, table["points"])))

    def _read_condition(self, key: str, when: object, where: str) -> dict[str, tuple[Value, ...]]:
        if when is None:
            return {}
        if not isinstance(when, Table) or not when:
            self._report(f"{key}: `when` must name a key and its values", where, 'write when = { "model.depth" = [4] }')
            return {}
        return {name: tuple(value if isinstance(value, list) else [value]) for name, value in _flatten(when).items()}


def _is_finite_range(low: float, high: float, *, log: bool) -> bool:
    """Return whether the width, or the ratio of a logarithmic range, is a finite number.

    >>> _is_finite_range(-1e308, 1e308, log=False), _is_finite_range(1e-300, 1e300, log=True)
    (False, False)
    """
    try:
        return math.isfinite(float(high) / float(low) if log else float(high) - float(low))
    except OverflowError:
        return False


def _spread(found: Range, count: int) -> list[Value]:
    """Return evenly spaced values of a range, including both ends."""
    places = [place / (count - 1) for place in range(count)] if count > 1 else [0.5]
    if not found.integer:
        return [found.from_unit(place) for place in places]
    low, high = found.low, found.high
    return list(dict.fromkeys(round(low * (high / low) ** x if found.log else low + (high - low) * x) for x in places))


def sort_dimensions(found: dict[str, Dimension], known: Mapping[str, str], problems: list[Problem]) -> list[Dimension]:
    """Return the dimensions so that each one follows those that its condition names."""
    ordered: dict[str, Dimension] = {}
    rest: list[Dimension] = []
    for dimension in found.values():
        wrong = list(_check_condition(dimension, found, known))
        rest.append(replace(dimension, when={}) if wrong else dimension)
        problems += wrong
    while rest:
        ready = next((own for own in rest if all(key in ordered for key in own.when)), None)
        if ready is None:
            keys = ", ".join(own.key for own in rest)
            text = f"the conditions of {keys} depend on each other"
            problems.append(Problem(text, known[rest[0].key], "sweep", "remove one of them"))
            break
        ordered[ready.key] = ready
        rest.remove(ready)
    return list(ordered.values())


def _check_condition(own: Dimension, found: Mapping[str, Dimension], known: Mapping[str, str]) -> Iterator[Problem]:
    for key, values in own.when.items():
        parent, where = found.get(key), known[own.key]
        if parent is None:
            hint = did_you_mean(key, found.keys() - {own.key}) or f"the sweep searches {', '.join(found)}"
            yield Problem(f"{own.key} depends on {key!r}, which the sweep does not search", where, "sweep", hint)
        elif isinstance(parent, Range):
            text = f"{own.key} depends on {key}, which is a range"
            yield Problem(text, where, "sweep", f"list the values of {key}")
        elif wrong := [value for value in values if not parent.contains(value)]:
            text = f"{own.key} depends on {key} = {wrong[0]!r}, which is not one of its values"
            yield Problem(text, where, "sweep", f"they are {', '.join(map(str, parent.probe()))}")


def _flatten(table: Table, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in table.items():
        name = f"{path}.{key}" if path else key
        found |= _flatten(item, name) if isinstance(item, Table) else {name: item}
    return found


def _split_values(text: str) -> list[object]:
    """
    >>> _split_values("1e-3, 1e-4"), _split_values("adam,sgd")
    ([0.001, 0.0001], ['adam', 'sgd'])
    """
    try:
        return list(literal(f"[{text}]"))
    except ValueError:
        return [_parse(word) for word in text.split(",")]


def _parse(word: str) -> object:
    try:
        return parse_value(word, None)
    except CannotSet:
        return word


def _is_number(value: object, whole: bool) -> bool:
    return type(value) is int or (type(value) is float and not whole and math.isfinite(value))
