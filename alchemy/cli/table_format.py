"""Print tables that fit the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence

from alchemy.errors import display_width, printable

NARROWEST = 12  # width to which a wide column may shrink
GAP = "  "


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    wide: Collection[str] = (),
    styles: Mapping[tuple[int, int], int] = {},
) -> None:
    """Print a table; on a terminal, `wide` columns are shortened until it fits.

    `styles` maps the row and column of a cell to an ANSI style, such as 1 for bold, which is used on a terminal only.
    """
    cells = [[_one_line(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    if sys.stdout.isatty():
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - shutil.get_terminal_size().columns
        shrinkable = sorted((place for place, name in enumerate(columns) if name in wide), key=lambda p: -widths[p])
        for place in shrinkable:
            cut = min(max(0, excess), max(0, widths[place] - NARROWEST))
            widths[place] -= cut
            excess -= cut
    styles = styles if sys.stdout.isatty() else {}
    for number, row in enumerate(cells, start=-1):  # the header is row -1
        fitted = [_fit(cell, width) for cell, width in zip(row, widths, strict=True)]
        line = GAP.join(_paint(text, styles.get((number, place))) for place, text in enumerate(fitted))
        print(line.rstrip())


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _paint(text: str, style: int | None) -> str:
    """Apply an ANSI style to a padded text, but not to its padding."""
    if style is None:
        return text
    shown = text.rstrip()
    return f"\x1b[{style}m{shown}\x1b[0m{text[len(shown) :]}"


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
