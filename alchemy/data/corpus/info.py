"""What is in a corpus: counts, how long its sentences are, and which are the longest."""

from __future__ import annotations

from typing import Any

import numpy as np

from alchemy.data.corpus.layout import AGAIN, beside
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.errors import AlchemyError
from alchemy.files import hash_file

BINS = 12
LONGEST = 5
CHUNK = 2**24  # ids that are looked at together


def facts(corpus: Corpus) -> dict[str, Any]:
    """Numbers and short lists, as JSON has them."""
    manifest, lengths = corpus.manifest, corpus.lengths
    last = np.argsort(lengths, kind="stable")[::-1][:LONGEST].tolist()
    return {
        "sentences": manifest.sentences,
        "tokens": manifest.tokens,
        "vocabulary": manifest.vocabulary,
        "dtype": manifest.dtype,
        "unknown": manifest.unknown,
        "unknown_rate": manifest.unknown / max(manifest.tokens, 1),
        "mean": float(lengths.mean()) if len(lengths) else 0.0,
        "median": float(np.median(lengths)) if len(lengths) else 0.0,
        "histogram": histogram(lengths),
        "longest": [{"sentence": i, "tokens": int(lengths[i]), "where": corpus.where(i)} for i in last],
        "sources": manifest.sources,
        "tokenizer": manifest.tokenizer,
    }


def verify(corpus: Corpus) -> str:
    """Reads all of a corpus; raises where a file is not as it was written, or an id is none of the vocabulary."""
    manifest = corpus.manifest
    for begin in range(0, manifest.tokens, CHUNK):
        highest = int(corpus.ids[begin : begin + CHUNK].max())
        if highest >= manifest.vocabulary:
            text = f"{corpus.path} has the id {highest:,}, and its vocabulary ends at {manifest.vocabulary - 1:,}"
            raise AlchemyError(text, hint=AGAIN)
    for ending, digest in manifest.files.items():
        if hash_file(beside(corpus.path, ending)) != digest:
            raise AlchemyError(f"{beside(corpus.path, ending)} is not as it was written", hint=AGAIN)
    return "as they were written" if manifest.files else "every id is in the vocabulary; no hash was kept"


def histogram(lengths: np.ndarray) -> list[dict[str, int]]:
    """Sentences by length, in at most twelve steps of the same round width.

    >>> histogram(np.array([1, 2, 2, 30]))
    [{'from': 0, 'to': 4, 'sentences': 3}, {'from': 30, 'to': 34, 'sentences': 1}]
    """
    longest = int(lengths.max(initial=0))
    width = next(step * 10**power for power in range(20) for step in (1, 2, 5) if step * 10**power * BINS > longest)
    counts = np.bincount(lengths // width)
    rows = [{"from": i * width, "to": (i + 1) * width - 1, "sentences": int(n)} for i, n in enumerate(counts)]
    return [row for row in rows if row["sentences"]]
