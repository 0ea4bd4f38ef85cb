"""A queue in a temporary folder."""

import pytest

from alchemy.queue import Queue


@pytest.fixture
def queue(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Queue()
