"""Pictures of an evaluation, as png: which answer was given for which, and numbers beside those that are true."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import Any

from alchemy.optional_packages import import_package

NAMED = 60  # classes whose names can be read in a picture
COUNTED = 30  # classes whose counts can


def draw_confusion(names: Sequence[str], counts: Any, legend: str) -> bytes:
    """A square for each pair of gold label (row) and answer (column), the darker the larger its share of the row.

    Where no font has the characters of the names, labels are told by their number in the file `legend`.
    """
    shares = counts / counts.sum(axis=1, keepdims=True).clip(1)
    side = min(2.5 + 0.4 * len(names), 20)
    figure, axes = _figure((side, side))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    family = font_for("".join(names))
    shown = [_shorten(name) for name in names] if family else [str(number + 1) for number in range(len(names))]
    note = "" if family else f" (the lines of {legend})"
    axes.set_xlabel(f"said{note}")
    axes.set_ylabel(f"gold{note}")
    if len(names) <= NAMED:
        # a name is no formula, whatever it has between dollars
        style = {"parse_math": False, "fontfamily": family or None}
        axes.set_xticks(range(len(names)), shown, rotation=90, **style)
        axes.set_yticks(range(len(names)), shown, **style)
    if len(names) <= COUNTED:
        for row, column in zip(*counts.nonzero()):
            color = "white" if shares[row, column] > 0.5 else "black"
            text = axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=color)
            text.set_in_layout(False)  # inside its square; asking each for its room takes most of the time
    return _png(figure)


def draw_numbers(gold: Sequence[float], said: Sequence[float]) -> bytes:
    """A point for each answer; right ones are on the line."""
    figure, axes = _figure((5, 5))
    axes.scatter(gold, said, s=8, alpha=0.5)
    low, high = min((*gold, *said)), max((*gold, *said))
    axes.plot([low, high], [low, high], color="grey", linewidth=1)
    axes.set_xlabel("gold")
    axes.set_ylabel("said")
    return _png(figure)


def _shorten(name: str, most: int = 24) -> str:
    """A name for the edge of a picture: one line, not too long.

    >>> _shorten("a very long name of a label\\nin lines")
    'a very long name of a l…'
    """
    line = " ".join(name.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def font_for(text: str) -> str:
    """A font that has all characters of a text: the usual one if it does; empty where none is installed."""
    return _font_for(frozenset(text + "…") - frozenset(" \t\n\r"))


@functools.lru_cache
def _font_for(characters: frozenset[str]) -> str:
    wanted, fonts = set(map(ord, characters)), import_package("matplotlib.font_manager", "a picture")
    usual = fonts.findfont("DejaVu Sans")
    for path, name in ((usual, "DejaVu Sans"), *sorted((row.fname, row.name) for row in fonts.fontManager.ttflist)):
        # the one of last resort has a box for every character
        if not name.startswith((".", "Last")) and wanted <= _characters_of(path):
            return name
    return ""


def _characters_of(path: str) -> set[int]:
    try:
        return set(import_package("matplotlib.ft2font", "a picture").FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # a file that is no longer there, or no font
        return set()


def _figure(size: tuple[float, float]) -> tuple[Any, Any]:
    # without pyplot: no window, no backend to be chosen, nothing kept between two pictures
    figure = import_package("matplotlib.figure", "a picture").Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()
