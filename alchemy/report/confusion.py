"""Confusion matrices for a report: a matrix of few classes, or the most frequent confusions of many."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

MOST_CLASSES = 30  # of a matrix; more cannot be read
MOST_PAIRS = 40
CORNER = "gold \\ predicted"  # the first cell of the file
Cells = Iterable[tuple[int, int, int]]


def summarize_confusion(labels: Sequence[str], cells: Cells) -> dict[str, Any]:
    """Return a confusion matrix, given as `(gold, predicted, count)`, for the page."""
    counts: dict[tuple[int, int], int] = {}
    for gold, predicted, count in cells:
        if 0 <= gold < len(labels) and 0 <= predicted < len(labels) and count > 0:
            counts[gold, predicted] = counts.get((gold, predicted), 0) + count
    total = sum(counts.values())
    correct = sum(count for (gold, predicted), count in counts.items() if gold == predicted)
    note = f"{correct:,} of {total:,} correct ({correct / (total or 1):.1%}), {len(labels):,} classes"
    if len(labels) <= MOST_CLASSES:
        matrix = [[0] * len(labels) for _ in labels]
        for (gold, predicted), count in counts.items():
            matrix[gold][predicted] = count
        return {"labels": list(labels), "matrix": matrix, "note": note}
    sizes: dict[int, int] = {}
    for (gold, _), count in counts.items():
        sizes[gold] = sizes.get(gold, 0) + count
    wrong = [(count, gold, predicted) for (gold, predicted), count in counts.items() if gold != predicted]
    wrong.sort(key=lambda entry: (-entry[0], entry[1:]))
    pairs = [[labels[gold], labels[predicted], count, sizes[gold]] for count, gold, predicted in wrong[:MOST_PAIRS]]
    note += f"; the most frequent of {len(wrong):,} pairs that are confused" if len(wrong) > len(pairs) else ""
    return {"pairs": pairs, "note": note}


def parse_media(content: object) -> dict[str, Any] | None:
    """Return the confusion matrix of a media file; None if it is damaged."""
    labels = content.get("labels") if isinstance(content, dict) else None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(labels, list) or not isinstance(cells, list):
        return None
    valid = (cell for cell in cells if isinstance(cell, list) and len(cell) == 3 and {*map(type, cell)} == {int})
    return summarize_confusion([str(label) for label in labels], ((a, b, count) for a, b, count in valid))


def parse_csv(text: str) -> dict[str, Any] | None:
    """Return the confusion matrix of a `<split>_confusion.csv` file; None for other tables and damaged files.

    >>> parse_csv("gold \\\\ predicted,no,yes\\nno,3,1\\nyes,0,2\\n")["matrix"]
    [[3, 1], [0, 2]]
    """
    try:
        lines = csv.reader(io.StringIO(text))
        corner, *labels = next(lines)
        if corner != CORNER or not labels:
            return None
        cells = [
            (gold, predicted, int(count))
            for gold, (_, *counts) in enumerate(lines)
            for predicted, count in enumerate(counts)
            if count != "0"
        ]
    except (csv.Error, ValueError, StopIteration):
        return None
    return summarize_confusion(labels, cells)
