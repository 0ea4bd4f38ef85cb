"""Names and values as a message shows them, cut where it would get too long."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxlong = _repr.maxother = 80


def shorten(value: object) -> str:
    """A cell in a message, cut in the middle: it may be a whole book that stands in the wrong column."""
    return _repr.repr(value)


def in_short(names: Iterable[str], most: int = 12) -> str:
    """`a, b, c`, cut where a message would get too long."""
    names = list(names)
    return ", ".join(names[:most]) + (f", .. ({len(names)} in all)" if len(names) > most else "")
