"""Bounds of what layers are given, told by name before anything is built."""

from __future__ import annotations

from collections.abc import Sequence

from alchemy.errors import AlchemyError, did_you_mean


def sizes(**told: int) -> None:
    """An error where a size is no whole number from 1 on."""
    for name, value in told.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise AlchemyError(f"{name} must be a whole number of at least 1, not {value!r}")


def shares(**told: float) -> None:
    """An error where a share is not from 0 to 1."""
    for name, value in told.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise AlchemyError(f"{name} must be a number from 0 to 1, not {value!r}")


def chosen(name: str, value: str, options: Sequence[str]) -> None:
    """An error where a choice is none of the options."""
    if value not in options:
        hint = did_you_mean(str(value), options)
        raise AlchemyError(f"{name} must be {', '.join(map(repr, options))}, not {value!r}", hint=hint)
