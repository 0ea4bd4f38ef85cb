"""Where a record keeps the tokenizers that made the ids of its model."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote


def tokenizer_folder(record: str | Path, field: str) -> Path:
    """The folder of the tokenizer of a field.

    >>> tokenizer_folder("records/x", "../ids").as_posix()
    'records/x/tokenizer/%2E%2E%2Fids'
    """
    return Path(record) / "tokenizer" / quote(field, safe="").replace(".", "%2E")  # "..", too, is a folder of its own
