"""A project with a small training, and alchemy as a command in it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.demo_project import open_demo


@pytest.fixture
def demo(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return open_demo(tmp_path, monkeypatch)


@pytest.fixture
def alchemy():
    def run(*words, code=0, **env):
        command = [sys.executable, "-m", "alchemy", *words]
        with tempfile.TemporaryFile("w+") as output:  # jobs of submitit's local executor would keep a pipe open
            done = subprocess.run(command, env={**os.environ, **env}, stdout=output, stderr=output, timeout=300)
            output.seek(0)
            text = output.read()
        assert done.returncode == code, text
        return text

    return run
