"""Print tables that fit the terminal."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence

from alchemy.errors import display_width, printable

NARROWEST = 12  # width to which a wide column may shrink
GAP = "  "


Styles = Mapping[tuple[int, int], int]  # row and column of a cell -> ANSI style, such as 1 for bold


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], wide: Collection[str] = (), styles: Styles = {}
) -> None:
    """Print a table; on a terminal, `wide` columns are shortened until it fits, and `styles` are applied."""
    print("\n".join(fit_table(columns, rows, wide, styles=styles)[0]))


def fit_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    wide: Collection[str] = (),
    optional: Sequence[str] = (),
    styles: Styles = {},
) -> tuple[list[str], list[str]]:
    """Return the lines of a table, and the columns that were left out.

    On a terminal, `wide` columns are shortened, then `optional` columns are left out one by one until the table fits.
    """
    cells = [[_one_line(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    shown, left_out = list(range(len(columns))), []
    if sys.stdout.isatty():
        space = shutil.get_terminal_size().columns
        shrinkable = [place for place, name in enumerate(columns) if name in wide]
        for name in optional:
            least = sum(min(widths[p], NARROWEST) if p in shrinkable else widths[p] for p in shown)
            if least + len(GAP) * (len(shown) - 1) <= space:
                break
            if name in columns:
                shown.remove(columns.index(name))
                left_out.append(name)
        _shrink(widths, shown, shrinkable, space)
    styles = styles if sys.stdout.isatty() else {}
    lines = [
        GAP.join(_paint(_fit(row[place], widths[place]), styles.get((number, place))) for place in shown).rstrip()
        for number, row in enumerate(cells, start=-1)  # the header is row -1
    ]
    return lines, left_out


def _paint(text: str, style: int | None) -> str:
    """Apply an ANSI style to a padded text, but not to its padding."""
    if style is None:
        return text
    shown = text.rstrip()
    return f"\x1b[{style}m{shown}\x1b[0m{text[len(shown) :]}"


def _shrink(widths: list[int], shown: Sequence[int], shrinkable: Collection[int], space: int) -> None:
    """Shorten the widest of the shrinkable columns until the table fits, or all have their least width."""
    while (excess := sum(widths[p] for p in shown) + len(GAP) * (len(shown) - 1) - space) > 0:
        candidates = sorted((widths[place] for place in shown if place in shrinkable), reverse=True)
        if not candidates or candidates[0] <= NARROWEST:
            return
        # level the widest column with the next one
        step = candidates[0] - max(NARROWEST, candidates[1] if len(candidates) > 1 else 0)
        place = next(p for p in shown if p in shrinkable and widths[p] == candidates[0])
        widths[place] -= min(excess, max(1, step))


def _one_line(text: str) -> str:
    """Replace line breaks and the like with spaces; several spaces in a row stay, as in a path."""
    return printable(re.sub(r"[^\S ]+", " ", text).strip())


def _fit(text: str, width: int) -> str:
    """Pad or cut a text to a display width."""
    if display_width(text) > width:
        kept, used = "", 0
        for letter in text:
            used += display_width(letter)
            if used > width - 1:
                break
            kept += letter
        text = f"{kept}…"
    return text + " " * (width - display_width(text))
