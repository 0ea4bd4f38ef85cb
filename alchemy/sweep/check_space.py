"""Check a space like a config: every value that can be chosen, and the ends of every range, before the first run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from alchemy.config.line_numbers import split_key
from alchemy.config.merge import find_key
from alchemy.config.toml_writer import format_inline
from alchemy.config.tree import COMMAND_LINE, Document, Origin, Table
from alchemy.errors import ConfigError, Problem
from alchemy.sweep.settings import Settings
from alchemy.sweep.space import Point

Load = Callable[[Sequence[str]], Document]  # overrides -> config
Check = Callable[[Sequence[Document], bool], list[Problem]]  # configs, strict -> problems


def build_overrides(point: Point) -> list[str]:
    """Return the overrides that set a point.

    >>> build_overrides({"optim.lr": 0.1, "optim.type": "SGD"})
    ['optim.lr=0.1', 'optim.type="SGD"']
    """
    return [f"{key}={'none' if value is None else format_inline(value)}" for key, value in point.items()]


def check_space(settings: Settings, load: Load, check: Check) -> list[Problem]:
    """Return the problems of the configs of a sweep; a key that no part takes is an error, at its place."""
    documents: list[Document] = []
    problems: list[Problem] = []
    broken: set[str] = set()  # keys that cannot even be set
    for point in settings.space.probe_points():
        while True:
            point = {key: value for key, value in point.items() if key not in broken}
            try:
                documents.append(_mark(load(build_overrides(point)), settings, point))
                break
            except ConfigError as error:
                found = {_find_key(problem, point) for problem in error.problems} - {""}
                problems += [_locate(problem, settings, point) for problem in error.problems]
            if not found:
                break
            broken |= found
    places = set(settings.where.values())
    problems += check(documents, False) + [row for row in check(documents, True) if row.where in places]
    errors = {(row.where, row.message) for row in problems if row.error}
    problems = [row for row in problems if row.error or (row.where, row.message) not in errors]
    problems = [_suggest_condition(problem, settings) for problem in problems]
    return list(dict.fromkeys([*problems, *_check_metric(settings, load, check)]))


def _mark(doc: Document, settings: Settings, point: Point) -> Document:
    """Set the origin of the values of a point, so that problems are reported where the sweep names them."""
    for key in point:
        node: Any = doc
        split = split_key(key)
        *parents, last = split[0] if split else key.split(".")
        for name in parents:
            found = find_key(node, name, (), "")
            node = None if isinstance(found, Problem) else node[found]
        if isinstance(node, Table) and node.origin_of(last).kind == COMMAND_LINE.kind:
            node.origins[last] = Origin(file=settings.where[key])
    return doc


def _find_key(problem: Problem, point: Point) -> str:
    """Return the key of a point whose override has a problem, or an empty string."""
    return next((key for key in point if problem.where.startswith(f"--set {key}=")), "")


def _locate(problem: Problem, settings: Settings, point: Point) -> Problem:
    """Replace the override that a problem was found in by the place in the sweep."""
    key = _find_key(problem, point)
    return replace(problem, where=settings.where[key], section="sweep") if key else problem


def _suggest_condition(problem: Problem, settings: Settings) -> Problem:
    """Add a hint to the problem of a key that perhaps only some of the types have which the sweep tries."""
    key = next((key for key, where in settings.where.items() if where == problem.where), "")
    kind = f"{key.rpartition('.')[0]}.type"
    if problem.hint.startswith("did you mean") or kind == key or kind not in settings.where:
        return problem
    return replace(problem, hint=f"if only some types have it, add when = {{ {kind} = [..] }}")


def _check_metric(settings: Settings, load: Load, check: Check) -> list[Problem]:
    """Check that an evaluation computes the metric, as for the monitor of `[checkpoint]`."""
    if "metric" not in settings.where:
        return []  # it is the monitor
    try:
        doc = load([f"checkpoint.monitor={format_inline(settings.metric)}"])
    except ConfigError:
        return []  # reported already
    found = [row for row in check([doc], False) if row.section == "checkpoint" and settings.metric in row.message]
    return [
        replace(
            row,
            message=row.message.replace("monitor = ", "metric = "),
            where=settings.where["metric"],
            section="sweep",
        )
        for row in found
    ]
