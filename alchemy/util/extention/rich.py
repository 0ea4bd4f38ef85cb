"""Progress bars that a project draws itself, and their columns."""

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
    """How much is done, without a total."""

    def __init__(self, table_column: Column | None = None) -> None:
        super().__init__("{task.completed}", table_column=table_column)


class ProgressWOTotal(Progress):
    """A bar for tasks whose length is not known; takes the keywords of `rich.progress.Progress`."""

    def __init__(self, console: Console | None = None, **kwargs: Any) -> None:
        super().__init__(*no_total_columns(), console=console, **kwargs)

    def add_task(
        self, description: str, start: bool = True, total: float | None = None, *args: Any, **kwargs: Any
    ) -> TaskID:
        return super().add_task(description, start, total, *args, **kwargs)


def full_columns() -> tuple[ProgressColumn, ...]:
    """For a task whose length is known: `Progress(*full_columns())`."""
    return (*_text(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())


def no_total_columns() -> tuple[ProgressColumn, ...]:
    """For a task whose length is not known."""
    return (*_text(), CompletedColumn(), TimeElapsedColumn())


def get_default_columns() -> tuple[ProgressColumn, ...]:
    """Those that rich draws by default."""
    return Progress.get_default_columns()


def _text() -> tuple[ProgressColumn, ...]:
    # descriptions come from data: brackets in them are not markup
    return (TextColumn("{task.description}", markup=False),)
