"""Print tables that fit the terminal, and escape cells for CSV."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence

from alchemy.errors import display_width, printable

NARROWEST = 12  # width to which a wide column may shrink
GAP = "  "


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], wide: Collection[str] = ()) -> None:
    """Print a table; on a terminal, `wide` columns are shortened until it fits."""
    cells = [[_one_line(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    if sys.stdout.isatty():
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - shutil.get_terminal_size().columns
        shrinkable = sorted((place for place, name in enumerate(columns) if name in wide), key=lambda p: -widths[p])
        for place in shrinkable:
            cut = min(max(0, excess), max(0, widths[place] - NARROWEST))
            widths[place] -= cut
            excess -= cut
    for row in cells:
        line = GAP.join(_fit(cell, width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip())


def safe_cell(value: object) -> object:
    """Return a CSV cell that a spreadsheet does not evaluate as a formula.

    >>> safe_cell("=1+1"), safe_cell(-0.5), safe_cell("-0.5")
    ("'=1+1", -0.5, '-0.5')
    """
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _fit(text: str, width: int) -> str:
    """Pad or cut a text to a display width."""
    if display_width(text) > width:
        kept = ""
        for letter in text:
            if display_width(kept + letter) > width - 1:
                break
            kept += letter
        text = f"{kept}…"
    return text + " " * (width - display_width(text))
