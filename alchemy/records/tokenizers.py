"""Where a record keeps the tokenizers that made the ids of its model."""

from __future__ import annotations

import re
from pathlib import Path


def tokenizer_folder(record: str | Path, field: str) -> Path:
    """The folder of the tokenizer of a field.

    >>> tokenizer_folder("records/x", "src/ids").as_posix()
    'records/x/tokenizer/src_ids'
    """
    return Path(record) / "tokenizer" / re.sub(r"[^\w-]", "_", field)
