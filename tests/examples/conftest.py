"""Shared fixtures of the example tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples.thunews import command


@pytest.fixture
def thunews() -> Iterator[Any]:
    """The module run.py of the example thunews."""
    with command() as module:
        yield module
