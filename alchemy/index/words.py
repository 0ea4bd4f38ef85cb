"""Split text into search terms: words, and pairs of characters in scripts without spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Chinese, Japanese and Korean characters are indexed one by one and in pairs, so that any two-character word is found
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_CJK_TOKEN = re.compile(f"[{_CJK}]")
MAX_TERMS, MAX_SIZE = 20_000, 200_000  # terms and characters per record; PostgreSQL stores at most 1 MiB
LONGEST = 64  # characters of a term


def split_words(text: str) -> list[str]:
    """Return the distinct terms of a text, in order.

    >>> split_words("Focal-loss v2 焦点损失")
    ['focal', 'loss', 'v2', '焦', '焦点', '点', '点损', '损', '损失', '失']
    """
    found: dict[str, None] = {}
    size = 0
    for match in _TOKEN.finditer(text.lower()):
        for term in _split_token(match[0]):
            if term not in found:
                found[term] = None
                size += len(term)
        if len(found) > MAX_TERMS or size > MAX_SIZE:
            break
    return list(found)[:MAX_TERMS]


def _split_token(token: str) -> Iterator[str]:
    if not _CJK_TOKEN.match(token):
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
    for token in _TOKEN.findall(text.lower()):
        if _CJK_TOKEN.match(token) and len(token) > 1:
            found += [token[place : place + 2] for place in range(len(token) - 1)]
        else:
            found.append(token[:LONGEST])
    return found
