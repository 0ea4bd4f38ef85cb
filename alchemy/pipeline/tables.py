"""Tables of numbers as text, aligned also where letters are wide."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

Table = Mapping[str, Mapping[str, float]]


def aligned(title: str, table: Table, most: int = 0) -> list[str]:
    """The lines of a table, one for each name; of a long one the `most` with the lowest F1 (0: all of them).

    >>> print("\\n".join(aligned("classes", {"体育": {"f1": 0.5, "support": 12}, "b": {"f1": 1.0, "support": 3}})))
    classes      f1  support
    体育     0.5000       12
    b        1.0000        3
    """
    rows = list(table.items())
    if most and len(rows) > most:
        rows = sorted(rows, key=lambda row: row[1].get("f1", 0.0))[:most]
        title = f"{title}, the lowest {most} of {len(table)}"
    heads = list(rows[0][1]) if rows else []
    lines = [[title, *heads], *([name, *map(cell, row.values())] for name, row in rows)]
    sizes = [max(map(width, column)) for column in zip(*lines)]
    return [
        "  ".join([filled(first, sizes[0]), *(text.rjust(size) for text, size in zip(rest, sizes[1:]))]).rstrip()
        for first, *rest in lines
    ]


def cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def filled(text: str, size: int) -> str:
    return text + " " * (size - width(text))


def width(text: str) -> int:
    """How many places a text takes in a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
