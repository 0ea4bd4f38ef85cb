"""The kinds of numbers that a scope gathers: how two of a kind are joined, and what they come to."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from alchemy.errors import AlchemyError


def larger(one: float, other: float) -> float:
    """Not `max`: a NaN must be seen, wherever it stands."""
    return other if other > one or other != other else one


def smaller(one: float, other: float) -> float:
    return other if other < one or other != other else one


def newer(one: float, other: float) -> float:
    return other


KINDS: dict[str, Callable[[float, float], float]] = {
    "mean": operator.add, "sum": operator.add, "rate": operator.add, "max": larger, "min": smaller, "last": newer,
}  # fmt: skip


def value_of(kind: str, total: float, weight: float, seconds: float) -> float:
    """What a total comes to; a rate is over the seconds of its scope."""
    divisor = weight if kind == "mean" else seconds if kind == "rate" else 1.0
    return total / divisor if divisor else float("nan")


def number_of(name: str, value: Any) -> float:
    """The number that was logged, read from its device."""
    try:
        # item(): a tensor that still has its graph warns when it is made a float directly
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        text = f"the metric {name!r} must be a single number, not {type(value).__name__} {str(value)[:60]!r}"
        raise AlchemyError(text, hint="log the sum of what it holds, and the count as the weight") from error
