"""The files of a sweep: its settings, and the state and result of each point."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from alchemy.annotations import fits
from alchemy.config.secrets import hide_words
from alchemy.config.toml_writer import format_inline
from alchemy.config.tree import Document, Table
from alchemy.errors import AlchemyError, Problem, did_you_mean
from alchemy.files import append_lines, home, lock_file, read_table, shorten_path, write_json
from alchemy.index.read_curves import parse_lines
from alchemy.records.status import now
from alchemy.sweep.read_space import SpaceReader, sort_dimensions
from alchemy.sweep.settings import Settings
from alchemy.sweep.space import Choice, Dimension, Point, Space

FORMAT, LONGEST_NAME = 1, 100
STUDY, POINTS, LOCK = "study.json", "points.jsonl", "lock"
RUNNING, DONE, PRUNED, FAILED = "running", "done", "pruned", "failed"
ASKED, ENDED = "asked", "ended"
_FIXED = ("config", "overrides", "digest", "space", "metric", "mode", "seeds")  # a sweep cannot continue with others
_ROW = {  # what the keys of a line of points.jsonl must be
    "params": "dict[str, Any]",
    "value": "float | None",
    "values": "dict[str, float]",
    "records": "list[str]",
    "reason": "str",
    "seed": "str",
    "record": "str",
}
_WORDS = {"digest": "config", "overrides": "--set options", "seeds": "list of seeds"}


@dataclass
class End:
    """The end of one run of a point: its record, and either its value or why it has none."""

    record: str = ""
    value: float | None = None
    reason: str = ""


@dataclass
class Trial:
    """A point, its state, and the value of each of its seeds; `value` is their mean, once all of them have finished."""

    number: int
    point: Point
    state: str = RUNNING
    value: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    records: list[str] = field(default_factory=list)
    reason: str = ""
    ends: dict[str, End] = field(default_factory=dict)  # seed -> end, if there are several seeds


@dataclass
class Plan:
    """What `study.json` says."""

    name: str
    config: str
    overrides: list[str]
    digest: str
    space: dict[str, dict[str, Any]]
    metric: str
    mode: str
    seeds: list[int]
    method: str
    trials: int | None
    prune: str
    seed: int
    created: str
    options: list[str] = field(default_factory=list)  # of `alchemy run`, besides --set and --seeds
    format: int = FORMAT


class Study:
    """A sweep on disk: `with Study(folder).open(plan) as study: study.ask(point)`. Reading needs no lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = _read_plan(folder)
        self.space = _read_space(self.plan)
        self.trials = _read_trials(folder / POINTS)
        for trial in self.trials:
            if not self.space.contains(trial.point):
                text = f"{shorten_path(folder / POINTS)} is damaged: point {trial.number} is not in the space"
                raise AlchemyError(text, hint="remove the line in which it is asked")

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def group(self) -> str:
        return name_group(self.name)

    @property
    def is_minimized(self) -> bool:
        return self.plan.mode == "min"

    @property
    def history(self) -> list[tuple[Point, float | None]]:
        """The points so far with their values, of which lower ones are better."""
        sign = 1 if self.is_minimized else -1
        return [(trial.point, None if trial.value is None else sign * trial.value) for trial in self.trials]

    def rank_trials(self) -> list[Trial]:
        """Return the points with a value, the best first."""
        done = [trial for trial in self.trials if trial.value is not None]
        return sorted(done, key=lambda trial: (trial.value or 0.0) * (1 if self.is_minimized else -1))

    def ask(self, point: Point) -> Trial:
        """Write a new point; it is run even if the sweep is killed right after."""
        trial = Trial(self.trials[-1].number + 1 if self.trials else 0, point)
        self._append({"event": ASKED, "point": trial.number, "params": point})
        self.trials.append(trial)
        return trial

    def end_run(self, trial: Trial, seed: str, end: End) -> None:
        """Write the end of one of the runs of a point."""
        self._append({"event": ENDED, "point": trial.number, "seed": seed, **asdict(end)})
        trial.ends[seed] = end

    def settle(self, trial: Trial, state: str, **result: Any) -> None:
        """Write the state of a point with its result: values and records, or a reason."""
        self._append({"event": state, "point": trial.number, **result})
        _apply(trial, state, result)

    def _append(self, row: Mapping[str, Any]) -> None:
        line = json.dumps({**row, "t": now()}, ensure_ascii=False) + "\n"
        with _explain_errors(self.folder):
            append_lines(self.folder / POINTS, line, sync=True)


