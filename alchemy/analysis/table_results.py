"""Results of runs that are kept in a file next to a table, so that the table does not need the records.

`tables/NAME.json` has one entry for each row and the columns that show the same runs, and one line per run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.files import read_table, write_atomic
from alchemy.index.listing import Value
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.value_format import parse_iso
from alchemy.records.status import try_read_info

FORMAT = 1
LARGEST = 16 * 2**20  # bytes
MAX_POINTS = 200  # of a saved curve

CellKey = tuple[str, str]  # row and column


@dataclass(frozen=True)
class SavedRun:
    """The results of one run, with their origin."""

    id: str
    seed: str
    started: str
    metrics: dict[str, float]
    cmd: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    curve: dict[str, list[float]] = field(default_factory=dict)  # of the monitored metric

    @property
    def time(self) -> float:
        """The start of the run in seconds since the epoch; 0 if unknown."""
        return parse_iso(self.started) or 0.0


Results = dict[CellKey, list[SavedRun]]


def load_results(path: Path) -> Results:
    """Read saved results; a missing file has none."""
    try:
        table = read_table(path, LARGEST)
        if table.get("format") != FORMAT:
            raise ValueError(f"expected format {FORMAT}, got {table.get('format')!r}")
        found: Results = {}
        for entry in table["cells"]:
            runs = [_read_run(run) for run in entry["runs"]]
            found |= {(str(entry["row"]), str(column)): runs for column in entry["columns"]}
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise AlchemyError(f"{path} cannot be read as results of a table: {error}") from error


def _read_run(run: Mapping[str, Any]) -> SavedRun:
    metrics = {str(name): float(value) for name, value in run["metrics"].items()}
    if not all(map(math.isfinite, metrics.values())):
        raise ValueError("a metric is not finite")
    curve = {str(name): [float(value) for value in values] for name, values in run.get("curve", {}).items()}
    versions = {str(name): str(value) for name, value in run.get("versions", {}).items()}
    name, seed, started, cmd = (str(run.get(key, "")) for key in ("id", "seed", "started", "cmd"))
    return SavedRun(name, seed, started, metrics, cmd, versions, curve)


def write_results(path: Path, results: Results) -> None:
    """Write results, with one line per run."""
    entries = []
    for (row, columns), runs in _group(results).items():
        lines = ",\n".join(f"  {_dump(vars(run))}" for run in runs)
        entries.append(f'{{"row": {_dump(row)}, "columns": {_dump(columns)}, "runs": [\n{lines}\n]}}')
    write_atomic(path, f'{{"format": {FORMAT}, "cells": [\n' + ",\n".join(entries) + "\n]}\n")


def _group(results: Results) -> dict[tuple[str, tuple[str, ...]], list[SavedRun]]:
    """Return the runs by row and by the columns that show them."""
    columns: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for (row, column), runs in results.items():
        columns.setdefault(row, {}).setdefault(tuple(_dump(vars(run)) for run in runs), []).append(column)
    return {(row, tuple(names)): results[row, names[0]] for row, groups in columns.items() for names in groups.values()}


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def merge_results(saved: Results, new: Results, *, replace: bool = False) -> tuple[Results, dict[CellKey, list[str]]]:
    """Update saved results; return them, and the seeds of each cell that is left unchanged because it would lose them.

    Cells that `new` does not contain are kept: their records may be on another machine.
    """
    kept = {}
    for key, runs in new.items():
        lost = {run.seed for run in saved.get(key, [])} - {run.seed for run in runs}
        if lost and not replace:
            kept[key] = sorted(lost)
    return saved | {key: runs for key, runs in new.items() if key not in kept}, kept


def describe_run(row: Row, metrics: Mapping[str, Value], index: RecordIndex) -> SavedRun:
    """Return what is saved about a run."""
    info = try_read_info(row.folder)
    cmd, versions = info.get("cmd"), info.get("versions")
    words = ["alchemy", *map(str, cmd[1:])] if isinstance(cmd, list) else []
    curve = [bucket.mean for bucket in index.curves.read(row, row.best_metric)] if row.best_metric else []
    return SavedRun(
        row.name,
        row.seed,
        str(info.get("started") or ""),
        {name: value for name, value in sorted(metrics.items()) if isinstance(value, float)},
        " ".join(words),
        {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {},
        {row.best_metric: thin(curve)} if curve else {},
    )


def thin(values: Sequence[float]) -> list[float]:
    """Return at most `MAX_POINTS` values at equal distances, including the last one; NaN and infinities are dropped.

    >>> len(thin([float(value) for value in range(1000)])), thin([1.0, 2.0])
    (200, [1.0, 2.0])
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) <= MAX_POINTS:
        return finite
    step = (len(finite) - 1) / (MAX_POINTS - 1)
    return [finite[round(place * step)] for place in range(MAX_POINTS)]
