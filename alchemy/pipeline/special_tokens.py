"""Templates that add special tokens to one or two token sequences and truncate long sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.text import Tokenizer
from alchemy.text.base import ROLES


class _Slot(NamedTuple):
    """One element of a template: a text (`$A`, `$B`) or a token id, and its segment."""

    text: str
    token: int | None
    segment: int


class _Row(NamedTuple):
    """The output of a template: ids, segment ids and a mask of the tokens of the first text."""

    ids: np.ndarray
    segments: np.ndarray
    own: np.ndarray


class Template:
    """Adds special tokens to texts; `cuts` lists the truncation strategies to suggest in error messages."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str,
        *,
        pair: bool = False,
        max_length: int = 0,
        long: str = "refuse",
        cuts: Sequence[str] = ("longest_first", "only_first", "only_second"),
    ) -> None:
        self.max_length, self.long, self.cuts = max_length, long, cuts
        self.shortened = 0  # number of truncated samples
        self.slots = [_parse_slot(word, tokenizer) for word in (template or ("$A $B:1" if pair else "$A")).split()]
        self._check(pair)
        self.room = max_length - sum(slot.token is not None for slot in self.slots)
        if max_length and self.room < 1:
            raise AlchemyError(f"max_length = {max_length} leaves no room for text between the special tokens")

    def __call__(self, rows: dict[str, list[int]]) -> _Row:
        """Insert the ids of `$A` and `$B` into the template."""
        if self.max_length and sum(map(len, rows.values())) > self.room:
            self._truncate(rows)
        parts = [rows[slot.text] if slot.token is None else [slot.token] for slot in self.slots]
        ids = np.array([token for part in parts for token in part], np.int64)
        lengths = list(map(len, parts))
        segments = np.repeat([slot.segment for slot in self.slots], lengths)
        return _Row(
            ids, segments, np.repeat([slot.text == "$A" and slot.token is None for slot in self.slots], lengths)
        )

    @property
    def around(self) -> tuple[int, int]:
        """Number of special tokens before and after the first text."""
        place = next(place for place, slot in enumerate(self.slots) if slot.token is None)
        return place, len(self.slots) - place - 1

    def _truncate(self, rows: dict[str, list[int]]) -> None:
        """Truncate the rows to the maximum length."""
        first, second = (len(rows.get(key, ())) for key in ("$A", "$B"))
        excess = first + second - self.room
        if self.long == "refuse":
            cuts = " or ".join(repr(cut) for cut in self.cuts if "$B" in rows or cut != "only_second")
            raise AlchemyError(
                f"a text has {self.max_length + excess} tokens, more than max_length = {self.max_length}",
                hint=f"set long to {cuts}, or increase max_length" if cuts else "increase max_length",
            )
        self.shortened += 1
        lost = {"only_first": (excess, 0), "only_second": (0, excess)}.get(self.long) or split_excess(
            first, second, excess
        )
        for key, size, count in zip(("$A", "$B"), (first, second), lost):
            if count > size:
                text = (
                    f"a text is {excess} tokens too long, but {key} has only {size}, so {self.long} cannot truncate it"
                )
                raise AlchemyError(text, hint='set long = "longest_first"')
            if count:
                rows[key] = rows[key][: size - count]

    def _check(self, pair: bool) -> None:
        words = [slot.text for slot in self.slots if slot.token is None]
        if sorted(words) != (["$A", "$B"] if pair else ["$A"]):
            hint = "use '$A' once, and '$B' once if `pair` is set: 'bos $A eos $B:1 eos:1'"
            raise AlchemyError(f"invalid texts in the template: {', '.join(words) or 'none'}", hint=hint)


def split_excess(first: int, second: int, excess: int) -> tuple[int, int]:
    """Return how many tokens to cut: from the longer text until the lengths match, then from both, as in transformers.

    >>> split_excess(5, 2, 2), split_excess(5, 2, 4), split_excess(2, 5, 4), split_excess(3, 3, 3)
    ((2, 0), (3, 1), (1, 3), (2, 1))
    """
    longer = min(abs(first - second), excess)
    rest = excess - longer
    # if the remainder is odd, the text that was shorter loses one more
    return (longer + rest // 2, rest - rest // 2) if first > second else (rest - rest // 2, longer + rest // 2)


def _parse_slot(word: str, tokenizer: Tokenizer) -> _Slot:
    name, colon, segment = word.rpartition(":")
    if not (colon and name and segment.isascii() and segment.isdecimal() and len(segment) < 10):
        name, segment = word, "0"
    if name in ("$A", "$B"):
        return _Slot(name, None, int(segment))
    token = getattr(tokenizer, name) if name in ROLES else tokenizer.id_of(name)
    if token is None:
        there = ", ".join(role for role in ROLES if getattr(tokenizer, role) is not None)
        raise AlchemyError(
            f"the template contains {name!r}, but {type(tokenizer).__name__} has no such token",
            hint=f"use a token of the vocabulary, or one of {there}; $A is the text",
        )
    return _Slot(name, token, int(segment))
