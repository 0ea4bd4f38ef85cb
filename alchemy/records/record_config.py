"""Read the config of a record, `cfg.toml`, as plain values: nothing is resolved or built."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alchemy.files import read_bytes

LARGEST_CONFIG = 4 * 2**20  # bytes


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config of a record as plain values, or an empty table if it cannot be read."""
    try:
        return tomllib.loads(read_bytes(folder / "cfg.toml", LARGEST_CONFIG).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def flatten_config(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of a config. Tables in a list are named by their type, or by position.

    A type that occurs again gets its position as well, as in `alchemy config diff`: `pipes.Encode`, `pipes.Encode:2`.

    >>> dict(flatten_config({"a": {"b": 1}, "plugins": [{"type": "x.Seeding", "seed": 3}], "c": [1, 2]}))
    {'a.b': 1, 'plugins.Seeding.type': 'x.Seeding', 'plugins.Seeding.seed': 3, 'c': [1, 2]}
    """
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flatten_config(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            taken: set[str] = set()
            for place, item in enumerate(value):
                kind = str(item.get("type", place)).rpartition(".")[2]
                kind = kind if kind not in taken else f"{kind}:{place}"
                taken.add(kind)
                yield from flatten_config(item, f"{name}.{kind}.")
        else:
            yield name, value
