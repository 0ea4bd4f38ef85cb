"""Locate the tokenizers of a record."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote


def tokenizer_folder(record: str | Path, field: str) -> Path:
    """Return the folder of a field's tokenizer.

    >>> tokenizer_folder("records/x", "../ids").as_posix()
    'records/x/tokenizer/%2E%2E%2Fids'
    """
    return Path(record) / "tokenizer" / quote(field, safe="").replace(".", "%2E")  # also escapes ".."
