"""Bounds of the numbers that encoders and heads are given."""

from __future__ import annotations

from alchemy.errors import AlchemyError
from alchemy.pipeline.itr import at_least


def sizes(**told: int) -> None:
    """An error where a size is no whole number from 1 on, by its name."""
    for name, value in told.items():
        at_least(1, value, name)


def shares(**told: float) -> None:
    """An error where a share is not from 0 to 1, by its name."""
    for name, value in told.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise AlchemyError(f"{name} must be a number from 0 to 1, not {value!r}")
