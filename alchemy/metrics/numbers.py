"""Which of the values that parts hand around are single numbers."""

from __future__ import annotations

from collections.abc import Mapping
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


def too_large(name: str) -> AlchemyError:
    """The error for an integer, or a fraction, beyond the largest float (1.8e308)."""
    text = f"the metric {name!r} is a number too large for a float"
    return AlchemyError(text, hint="log its logarithm, or check how it is computed")
