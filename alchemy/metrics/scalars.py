"""Extract single numbers from values, and format numbers for display."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

from alchemy.errors import AlchemyError


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are single numbers, as floats: Python and NumPy numbers, 0-d tensors and arrays.

    >>> numbers_in({"f1": 1, "ok": True, "confusion": [[1, 2]]})
    {'f1': 1.0}
    """
    found = {}
    for name, value in values.items():
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()
        # bool is a number in Python, but not a score
        if isinstance(value, Real) and not isinstance(value, bool):
            try:
                found[name] = float(value)
            except OverflowError as error:
                raise overflow_error(name) from error
    return found


def show(value: float) -> str:
    """Format a number: integers in full, other numbers with four significant digits.

    >>> show(10000), show(10000.0), show(0.912345), show(1e30)
    ('10000', '10000', '0.9123', '1e+30')
    """
    return f"{value:.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"


def show_scores(scores: Mapping[str, float], best: Collection[str] = (), width: int = 56) -> str:
    """Format scores on one line of about `width` characters, giving precedence to new best scores and the loss.

    >>> show_scores({"accuracy": 0.74, "loss": 0.53}, best=["accuracy"])
    'accuracy 0.74 (best)  loss 0.53'
    >>> show_scores({"a": 1, "b": 0, "f1": 0.25, "loss": 0.5}, best=["f1"], width=30)
    'a 1  f1 0.25 (best)  loss 0.5'
    """
    texts = {name: f"{name} {show(value)}{' (best)' * (name in best)}" for name, value in scores.items()}
    kept: set[str] = set()
    for name in sorted(texts, key=lambda name: (name not in best, name != "loss")):
        if not kept or sum(len(texts[other]) + 2 for other in kept) + len(texts[name]) <= width:
            kept.add(name)
    return "  ".join(text for name, text in texts.items() if name in kept)


def show_epoch(epoch: int, epochs: float | None = None) -> str:
    """Format an epoch, counting from 1; rows and files count epochs from 0.

    >>> show_epoch(0, 3), show_epoch(2, 2.5), show_epoch(4)
    ('1/3', '3/3', '5')
    """
    return f"{epoch + 1}" if epochs is None else f"{epoch + 1}/{math.ceil(epochs)}"


def overflow_error(name: str) -> AlchemyError:
    """Return the error for a number beyond the largest float (1.8e308)."""
    text = f"the metric {name!r} is too large for a float"
    return AlchemyError(text, hint="log its logarithm, or check how it is computed")
