"""Which words of a source the words of a text were written for, by what the network looked at."""

# T tokens of a text, S of its source; the last token of either is its end

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from alchemy.text import Tokenizer

Unit = Literal["", "words", "tokens"]
Pair = tuple[int, int]  # the number of one of the source, and of one of the text, both from 0


def looked_at(weights_TS: Tensor) -> list[Pair]:
    """For each token of a text the one of its source that it looks at most; ends have no part in it."""
    seen_TS = weights_TS[:-1, :-1]
    return [(place, number) for number, place in enumerate(seen_TS.argmax(1).tolist())] if seen_TS.shape[1] else []


def between_words(pairs: Sequence[Pair], source: Sequence[int | None], text: Sequence[int | None]) -> list[Pair]:
    """The pairs of the words that tokens are of; a pair of many tokens is one."""
    found = {(source[one], text[other]) for one, other in pairs}
    return sorted((one, other) for one, other in found if one is not None and other is not None)


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int | None]:
    """The number of the word, between blanks of the text, that each token is of; None for one that is a blank itself.

    As texts show it that grow token by token: not every tokenizer knows the places of its tokens.
    """
    grown = [len(tokenizer.decode(ids[: place + 1]).split()) for place in range(len(ids))]
    return [max(0, count - 1) if tokenizer.decode([token]).strip() else None for count, token in zip(grown, ids)]
