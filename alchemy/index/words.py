"""Split text into search terms: words, and pairs of characters in scripts without spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Chinese, Japanese and Korean characters are indexed one by one and in pairs, so that any two-character word is found
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(r"[^\W_]+")
SHORTEST_PREFIX = 3  # letters of a term that matches longer words too
MAX_TERMS, MAX_SIZE = 20_000, 200_000  # terms and characters per record; PostgreSQL stores at most 1 MiB
LONGEST = 64  # characters of a term


def split_words(text: str) -> list[str]:
    """Return the distinct terms of a text, in order.

    >>> split_words("Focal-loss v2 焦点损失")
    ['focal', 'loss', 'v2', '焦', '焦点', '点', '点损', '损', '损失', '失']
    """
    found: dict[str, None] = {}
    size = 0
    for token in _tokens(text):
        for term in _split_token(token):
            if term not in found:
                found[term] = None
                size += len(term)
        if len(found) > MAX_TERMS or size > MAX_SIZE:
            break
    return list(found)[:MAX_TERMS]


def _tokens(text: str) -> Iterator[str]:
    """Yield the words of a text, and its runs of Chinese, Japanese or Korean characters."""
    for match in _WORD.finditer(text.lower()):
        if match[0].isascii():
            yield match[0]
        else:  # the pattern is compiled when it is needed: that takes milliseconds
            yield from re.findall(rf"[{_CJK}]+|[^{_CJK}]+", match[0])


def is_cjk(term: str) -> bool:
    return not term.isascii() and re.match(f"[{_CJK}]", term) is not None


def is_prefix(term: str) -> bool:
    """Return whether a term also matches longer words: `adam` matches `AdamW`, but `10` does not match `100`."""
    return len(term) >= SHORTEST_PREFIX and term.isalpha() and not is_cjk(term)


def _split_token(token: str) -> Iterator[str]:
    if not is_cjk(token):
        yield token[:LONGEST]
        return
    for place, letter in enumerate(token):
        yield letter
        if place + 1 < len(token):
            yield token[place : place + 2]


def query_terms(text: str) -> list[str]:
    """Return the terms that a text must contain to match: for Chinese, all pairs, or the single character.

    >>> query_terms("焦点损失"), query_terms("失"), query_terms("Focal loss")
    (['焦点', '点损', '损失'], ['失'], ['focal', 'loss'])
    """
    found: list[str] = []
    for token in _tokens(text):
        if is_cjk(token) and len(token) > 1:
            found += [token[place : place + 2] for place in range(len(token) - 1)]
        else:
            found.append(token[:LONGEST])
    return found
