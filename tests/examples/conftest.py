"""What the tests of the examples share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples.thunews import command


@pytest.fixture
def thunews() -> Iterator[Any]:
    """The module run.py of the example with the news."""
    with command() as module:
        yield module
