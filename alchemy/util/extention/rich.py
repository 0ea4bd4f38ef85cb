"""Columns for progress bars that a project draws itself."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def full_columns() -> tuple[ProgressColumn, ...]:
    """For a task whose length is known: `Progress(*full_columns())`."""
    return (*_text(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())


def no_total_columns() -> tuple[ProgressColumn, ...]:
    """For a task whose length is not known."""
    return (*_text(), TextColumn("{task.completed}"), TimeElapsedColumn())


def _text() -> tuple[ProgressColumn, ...]:
    # descriptions come from data: brackets in them are not markup
    return (TextColumn("{task.description}", markup=False),)
