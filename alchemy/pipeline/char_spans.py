"""Spans of characters as spans of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alchemy.errors import AlchemyError


def token_spans(spans: object, places: Sequence[tuple[int, int]], row: Sequence[int], length: int) -> list[list[Any]]:
    """`[start, end, ..]` in characters of a text as the same in places of a row: of all tokens with a character in it.

    `places` are the characters `[start, end)` of each token, `row` tells where in the row the tokens stand that were
    not cut off, and `length` how many characters there are.

    >>> token_spans([[4, 7, "animal"]], [(0, 3), (3, 7), (7, 8)], row=[1, 2, 3], length=8)
    [[2, 3, 'animal']]
    """
    if not isinstance(spans, list | tuple):
        raise AlchemyError(f"{repr(spans)[:60]} is no list of spans", hint="it must be [[start, end, label], ..]")
    starts, ends = np.array(places, np.int64).reshape(-1, 2).T
    made = []
    for span in spans:
        start, end, *more = _checked(span, length)
        inside = np.flatnonzero((starts < end) & (ends > start))
        if not len(inside):
            hint = "does it mark blanks, or what the tokenizer leaves out?"
            raise AlchemyError(f"the span {span!r} has no tokens", hint=hint)
        if inside[-1] >= len(row):
            hint = "set a larger max_length, or leave such samples out with a Filter"
            raise AlchemyError(f"the span {span!r} lies beyond the end of the row", hint=hint)
        made.append([row[inside[0]], row[inside[-1]] + 1, *more])
    return made


def _checked(span: Any, length: int) -> Sequence[Any]:
    """A span that lies in a text of some length."""
    whole = isinstance(span, list | tuple) and len(span) >= 2 and {type(place) for place in span[:2]} == {int}
    if not whole or not 0 <= span[0] < span[1] <= length:
        hint = "it must be [start, end, label] in characters, the end not included"
        raise AlchemyError(f"the span {repr(span)[:60]} is none of a text of {length} characters", hint=hint)
    return span
