"""What all tests share."""

from __future__ import annotations

import gc
import io
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from loguru import logger

from tests.logs import warned

# a background job of a script has SIGINT ignored, and so have its children: those of the tests are interrupted
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# every run adds its record to the trust store of the user: not to that of whoever runs the tests
_home = os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="alchemy-tests-")

# machines are noisy: how long an example takes says nothing about the code
settings.register_profile("alchemy", deadline=None)
settings.load_profile("alchemy")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what is imported and collected: half a million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    shutil.rmtree(_home, ignore_errors=True)


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


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parallel corpora of a training and a dev split; they are read, never changed."""
    from tests.tasks.pairs import build_corpora

    root = tmp_path_factory.mktemp("corpora")
    build_corpora(root)
    return root


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What is logged as a warning, a line each."""
    with warned() as lines:
        yield lines


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What is logged as information or worse, a line each."""
    with warned("INFO") as lines:
        yield lines
