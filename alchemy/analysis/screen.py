"""The terminal that text is drawn for: its size, its abilities, and drawing over what it shows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Screen(NamedTuple):
    """A terminal, or a file that gets the same text without colors."""

    columns: int
    rows: int
    color: bool
    unicode: bool
    live: bool  # whether text can be overwritten


def measure_screen() -> Screen:
    """Return the size and the abilities of standard output at this moment."""
    size = shutil.get_terminal_size()
    live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    color = live and not os.environ.get("NO_COLOR")
    unicode = (sys.stdout.encoding or "ascii").lower().startswith("utf")
    return Screen(max(size.columns, 1), max(size.lines, 1), color, unicode, live)


def paint(lines: Sequence[str]) -> str:
    """Return the text that draws lines over what a terminal shows, from its top; the cursor ends below them.

    Each line erases only what follows it, so that nothing flickers.
    """
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"
