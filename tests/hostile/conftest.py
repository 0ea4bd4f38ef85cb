"""The projects of these tests, trained once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.sandbox import Sandbox, opened


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with opened(tmp_path_factory.mktemp("hostile")) as ready:
        yield ready
