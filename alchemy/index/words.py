"""Split text into search terms: words, and pairs of characters in scripts without spaces."""

from __future__ import annotations

import re

# Chinese, Japanese and Korean characters are indexed one by one and in pairs, so that any two-character word is found
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
MAX_TERMS = 20_000  # per record
LONGEST = 64  # characters of a term


def split_words(text: str) -> list[str]:
    """Return the terms of a text, in order.

    >>> split_words("Focal-loss v2 焦点损失")
    ['focal', 'loss', 'v2', '焦', '焦点', '点', '点损', '损', '损失', '失']
    """
    found: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        if token[0] >= "\u3040" and re.match(f"[{_CJK}]", token):
            for place, letter in enumerate(token):
                found.append(letter)
                if place + 1 < len(token):
                    found.append(token[place : place + 2])
        else:
            found.append(token[:LONGEST])
        if len(found) > MAX_TERMS:
            break
    return found[:MAX_TERMS]


def index_text(text: str) -> str:
    """Return the text to store in the full-text index."""
    return " ".join(split_words(text))


def query_terms(text: str) -> list[str]:
    """Return the terms that a text must contain to match: for Chinese, all pairs, or the single character.

    >>> query_terms("焦点损失"), query_terms("失"), query_terms("Focal loss")
    (['焦点', '点损', '损失'], ['失'], ['focal', 'loss'])
    """
    found: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        if re.match(f"[{_CJK}]", token) and len(token) > 1:
            found += [token[place : place + 2] for place in range(len(token) - 1)]
        else:
            found.append(token[:LONGEST])
    return found
