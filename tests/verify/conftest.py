"""The parts of the tests' own small projects, and processes that start at once."""

import multiprocessing
from pathlib import Path
from types import SimpleNamespace

import pytest

from alchemy.launch import worker_pool

# what a training imports: torch's compiler comes with the first optimizer, and takes seconds
WARM = ["alchemy.verify.trial_runs", "alchemy.verify.gradient_check", "alchemy.state", "torch._dynamo"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, with the parts of `project` within reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "project"))


@pytest.fixture(scope="session")
def forks() -> multiprocessing.context.BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(WARM)
    return context


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch, forks: multiprocessing.context.BaseContext) -> None:
    """Trainings in processes of their own, forked from one that has imported everything and trained nothing."""
    stands_in = SimpleNamespace(**{**vars(multiprocessing), "get_context": lambda method: forks})
    monkeypatch.setattr(worker_pool, "multiprocessing", stands_in)
