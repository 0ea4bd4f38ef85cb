"""Every part that `alchemy parts` lists, each with the arguments that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from alchemy.config.source import parts


def each(kind: str, cases: Mapping[str, Mapping[str, Any]]) -> pytest.MarkDecorator:
    """Parametrises `table` over the cases; a part of this kind that no case names with `type` fails the suite."""
    missing = {part.path for part in parts(kind)} - {case["type"] for case in cases.values()}
    if missing:
        raise LookupError(f"there is no case for the {kind} {', '.join(sorted(missing))}; add one to the table")
    return pytest.mark.parametrize("table", cases.values(), ids=list(cases))
