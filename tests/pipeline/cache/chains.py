"""Chains for the tests of the cache, built from tables and in Python, and their project."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alchemy.pipeline import ItrDataPipeline, build_datapipes
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.lst import SequenceWrapper
from alchemy.text import Words

CALLS: list[Any] = []  # the arguments of the functions below

WORDS = """
from functools import lru_cache

def words(sample, sep=" "):
    from .clean import clean
    return {**sample, "words": clean(sample["text"]).split(sep)}

@lru_cache
def cached(text):
    return text.upper() if text in {"b", "a"} else sorted(text, key=lambda sign: -ord(sign))
"""


PIPES: list[dict[str, Any]] = [
    {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": ["*.jsonl"]},
    {"type": "alchemy.pipeline.itr.JsonlOpener"},
    {"type": "alchemy.pipeline.itr.Map", "fn": "kept.words.words", "args": {"sep": " "}},
    {"type": "alchemy.pipeline.cache.Cache"},
]


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kept"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def built(**options: Any) -> Cache:
    """Build a chain as another process would."""
    forget()
    first, opener, words, last = PIPES
    words = {**words, "args": {"sep": options.pop("sep", " ")}}
    kept: Cache = build_datapipes([first, opener, words, {**last, **options}])
    return kept


def upper(sample: str, **more: Any) -> str:
    CALLS.append(sample)
    return sample.upper()


class Upper:
    """A callable with options."""

    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, sample: str) -> str:
        CALLS.append(sample)
        return sample.upper()


def encoded(sample: str, tokenizer: Words) -> list[int]:
    CALLS.append(sample)
    return tokenizer.encode(sample)


def names(*texts: str) -> SequenceWrapper:
    return SequenceWrapper(list(texts) or ["a", "b"])


def tokenizer(*words: str) -> Any:
    return functools.partial(encoded, tokenizer=Words.train([" ".join(words)]))


class Folder(ItrDataPipeline):
    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root

    def __iter__(self) -> Iterator[str]:
        return (path.read_text() for path in sorted(Path(self.root).iterdir()))
