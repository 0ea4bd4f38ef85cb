"""Progress bars and columns for projects that display their own progress."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column


class CompletedColumn(TextColumn):
    """A column with the completed amount, without a total."""

    def __init__(self, table_column: Column | None = None) -> None:
        super().__init__("{task.completed}", table_column=table_column)


class ProgressWOTotal(Progress):
    """A progress bar for tasks of unknown length; accepts the keywords of `rich.progress.Progress`."""

    def __init__(self, console: Console | None = None, **kwargs: Any) -> None:
        super().__init__(*no_total_columns(), console=console, **kwargs)

    def add_task(
        self, description: str, start: bool = True, total: float | None = None, *args: Any, **kwargs: Any
    ) -> TaskID:
        return super().add_task(description, start, total, *args, **kwargs)


def full_columns() -> tuple[ProgressColumn, ...]:
    """Return the columns for a task of known length: `Progress(*full_columns())`."""
    return (*_text(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())


def no_total_columns() -> tuple[ProgressColumn, ...]:
    """Return the columns for a task of unknown length."""
    return (*_text(), CompletedColumn(), TimeElapsedColumn())


def get_default_columns() -> tuple[ProgressColumn, ...]:
    """Return rich's default columns."""
    return Progress.get_default_columns()


def _text() -> tuple[ProgressColumn, ...]:
    # descriptions come from data and may contain brackets
    return (TextColumn("{task.description}", markup=False),)
