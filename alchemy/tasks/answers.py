"""What a task answers in an evaluation, in the order of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Answers:
    """Rows that come batch by batch, of samples in any order. Outside an evaluation nothing is kept."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] | None = None
        self._samples: list[int] = []

    def begin(self) -> None:
        self._rows, self._samples = [], []

    def add(self, rows: list[dict[str, Any]], samples: Sequence[int] | None) -> None:
        """The answers to a batch, and the numbers of its samples, where somebody knows them."""
        if self._rows is not None:
            self._rows += rows
            self._samples += samples or ()

    def end(self) -> list[dict[str, Any]]:
        rows, self._rows = self._rows or [], None
        if len(self._samples) != len(rows):  # of a stream nobody knows the numbers, and they come in order
            return rows
        return [row for _, row in sorted(zip(self._samples, rows), key=lambda pair: pair[0])]
