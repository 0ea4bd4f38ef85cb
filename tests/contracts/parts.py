"""Every part that `alchemy parts` lists, with the arguments it needs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest

from alchemy.config.part_source import Part, parts


@functools.cache
def listed() -> list[Part]:
    """Return every part, looked up once for all suites."""
    return parts()


def each(kind: str, cases: Mapping[str, Mapping[str, Any]]) -> pytest.MarkDecorator:
    """Parametrize `table` over the cases and, by its `type` alone, over every other part of the kind.

    A part that needs arguments but has no case fails the suite: add it to the table.
    """
    others = {part.path: part for part in listed() if kind in part.kinds}
    for case in cases.values():
        others.pop(case["type"], None)
    needs = {path: [key.name for key in part.keys if key.required] for path, part in others.items()}
    if any(needs.values()):
        raise LookupError(f"these need a case in the table of the suite: { {p: n for p, n in needs.items() if n} }")
    tables = {**cases, **{path.rpartition(".")[2]: {"type": path} for path in others}}
    return pytest.mark.parametrize("table", tables.values(), ids=list(tables))
