"""Convert character spans to token spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alchemy.errors import AlchemyError


def token_spans(spans: object, places: Sequence[tuple[int, int]], row: Sequence[int], length: int) -> list[list[Any]]:
    """Convert `[start, end, ..]` spans in characters to spans of the tokens that overlap them.

    `places` contains the character offsets `[start, end)` of each token, `row` contains the row positions of the tokens
    that were not truncated, and `length` is the number of characters in the text.

    >>> token_spans([[4, 7, "animal"]], [(0, 3), (3, 7), (7, 8)], row=[1, 2, 3], length=8)
    [[2, 3, 'animal']]
    """
    if not isinstance(spans, list | tuple):
        raise AlchemyError(
            f"expected a list of spans, got {repr(spans)[:60]}", hint="write it as [[start, end, label], ..]"
        )
    starts, ends = np.array(places, np.int64).reshape(-1, 2).T
    made = []
    for span in spans:
        start, end, *more = _check_span(span, length)
        inside = np.flatnonzero((starts < end) & (ends > start))
        if not len(inside):
            hint = "does it cover only whitespace, or characters that the tokenizer drops?"
            raise AlchemyError(f"the span {span!r} covers no tokens", hint=hint)
        if inside[-1] >= len(row):
            hint = "increase max_length, or drop such samples with a Filter"
            raise AlchemyError(f"the span {span!r} was truncated", hint=hint)
        made.append([row[inside[0]], row[inside[-1]] + 1, *more])
    return made


def _check_span(span: Any, length: int) -> Sequence[Any]:
    """Return the span; raise if it is not within a text of `length` characters."""
    whole = isinstance(span, list | tuple) and len(span) >= 2 and {type(place) for place in span[:2]} == {int}
    if not whole or not 0 <= span[0] < span[1] <= length:
        hint = "write it as [start, end, label] in characters, end exclusive"
        raise AlchemyError(f"the span {repr(span)[:60]} is invalid for a text of {length} characters", hint=hint)
    return span
