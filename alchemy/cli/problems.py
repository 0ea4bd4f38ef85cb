"""How problems are shown: one line each, errors after warnings, and a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TextIO

from alchemy.config.secrets import hide
from alchemy.errors import Problem


def report(problems: Sequence[Problem], out: TextIO) -> None:
    """Prints the warnings, then the errors, then how many there are of each."""
    for problem in sorted(_unique(problems), key=lambda row: row.error):
        print(hide(f"{'error' if problem.error else 'warning'}: {problem}"), file=out)
    if problems:
        print(_summary(problems), file=out)


def _unique(problems: Sequence[Problem]) -> list[Problem]:
    """Each once: the variants of a file share the problems of its body."""
    return list(dict.fromkeys(problems))


def errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in _unique(problems) if problem.error]


def _summary(problems: Sequence[Problem]) -> str:
    """
    >>> _summary([Problem("a"), Problem("b", error=False), Problem("c", error=False)])
    '1 error, 2 warnings'
    """
    wrong = len(errors(problems))
    return f"{_count(wrong, 'error')}, {_count(len(_unique(problems)) - wrong, 'warning')}"


def as_data(problems: Sequence[Problem]) -> dict[str, Any]:
    """What `--json` prints."""
    wrong = len(errors(problems))
    shown = [replace(row, message=hide(row.message), hint=hide(row.hint)) for row in _unique(problems)]
    rows = [asdict(row) for row in shown]
    return {"ok": not wrong, "errors": wrong, "warnings": len(rows) - wrong, "problems": rows}


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
