"""What all tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# machines are noisy: how long an example takes says nothing about the code
settings.register_profile("alchemy", deadline=None)
settings.load_profile("alchemy")


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """Some models of the tests change torch and then fail; the next test is not to see it."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].use_deterministic_algorithms(False)
