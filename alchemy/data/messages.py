"""Shorten names and values for messages."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxlong = _repr.maxother = 80


def shorten(value: object) -> str:
    """Return the repr of a value for a message, shortened in the middle if it is long."""
    return _repr.repr(value)


def in_short(names: Iterable[str], most: int = 12) -> str:
    """Join names as `a, b, c`, showing at most `most` of them."""
    names = list(names)
    return ", ".join(names[:most]) + (f", .. ({len(names)} in total)" if len(names) > most else "")
