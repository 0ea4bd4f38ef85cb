"""What `run`, `test` and `predict` share: configs are checked, runs are started, results are told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import table
from alchemy.errors import ConfigError, Problem

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult


def vet(documents: Sequence[Document], args: argparse.Namespace) -> list[Problem]:
    """What loading and the shallow check have to say about the configs."""
    from alchemy.config.check import check_all
    from alchemy.launch.project import roots

    return check_all(documents, strict=args.strict, roots=roots(args.user_dir))


def refuse_if_wrong(problems: Sequence[Problem]) -> None:
    """Any error ends here, together with all other problems; warnings alone are told by the run itself."""
    if any(problem.error for problem in problems):
        raise ConfigError(list(problems))


def start(documents: Sequence[Document], args: argparse.Namespace, **more: Any) -> tuple[list[RunResult], int]:
    """Runs the documents; returns their results and the exit code."""
    from alchemy.runner import run

    try:
        results = run(
            list(documents),
            device=args.device,
            user_dir=args.user_dir,
            desc=args.desc,
            debug=args.debug,
            no_file=not args.file,
            strict=args.strict,
            raise_errors=args.raise_errors or args.pdb,
            **more,
        )
    except Exception as error:
        if not (args.raise_errors or args.pdb):
            raise
        _show(error, debugger=args.pdb)
        return [], 1
    return results, summarize(documents, results)


def summarize(documents: Sequence[Document], results: Sequence[RunResult]) -> int:
    """Prints what came out, as a table where there are several, and gives the exit code."""
    from alchemy.launch.group import place

    names = labels(documents)
    rows = [[name, *_outcome(result)] for name, result in zip(names, results, strict=True)]
    if place().rank:  # one of several processes: the first says it for all
        pass
    elif len(rows) > 1:
        print("\n" + table([["experiment", "status", "record", "result"], *rows]))
    else:
        print("\n" + "  ".join(cell for cell in rows[0] if cell))
    return max((code(result) for result in results), default=0)


def code(result: RunResult) -> int:
    """128 + the signal that ended a run, as shells count; 1 when it failed."""
    if result.signal:
        return 128 + int(result.signal)
    return 1 if isinstance(result, BaseException) else 0


def labels(documents: Sequence[Document]) -> list[str]:
    """A name for each run that tells it from the others: file and variant, and the seed where that is not enough."""
    names = [f"{row.path}#{row.variant}" if row.variant else row.path or "config" for row in documents]
    seeds = [f" seed {row.get('seed')}" for row in documents]
    return [name + seed if names.count(name) > 1 else name for name, seed in zip(names, seeds, strict=True)]


def _numbers(values: object) -> str:
    """
    >>> _numbers({"dev/f1": 0.912345, "confusion": [[1, 2]], "predictions": 10000})
    'dev/f1 0.9123  predictions 10000'
    """
    from alchemy.metrics.numbers import show

    if not isinstance(values, dict):
        return ""
    # bool is an int to Python, but no number to a reader
    plain = [row for row in values.items() if isinstance(row[1], int | float) and not isinstance(row[1], bool)]
    return "  ".join(f"{name} {show(value)}" for name, value in plain)


def _outcome(result: RunResult) -> list[str]:
    record = "" if result.record_dir is None else str(result.record_dir)
    failed = isinstance(result, BaseException)
    return [result.status, record, result.reason.partition("\n")[0] if failed else _numbers(result.ret)]


def _show(error: BaseException, *, debugger: bool) -> None:
    """Whoever asks for the traceback gets it whole, also of errors that are told in one line elsewhere."""
    import traceback

    from alchemy.config.secrets import hide

    print(hide("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if debugger:
        import pdb

        pdb.post_mortem(error.__traceback__)