def _apply(trial: Trial, state: str, result: Mapping[str, Any]) -> None:
    trial.state = state
    trial.value, trial.values = result.get("value"), result.get("values", {})
    trial.records, trial.reason = result.get("records", []), result.get("reason", "")
    if state == RUNNING:  # retried
        trial.ends = {seed: end for seed, end in trial.ends.items() if not end.reason}


@contextlib.contextmanager
def lock_study(folder: Path, hint: str) -> Iterator[None]:
    """Lock the folder of a sweep, which is created if it is missing; raise an error if the sweep is running."""
    with contextlib.ExitStack() as stack:
        with _explain_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not stack.enter_context(lock_file(folder / LOCK)):
                raise AlchemyError(f"the sweep {folder.name!r} is already running", hint=hint)
        yield


@contextlib.contextmanager
def open_study(plan: Plan) -> Iterator[Study]:
    """Create a sweep, or continue the one of this name; raise an error if it is another one, or is running."""
    folder = sweeps_folder() / plan.name
    with lock_study(folder, "wait for it, or pass another --name"):
        with _explain_errors(folder):
            if (folder / STUDY).exists():
                old = _read_plan(folder)
                _check_same(folder, old, plan)
                plan.created = old.created
            write_json(folder / STUDY, asdict(plan))
        yield Study(folder)


def make_plan(
    doc: Document, settings: Settings, overrides: Sequence[str], digest: str, options: Sequence[str] = ()
) -> Plan:
    path = Path(doc.path)
    default = f"{path.stem}-{doc.variant.replace('+', '-')}" if doc.variant else path.stem
    name = settings.name or default
    if not re.fullmatch(rf"[\w-][\w.-]{{0,{LONGEST_NAME - 1}}}", name):
        raise AlchemyError(f"invalid name {name!r}", hint="use up to 100 letters, digits, '-', '_' and '.' in --name")
    return Plan(
        name=name,
        config=doc.label,
        overrides=hide_words(overrides),
        digest=digest,
        options=list(options),
        space={dimension.key: describe_dimension(dimension) for dimension in settings.space.dimensions},
        created=now(),
        **{key: vars(settings)[key] for key in ("metric", "mode", "seeds", "method", "trials", "prune", "seed")},
    )


def _check_same(folder: Path, old: Plan, new: Plan) -> None:
    stored = json.loads(json.dumps(asdict(new)))
    for key in _FIXED:
        if vars(old)[key] != stored[key]:
            text = f"the sweep {new.name!r} already exists, with another {_WORDS.get(key, key)}"
            hint = f"pass --name to start another one, or remove this one with `alchemy sweep rm {new.name}`"
            raise AlchemyError(text + _describe_change(folder, key, vars(old)[key], stored[key]), hint=hint)


def _describe_change(folder: Path, key: str, old: Any, new: Any) -> str:
    if key == "digest":
        records = [Path(record) for trial in _read_trials(folder / POINTS) for record in trial.records]
        return f" (see `alchemy diff {records[0].name} .`)" if records else ""
    if key == "space":
        return f": {', '.join(name for name in {**old, **new} if old.get(name) != new.get(name))}"
    return f": {format_inline(old)} -> {format_inline(new)}"


def find_study(name: str) -> Study:
    """Read a sweep by its name."""
    return Study(find_folder(name))


def find_folder(name: str) -> Path:
    names = list_studies()
    if name not in names:
        hint = did_you_mean(name, names) or (f"there are {', '.join(names)}" if names else "there are none yet")
        raise AlchemyError(f"there is no sweep {name!r} in {shorten_path(sweeps_folder())}", hint=hint)
    return sweeps_folder() / name


