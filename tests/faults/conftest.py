"""Make the parts in this folder importable, here and in the processes that runs start."""

from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def reachable(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
