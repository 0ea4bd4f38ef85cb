"""Which of the values that parts hand around are single numbers, and how numbers are shown to people."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

from alchemy.errors import AlchemyError


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are single numbers, as floats: Python's, numpy's, and tensors or arrays without dimensions.

    >>> numbers_in({"f1": 1, "ok": True, "confusion": [[1, 2]]})
    {'f1': 1.0}
    """
    found = {}
    for name, value in values.items():
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()
        # bool is a number to Python, but no score to a reader
        if isinstance(value, Real) and not isinstance(value, bool):
            try:
                found[name] = float(value)
            except OverflowError as error:
                raise too_large(name) from error
    return found


def show(value: float) -> str:
    """A number for people: a count in full, any other with four digits.

    >>> show(10000), show(10000.0), show(0.912345), show(1e30)
    ('10000', '10000', '0.9123', '1e+30')
    """
    return f"{value:.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"


def show_scores(scores: Mapping[str, float], best: Collection[str] = (), most: int = 8) -> str:
    """Scores on one line, those in `best` marked; of more than `most` the best and the first ones.

    >>> show_scores({"loss": 0.53, "accuracy": 0.74}, best=["accuracy"])
    'loss 0.53  accuracy 0.74 (best)'
    >>> show_scores({"loss": 0.5, "a": 1, "b": 0, "f1": 0.25}, best=["f1"], most=2)
    'loss 0.5  f1 0.25 (best)  and 2 more'
    """
    kept = sorted(scores, key=lambda name: name not in best)[:most]
    shown = [f"{name} {show(scores[name])}{' (best)' * (name in best)}" for name in scores if name in kept]
    more = [f"and {len(scores) - most} more"] if len(scores) > most else []
    return "  ".join([*shown, *more])


def show_epoch(epoch: int, epochs: float | None = None) -> str:
    """An epoch as people count, from 1; rows and files count from 0.

    >>> show_epoch(0, 3), show_epoch(2, 2.5), show_epoch(4)
    ('1/3', '3/3', '5')
    """
    return f"{epoch + 1}" if epochs is None else f"{epoch + 1}/{math.ceil(epochs)}"


def too_large(name: str) -> AlchemyError:
    """The error for an integer, or a fraction, beyond the largest float (1.8e308)."""
    text = f"the metric {name!r} is a number too large for a float"
    return AlchemyError(text, hint="log its logarithm, or check how it is computed")
