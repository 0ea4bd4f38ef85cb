"""Which of the values that parts hand around are single numbers."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any


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
            found[name] = float(value)
    return found
