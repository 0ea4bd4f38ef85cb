"""Draw evaluation plots as PNG images: confusion matrices, scatter plots and attention maps."""

from __future__ import annotations

import functools
import io
import logging
from collections.abc import Sequence
from typing import Any

from alchemy.optional_packages import import_package

NAMED = 60  # up to this many classes, names are readable
COUNTED = 30  # up to this many classes, counts are readable


def draw_confusion(names: Sequence[str], counts: Any, legend: str) -> bytes:
    """Draw a confusion matrix, gold labels in rows and predictions in columns, normalized by row.

    If no installed font covers the label names, the axes show the line numbers of the labels in the `legend` file.
    """
    shares = counts / counts.sum(axis=1, keepdims=True).clip(1)
    side = min(2.5 + 0.4 * len(names), 20)
    figure, axes = _figure((side, side))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    family = font_for("".join(names))
    shown = [_shorten(name) for name in names] if family else [str(number + 1) for number in range(len(names))]
    note = "" if family else f" (line numbers of {legend})"
    axes.set_xlabel(f"predicted{note}")
    axes.set_ylabel(f"gold{note}")
    if len(names) <= NAMED:
        # dollar signs in a name must not be parsed as math
        style = {"parse_math": False, "fontfamily": family or None}
        axes.set_xticks(range(len(names)), shown, rotation=90, **style)
        axes.set_yticks(range(len(names)), shown, **style)
    if len(names) <= COUNTED:
        for row, column in zip(*counts.nonzero()):
            color = "white" if shares[row, column] > 0.5 else "black"
            text = axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=color)
            text.set_in_layout(False)  # always inside its cell; measuring each text would dominate the drawing time
    return _png(figure)


def draw_numbers(gold: Sequence[float], predicted: Sequence[float]) -> bytes:
    """Draw a scatter plot of predicted against gold values; perfect predictions lie on the diagonal."""
    figure, axes = _figure((5, 5))
    axes.scatter(gold, predicted, s=8, alpha=0.5)
    low, high = min((*gold, *predicted)), max((*gold, *predicted))
    axes.plot([low, high], [low, high], color="grey", linewidth=1)
    axes.set_xlabel("gold")
    axes.set_ylabel("predicted")
    return _png(figure)


def draw_attention(weights_QK: Any, rows: Sequence[str], columns: Sequence[str]) -> bytes:
    """Draw attention weights, with queries in rows and keys in columns."""
    figure, axes = _figure((min(2.5 + 0.25 * len(columns), 20), min(2 + 0.25 * len(rows), 20)))
    axes.imshow(weights_QK, cmap="Blues", vmin=0)
    family = font_for("".join((*rows, *columns)))
    style = {"parse_math": False, "fontfamily": family or None}
    if len(columns) <= NAMED:
        axes.set_xticks(range(len(columns)), list(map(_shorten, columns)), rotation=90, **style)
    if len(rows) <= NAMED:
        axes.set_yticks(range(len(rows)), list(map(_shorten, rows)), **style)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    return _png(figure)


def _shorten(name: str, most: int = 24) -> str:
    """Shorten a name to one line for an axis label.

    >>> _shorten("a very long name of a label\\nin lines")
    'a very long name of a l…'
    """
    line = " ".join(name.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def font_for(text: str) -> str:
    """Return a font that covers all characters of a text, preferably the default, or "" if none is installed."""
    return _font_for(frozenset(text + "…") - frozenset(" \t\n\r"))


@functools.lru_cache
def _font_for(characters: frozenset[str]) -> str:
    wanted, fonts = set(map(ord, characters)), import_package("matplotlib.font_manager", "a plot")
    usual = fonts.findfont("DejaVu Sans")
    for path, name in ((usual, "DejaVu Sans"), *sorted((row.fname, row.name) for row in fonts.fontManager.ttflist)):
        # a last-resort font has a placeholder box for every character
        if not name.startswith((".", "Last")) and wanted <= _characters_of(path):
            return name
    return ""


def _characters_of(path: str) -> set[int]:
    try:
        return set(import_package("matplotlib.ft2font", "a plot").FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # the file is gone, or not a font
        return set()


def _figure(size: tuple[float, float]) -> tuple[Any, Any]:
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # fonts without a regular weight are fine
    # without pyplot: no window, no backend selection, no global state
    figure = import_package("matplotlib.figure", "a plot").Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()
