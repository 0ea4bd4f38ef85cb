"""A separate project for each test of the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.cache.chains import (
    CALLS,
    WORDS,
    forget,
    write,
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with data and code; every test has its own modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write("train.jsonl", '{"text": "a b"}\n{"text": "c"}\n')
    write("kept/__init__.py", "")
    write("kept/clean.py", "def clean(text):\n    return text\n")
    write("kept/words.py", WORDS)
    CALLS.clear()
    yield
    forget()
