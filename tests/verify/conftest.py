"""The parts of small test projects, and fast-starting processes."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, with the parts of `project` importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "project"))


@pytest.fixture(autouse=True)
def processes(forked_runs: None) -> None:
    """Training runs in separate processes, forked from one that has imported everything and trained nothing."""
