"""Whether lower or higher values of a metric are better."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alchemy.index.record_index import RecordIndex
    from alchemy.index.row import Row

_MINIMIZED = re.compile(r"loss|error|perplexity|ppl|\bmse\b|\bmae\b|\bwer\b|\bcer\b")


def is_minimized(metric: str) -> bool:
    """Return whether lower values of a metric are better, judging by its name.

    >>> is_minimized("dev/loss"), is_minimized("dev/f1")
    (True, False)
    """
    return _MINIMIZED.search(metric.lower()) is not None


def find_minimizing(index: RecordIndex, rows: Iterable[Row]) -> dict[int, bool]:
    """Return for each run whether lower values of its monitored metric are better: as its config says, or by name."""
    rows = list(rows)
    modes = index.config_values(rows, "checkpoint.mode")
    return {row.id: modes[row.id] == "min" if row.id in modes else is_minimized(row.best_metric) for row in rows}
