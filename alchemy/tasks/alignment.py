"""Word and token alignments between a source and its translation, derived from attention weights."""

# T tokens of a text, S tokens of its source; both end with EOS

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from alchemy.text import Tokenizer

Unit = Literal["", "words", "tokens"]
Pair = tuple[int, int]  # indices into the source and into the text


def align_tokens(weights_TS: Tensor) -> list[Pair]:
    """Align each token of a text with the source token that it attends to most, excluding EOS tokens."""
    seen_TS = weights_TS[:-1, :-1]
    return [(place, number) for number, place in enumerate(seen_TS.argmax(1).tolist())] if seen_TS.shape[1] else []


def align_words(pairs: Sequence[Pair], source: Sequence[int | None], text: Sequence[int | None]) -> list[Pair]:
    """Convert token pairs to unique word pairs."""
    found = {(source[one], text[other]) for one, other in pairs}
    return sorted((one, other) for one, other in found if one is not None and other is not None)


def word_indices(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int | None]:
    """Return the index of the whitespace-separated word that each token belongs to, or None for a whitespace token.

    This decodes growing prefixes, since not every tokenizer provides offsets.
    """
    grown = [len(tokenizer.decode(ids[: place + 1]).split()) for place in range(len(ids))]
    return [max(0, count - 1) if tokenizer.decode([token]).strip() else None for count, token in zip(grown, ids)]
