"""What a `[sweep]` table and the command line say: the space of a sweep and its settings, with all mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alchemy.annotations import find_mismatches
from alchemy.config.seed import seed_of
from alchemy.config.tree import Document
from alchemy.errors import Problem
from alchemy.index.metric_direction import is_minimized
from alchemy.sweep.read_space import SpaceReader, sort_dimensions
from alchemy.sweep.space import Space

METHODS = ("grid", "random", "sobol", "tpe", "cmaes", "annealing", "hill_climbing")
PRUNERS = ("median", "asha")
# the settings of a [sweep] table, and what each value must be; every other key is a config key to search
SETTINGS = {
    "method": f"Literal[{', '.join(map(repr, METHODS))}]",
    "metric": "str",
    "mode": "Literal['min', 'max']",
    "trials": "Annotated[int, Ge(1)]",
    "seeds": "Annotated[int, Ge(1), Le(1000)] | list[int]",
    "prune": f"Literal[{', '.join(map(repr, PRUNERS))}]",
    "prune_after": "Annotated[int, Ge(1)]",
    "seed": "int",
    "name": "str",
}
TRIALS = 20  # unless the method is a grid


@dataclass
class Settings:
    """The settings of a sweep. `where` has the place of each key: `train.toml:41`, or `--grid optim.lr`."""

    space: Space
    method: str
    metric: str
    mode: str
    trials: int | None  # None: every point of a grid
    seeds: list[int]
    prune: str = ""
    prune_after: int = 1
    seed: int = 0
    name: str = ""
    where: dict[str, str] = field(default_factory=dict)

    @property
    def is_minimized(self) -> bool:
        return self.mode == "min"


def read_settings(
    doc: Document, grid: Sequence[str] = (), given: Mapping[str, object] = {}
) -> tuple[Settings, list[Problem]]:
    """Read the `[sweep]` table of a config and return its settings with all mistakes.

    `grid` are texts such as `optim.lr=1e-3,1e-4`, `given` the settings of the command line.
    """
    table, problems = doc.table("sweep"), list[Problem]()
    where = {key: table.where(key) for key in SETTINGS if key in table}
    where |= {key: f"--{key.replace('_', '-')}" for key in given}
    values: dict[str, Any] = {key: table[key] for key in SETTINGS if key in table} | dict(given)
    for key in list(values):
        if mistakes := find_mismatches(key, values[key], SETTINGS[key]):
            problems += [Problem(text, where[key], "sweep", hint) for text, hint in mistakes]
            del values[key]
    reader = SpaceReader(doc, SETTINGS, problems)
    reader.read(table)
    reader.read_grid(grid)
    space = Space(tuple(sort_dimensions(reader.dimensions, reader.where, problems)))
    place = table.where() if "sweep" in doc else doc.path
    if not reader.where and not problems:
        hint = "add a key to [sweep], such as optim.lr = { log = [1e-5, 1e-2] }, or pass --grid optim.lr=1e-3,1e-4"
        problems.append(Problem("the sweep has no keys to search", place, hint=hint))
    monitor = doc.table("checkpoint").get("monitor")
    metric = str(values.get("metric") or monitor or "")
    if not metric:
        hint = 'add metric = "dev/accuracy" to [sweep], or [checkpoint] with a monitor'
        problems.append(Problem("the sweep has no metric to compare runs by", place, "sweep", hint))
    mode = doc.table("checkpoint").get("mode") if metric == monitor else None
    method = values.get("method") or ("random" if space.ranges or "trials" in values else "grid")
    settings = Settings(
        space=space,
        method=method,
        metric=metric,
        mode=values.get("mode") or mode or ("min" if is_minimized(metric) else "max"),
        trials=values.get("trials") or (None if method == "grid" else TRIALS),
        seeds=_list_seeds(values.get("seeds"), doc),
        where={**where, **reader.where},
        **{key: values[key] for key in ("prune", "prune_after", "seed", "name") if key in values},
    )
    return settings, list(dict.fromkeys([*problems, *check_method(settings, place)]))


def _list_seeds(seeds: object, doc: Document) -> list[int]:
    """Return the seeds of each point: as listed, the first ones if there is a number, or the one of the config."""
    if isinstance(seeds, list):
        return list(seeds)
    if isinstance(seeds, int):
        return list(range(1, seeds + 1))
    is_drawn = doc.origin_of("seed").kind == "drawn"
    return [1 if is_drawn else seed_of(doc)]


def check_method(settings: Settings, place: str = "") -> Iterator[Problem]:
    """Yield the reasons why a method cannot search a space."""
    space, method, where = settings.space, settings.method, settings.where.get("method", place)
    if method in ("grid", "hill_climbing") and space.ranges:
        key = space.ranges[0]
        hint = f"list its values, add points = 5 to its table, or use {'random' if method == 'grid' else 'annealing'}"
        yield Problem(f"{method} needs keys with listed values, but {key} is a range", settings.where[key], hint=hint)
    if method == "cmaes" and sum(dimension.is_numeric and not dimension.when for dimension in space.dimensions) < 2:
        hint = "use tpe"
        yield Problem("cmaes needs at least two keys with numbers that have no condition", where, hint=hint)
    for own in (own for own in space.dimensions if own.key not in space.activate(own)):
        yield Problem(f"the conditions of {own.key} contradict each other", settings.where[own.key])
    for seed in (seed for seed in settings.seeds if not 0 <= seed < 2**63):
        yield Problem(f"seeds must be integers from 0 to 2**63 - 1, not {seed}", settings.where.get("seeds", place))
    if len(set(settings.seeds)) < len(settings.seeds) or not settings.seeds:
        yield Problem(
            f"seeds must be different numbers, got {settings.seeds}", settings.where.get("seeds", place), "sweep"
        )
