"""Print problems: notes and warnings, then errors, then a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TextIO

from alchemy.config.secrets import hide
from alchemy.errors import Problem


def print_problems(problems: Sequence[Problem], out: TextIO) -> None:
    """Print notes and warnings, then errors, then their counts."""
    for problem in sorted(_unique(problems), key=lambda row: (row.error, not row.note)):
        kind = "error" if problem.error else "note" if problem.note else "warning"
        print(hide(f"{kind}: {problem}"), file=out)
    if not is_clean(problems):
        print(_summary(problems), file=out)


def _unique(problems: Sequence[Problem]) -> list[Problem]:
    """Remove duplicates, since all variants of a file share the problems in its body."""
    return list(dict.fromkeys(problems))


def is_clean(problems: Sequence[Problem]) -> bool:
    """Return whether there are only notes."""
    return all(problem.note for problem in problems)


def find_errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in _unique(problems) if problem.error]


def _summary(problems: Sequence[Problem]) -> str:
    """Return the number of errors and warnings as text.

    >>> _summary([Problem("a"), Problem("b", error=False), Problem("c", error=False)])
    '1 error, 2 warnings'
    """
    wrong = len(find_errors(problems))
    warnings = [problem for problem in _unique(problems) if not problem.error and not problem.note]
    return f"{_count(wrong, 'error')}, {_count(len(warnings), 'warning')}"


def to_dict(problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the problems as data for `--json`."""
    wrong = len(find_errors(problems))
    shown = [replace(row, message=hide(row.message), hint=hide(row.hint)) for row in _unique(problems)]
    rows = [asdict(row) for row in shown]
    return {
        "ok": not wrong,
        "errors": wrong,
        "warnings": len(rows) - wrong - sum(row.note for row in shown),
        "problems": rows,
    }


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