def list_studies() -> list[str]:
    return sorted(path.parent.name for path in sweeps_folder().glob(f"*/{STUDY}"))


def name_group(name: str) -> str:
    """Return the group of the entries of a sweep in the queue."""
    return f"sweep:{name}"


def sweeps_folder() -> Path:
    return home() / "sweeps"


def describe_dimension(dimension: Dimension) -> dict[str, Any]:
    """Return a dimension as it is written in a `[sweep]` table.

    >>> describe_dimension(Choice("model.depth", range(2, 9, 2)))
    {'int': [2, 8], 'step': 2}
    """
    when = {"when": {key: list(values) for key, values in dimension.when.items()}} if dimension.when else {}
    if not isinstance(dimension, Choice):
        kind = ("log_" if dimension.log else "") + "int" if dimension.integer else "log" if dimension.log else "uniform"
        return {kind: [dimension.low, dimension.high], **when}
    if isinstance(dimension.values, range) and len(dimension.values) > 1:
        return {"int": [dimension.values[0], dimension.values[-1]], "step": dimension.values.step, **when}
    return {"choice": list(dimension.values), **when}


def _read_plan(folder: Path) -> Plan:
    try:
        plan = Plan(**read_table(folder / STUDY))
        for row in fields(Plan):
            if not fits(vars(plan)[row.name], str(row.type)):
                raise ValueError(f"its {row.name} is {vars(plan)[row.name]!r}")
    except (OSError, ValueError, TypeError) as error:
        hint = "remove the folder to start again"
        raise AlchemyError(f"{shorten_path(folder / STUDY)} cannot be read: {error}", hint=hint) from error
    if plan.format != FORMAT:
        raise AlchemyError(f"{shorten_path(folder / STUDY)} has format {plan.format}, expected {FORMAT}")
    return plan


def _read_space(plan: Plan) -> Space:
    problems: list[Problem] = []
    reader = SpaceReader(Document(), (), problems)
    for key, item in plan.space.items():
        reader.add(key, Table(item), STUDY)
    space = Space(tuple(sort_dimensions(reader.dimensions, reader.where, problems)))
    if problems:
        raise AlchemyError(f"the space in {STUDY} of {plan.name!r} is damaged: {problems[0]}")
    return space


def _read_trials(path: Path) -> list[Trial]:
    """Return the points of a file.

    A line that was cut off by a full disk or a power failure is skipped: its point has no runs yet.
    """
    trials: dict[int, Trial] = {}
    for place, row in enumerate(_read_rows(path), 1):
        if row is None:
            continue
        number, event = row.get("point"), row.get("event")
        if any(name in row and not fits(row[name], kind) for name, kind in _ROW.items()):
            raise AlchemyError(f"{shorten_path(path)}:{place} is damaged", hint="remove the line")
        if type(number) is not int or number < 0:
            continue
        if event == ASKED and number not in trials and "params" in row:
            trials[number] = Trial(number, row["params"])
        elif event == ENDED and number in trials and "seed" in row:
            end = End(row.get("record", ""), row.get("value"), row.get("reason", ""))
            trials[number].ends[row["seed"]] = end
        elif number in trials and event in (RUNNING, DONE, PRUNED, FAILED):
            _apply(trials[number], event, row)
    return [trials[number] for number in sorted(trials)]


def _read_rows(path: Path) -> list[dict[str, Any] | None]:
    if not path.exists():
        return []
    try:
        if not path.is_file():
            raise OSError("it is not a file")
        return parse_lines(path.read_bytes().rpartition(b"\n")[0] + b"\n")
    except OSError as error:
        hint = "remove the folder to start again"
        raise AlchemyError(f"{shorten_path(path)} cannot be read: {error.strerror or error}", hint=hint) from error


@contextlib.contextmanager
def _explain_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = f"cannot write to {shorten_path(folder)}: {error.strerror or error}"
        raise AlchemyError(text, hint="free some space, then run the same command again") from error
