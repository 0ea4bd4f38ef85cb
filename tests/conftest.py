"""What all tests share."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

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


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of programs that start at once; see tests/docs/zygote.py."""
    from tests.docs import zygote

    with zygote.started(tmp_path_factory.mktemp("zygote")) as folder:
        yield folder


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


# what a training imports: torch's compiler comes with the first optimizer, and takes seconds
WARM = ["alchemy.verify.trial_runs", "alchemy.verify.gradient_check", "alchemy.state", "torch._dynamo"]


@pytest.fixture(scope="session")
def forks() -> multiprocessing.context.BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    return context


@pytest.fixture
def forked_runs(monkeypatch: pytest.MonkeyPatch, forks: multiprocessing.context.BaseContext) -> None:
    """Fork the processes of runs from one that has imported everything: starting Python takes seconds."""
    from alchemy.launch import worker_pool

    stands_in = SimpleNamespace(**{**vars(multiprocessing), "get_context": lambda method: forks})
    monkeypatch.setattr(worker_pool, "multiprocessing", stands_in)
