"""A project with a small training, and alchemy as a command in it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from alchemy.cli.new import project


@pytest.fixture
def demo(tmp_path, monkeypatch):
    for name, text in project("demo").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


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
