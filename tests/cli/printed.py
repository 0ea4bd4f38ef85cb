"""Parse the `--json` output of a command."""

from __future__ import annotations

import json
from typing import Any


def objects(text: str) -> list[dict[str, Any]]:
    """Return one object per line."""
    return [json.loads(line) for line in text.splitlines()]
