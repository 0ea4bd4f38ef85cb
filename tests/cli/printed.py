"""What a command prints with `--json`."""

from __future__ import annotations

import json
from typing import Any


def objects(text: str) -> list[dict[str, Any]]:
    """One for each line."""
    return [json.loads(line) for line in text.splitlines()]
