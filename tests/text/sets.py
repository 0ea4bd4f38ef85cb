"""Datasets that some tests need, which are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("ALCHEMY_DATA") or Path(__file__).parents[3] / "shared" / "data")


def needs(name: str) -> Path:
    """Return the folder of a dataset; skip the test if it is missing."""
    if not (DATA / name).is_dir():
        pytest.skip(f"dataset {name} not found: set ALCHEMY_DATA to the folder that contains it")
    return DATA / name
