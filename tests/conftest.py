"""Shared fixtures and settings of all tests."""

from __future__ import annotations

import functools
import gc
import io
import multiprocessing
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from loguru import logger

from tests.logs import warned

# background jobs of a shell ignore SIGINT, and so do their children; tests need to interrupt theirs
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# every run adds its record to the user's trust store: do not use the real one
_home = os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="alchemy-tests-")

# loguru asks for dozens of paths whenever a sink is added, which happens at every run
sysconfig.get_path = functools.cache(sysconfig.get_path)  # type: ignore[assignment]

# machines are noisy: the duration of an example says nothing about the code
settings.register_profile("alchemy", deadline=None)
settings.load_profile("alchemy")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude imported and collected objects from garbage collection: half a million that stay alive."""
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
    """Restore torch's settings: some test models change them and then fail."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].use_deterministic_algorithms(False)


class Log:
    """Return the logged output as text."""

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
    """Write a file and return its path."""

    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return str(path)

    return written


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read-only parallel corpora with a training and a dev split."""
    from tests.tasks.pairs import build_corpora

    root = tmp_path_factory.mktemp("corpora")
    build_corpora(root)
    return root


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of fast-starting programs; see tests/docs/zygote.py."""
    from tests.docs import zygote

    with zygote.started(tmp_path_factory.mktemp("zygote")) as folder:
        yield folder


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Collect logged warnings, one line each."""
    with warned() as lines:
        yield lines


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Collect messages logged at level INFO or above, one line each."""
    with warned("INFO") as lines:
        yield lines


# imports of a training run: torch's compiler is loaded with the first optimizer, which takes seconds
WARM = ["alchemy.verify.trial_runs", "alchemy.verify.gradient_check", "alchemy.state", "torch._dynamo"]


@pytest.fixture(scope="session")
def forks() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    return context


@pytest.fixture
def forked_runs(monkeypatch: pytest.MonkeyPatch, forks: multiprocessing.context.BaseContext) -> None:
    """Fork the processes of runs from one that has imported everything: starting Python takes seconds."""
    from alchemy.launch import worker_pool

    stands_in = SimpleNamespace(**{**vars(multiprocessing), "get_context": lambda method: forks})
    monkeypatch.setattr(worker_pool, "multiprocessing", stands_in)
