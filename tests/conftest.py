"""What all tests share."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from loguru import logger

# machines are noisy: how long an example takes says nothing about the code
settings.register_profile("alchemy", deadline=None)
settings.load_profile("alchemy")


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """Some models of the tests change torch and then fail; the next test is not to see it."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].use_deterministic_algorithms(False)


class Log:
    """What was logged, as text."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def capture_log() -> Iterator[Log]:
    log = Log()
    sink = logger.add(log.stream, format="{level} {message}", level="DEBUG")
    yield log
    logger.remove(sink)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a file, and gives its path."""

    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return str(path)

    return written
