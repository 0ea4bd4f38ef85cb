"""The parts of the tests' own small projects, and processes that start at once."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, with the parts of `project` within reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "project"))


@pytest.fixture(autouse=True)
def processes(forked_runs: None) -> None:
    """Trainings in processes of their own, forked from one that has imported everything and trained nothing."""
