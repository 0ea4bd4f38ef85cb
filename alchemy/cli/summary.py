"""Print the final table of a command: best evaluation, test scores and record of each run."""

from __future__ import annotations

import math
import shlex
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alchemy.cli.table_format import fit_table

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult

MOST = 4  # scores in a cell
COLUMNS = 120  # table width without a terminal


def summarize(documents: Sequence[Document], results: Sequence[RunResult], tests: Mapping[int, RunResult] = {}) -> int:
    """Print the results and return the exit code. `tests` maps the index of a run to its test result."""
    from alchemy.launch.ranks import get_rank_info

    if get_rank_info().rank == 0 and results:  # only the main process prints it
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else COLUMNS
        print("\n" + render_runs(documents, results, tests, columns=columns))
    return max(map(exit_code, (*results, *tests.values())), default=1)


def suggest_next(result: RunResult, document: Document, *, tested: bool = False) -> None:
    """Print the next command: resume an interrupted run, or test a finished one."""
    record = result.record_dir
    if record is None or not (record / "state").is_dir():
        return
    if result.signal:
        print(f"to resume: alchemy resume {shlex.quote(str(record))}", file=sys.stderr)
    elif result.status == "finished" and not tested and "test" in document.table("task").table("datasets"):
        print(f"to test the best weights: alchemy test {shlex.quote(str(record))}", file=sys.stderr)


def exit_code(result: RunResult) -> int:
    """Return 128 + the signal that ended a run, 1 if the run failed, or 0 otherwise."""
    if result.signal:
        return 128 + int(result.signal)
    return 1 if isinstance(result, BaseException) else 0


def label_runs(documents: Sequence[Document]) -> list[str]:
    """Return a name for each run: file and variant, plus the seed if names repeat."""
    names = [row.label or "config" for row in documents]
    seeds = [f" seed {row.get('seed')}" for row in documents]
    return [name + seed if names.count(name) > 1 else name for name, seed in zip(names, seeds, strict=True)]


def render_runs(
    documents: Sequence[Document],
    results: Sequence[RunResult],
    tests: Mapping[int, RunResult] = {},
    columns: int = COLUMNS,
) -> str:
    """Render the table with as many scores as fit; the monitored one is always included."""
    for most in range(MOST, 0, -1):
        titles, *rows = _rows(documents, results, tests, most)
        lines, _ = fit_table(titles, rows)
        if max(map(len, lines)) <= columns:
            break
    return "\n".join(lines)


def _rows(
    documents: Sequence[Document], results: Sequence[RunResult], tests: Mapping[int, RunResult], most: int
) -> list[list[str]]:
    """Return the cells of the table without empty columns."""
    splits = dict.fromkeys(_split(result) for result in results if _split(result))
    epoch = "best epoch" if any(result.best for result in results) else "epoch"
    rows = [["experiment", "status", epoch, ", ".join(splits) or "result", "test", "record"]]
    for i, (name, result) in enumerate(zip(label_runs(documents), results, strict=True)):
        record = "" if result.record_dir is None else str(result.record_dir)
        test = _cell(tests[i], most, result) if i in tests else ""
        rows.append([name, result.status, result.epoch, _cell(result, most), test, record])
    for label in dict.fromkeys(document.label for document in documents):
        own = [i for i, row in enumerate(documents) if row.label == label and results[i].status == "finished"]
        if len({documents[i].get("seed") for i in own}) > 1:
            tested = [_scores(tests[i], results[i]) for i in own if i in tests and tests[i].status == "finished"]
            means = [_mean([_scores(results[i]) for i in own], most), _mean(tested, most)]
            rows.append([f"{label} mean ± sd".strip(), "", "", *means, ""])
    filled = [any(column) for column in zip(*rows[1:], strict=True)]
    return [[cell for cell, keep in zip(row, filled, strict=True) if keep] for row in rows]


def _mean(scores: Sequence[Mapping[str, float]], most: int) -> str:
    """Return the mean and standard deviation of the shared scores.

    >>> _mean([{"f1": 0.5}, {"f1": 0.7, "loss": 1.0}], most=2)
    'f1 0.60 ± 0.14'
    """
    if len(scores) < 2:
        return ""
    shared = [name for name in scores[0] if all(math.isfinite(row.get(name, math.nan)) for row in scores)]
    values = {name: [row[name] for row in scores] for name in shared[:most]}
    return "  ".join(f"{name} {_spread(statistics.mean(row), statistics.stdev(row))}" for name, row in values.items())


def _spread(mean: float, deviation: float) -> str:
    """Format a mean and its deviation, both rounded to two significant digits of the deviation.

    >>> _spread(0.704, 0.006144), _spread(51234.5, 123.4), _spread(0.75, 0.0)
    ('0.7040 ± 0.0061', '51234 ± 123', '0.75 ± 0')
    """
    from alchemy.metrics.scalars import show

    if not deviation:
        return f"{show(mean)} ± 0"
    places = min(max(1 - math.floor(math.log10(deviation)), 0), 9)
    return f"{mean:.{places}f} ± {deviation:.{places}f}"


def _split(result: RunResult) -> str:
    return result.best.metric.partition("/")[0] if result.best else result.split


def _scores(result: RunResult, trained: RunResult | None = None) -> dict[str, float]:
    """Return the scores of the best evaluation, if any, or of the last one; the monitored score comes first."""
    from alchemy.metrics.scalars import numbers_in

    values: Any = result.best.scores if result.best else result.ret
    numbers = numbers_in(values) if isinstance(values, Mapping) else {}
    best = (trained or result).best
    first = best.metric.partition("/")[2] if best else ""
    return {name: numbers[name] for name in sorted(numbers, key=lambda name: name != first)}


def _cell(result: RunResult, most: int, trained: RunResult | None = None) -> str:
    """Return the scores of a run, or the reason for its failure unless it was already logged."""
    from alchemy.metrics.scalars import show_scores

    if isinstance(result, BaseException):
        status = "" if trained is None else f"{result.status}: "
        return (status + ("" if result.is_logged else result.reason.partition("\n")[0])).removesuffix(": ")
    scores = _scores(result, trained)
    return show_scores({name: scores[name] for name in list(scores)[:most]}, width=COLUMNS)
