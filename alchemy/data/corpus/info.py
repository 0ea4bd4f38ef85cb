"""Corpus statistics and verification."""

from __future__ import annotations

from typing import Any

import numpy as np

from alchemy.data.corpus.layout import REBUILD, corpus_path
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.errors import AlchemyError
from alchemy.files import hash_file

BINS = 12
LONGEST = 5
CHUNK = 2**24  # number of ids checked at a time


def collect_stats(corpus: Corpus) -> dict[str, Any]:
    """Return the statistics of a corpus as JSON values."""
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
    """Read a whole corpus; raise if a file was modified or an id is not in the vocabulary."""
    manifest = corpus.manifest
    for begin in range(0, manifest.tokens, CHUNK):
        highest = int(corpus.ids[begin : begin + CHUNK].max())
        if highest >= manifest.vocabulary:
            text = f"{corpus.path} contains the id {highest:,}, but the largest valid id is {manifest.vocabulary - 1:,}"
            raise AlchemyError(text, hint=REBUILD)
    for ending, digest in manifest.files.items():
        if hash_file(corpus_path(corpus.path, ending)) != digest:
            raise AlchemyError(f"{corpus_path(corpus.path, ending)} was modified after it was written", hint=REBUILD)
    return "unmodified" if manifest.files else "every id is in the vocabulary; no hashes were stored"


def histogram(lengths: np.ndarray) -> list[dict[str, int]]:
    """Count sentences by length, in at most twelve bins of equal, round width.

    >>> histogram(np.array([1, 2, 2, 30]))
    [{'from': 0, 'to': 4, 'sentences': 3}, {'from': 30, 'to': 34, 'sentences': 1}]
    """
    longest = int(lengths.max(initial=0))
    width = next(step * 10**power for power in range(20) for step in (1, 2, 5) if step * 10**power * BINS > longest)
    counts = np.bincount(lengths // width)
    rows = [{"from": i * width, "to": (i + 1) * width - 1, "sentences": int(n)} for i, n in enumerate(counts)]
    return [row for row in rows if row["sentences"]]
