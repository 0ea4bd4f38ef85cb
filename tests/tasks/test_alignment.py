"""Alignments: tokens of every kind of tokenizer know their words, and end tokens are not aligned."""

from __future__ import annotations

import pytest
import torch

from alchemy.tasks.alignment import align_tokens, align_words, word_indices
from alchemy.text import BPE, Characters, SubwordNMT, Tokenizer, Words

TEXT = "ein hund läuft"
CODES = b"#version: 0.2\nh u\nhu n\ni n</w>\n"


def tokenizers() -> dict[str, Tokenizer]:
    return {
        "words": Words.train([TEXT]),
        "characters": Characters.train([TEXT]),
        "bpe": BPE.train([TEXT], size=262, min_frequency=1),
        "subword-nmt": SubwordNMT.train([TEXT], codes=CODES),
    }


@pytest.mark.parametrize("kind", tokenizers())
def test_every_token_knows_its_word(kind: str) -> None:
    tokenizer = tokenizers()[kind]
    ids = tokenizer.encode(TEXT)
    found = word_indices(tokenizer, ids)
    for number, word in enumerate(TEXT.split()):
        pieces = [token for token, place in zip(ids, found, strict=True) if place == number]
        assert tokenizer.decode(pieces).strip() == word
    assert kind != "characters" or found[3] is None  # the space belongs to no word


def test_each_token_has_the_one_that_it_looks_at_most_and_no_end() -> None:
    weights_TS = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [0.0, 0.0, 1.0]])
    assert align_tokens(weights_TS) == [(1, 0), (0, 1)]
    assert align_tokens(torch.ones(3, 1)) == []  # for a source that contains only the end token
    assert align_tokens(torch.ones(1, 3)) == []


def test_the_pairs_of_a_word_are_those_of_its_tokens() -> None:
    assert align_words([(0, 0), (1, 1), (3, 2), (2, 3)], [0, 0, None, 1], [0, 0, 1, 2]) == [(0, 0), (1, 1)]
