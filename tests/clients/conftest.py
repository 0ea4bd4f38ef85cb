"""A writable copy of the old-style project, and the commands to start it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NER = Path(__file__).parent / "ner"


@pytest.fixture(scope="session")
def start():
    """`start(folder, *words)` runs python there and returns its output; a failure shows the whole output."""

    def start(folder, *words, code=0):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return start


@pytest.fixture(scope="session")
def alchemy(programs):
    """`alchemy(folder, *words)` runs the command there in a fast-starting process, and returns its output."""

    def alchemy(folder, *words, code=0):
        done = subprocess.run(
            [programs / "alchemy", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return alchemy


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A fresh copy of the project for a test module."""
    folder = tmp_path_factory.mktemp("projects") / "ner project"  # a space in the path must not matter
    shutil.copytree(NER, folder, ignore=shutil.ignore_patterns("__pycache__", "records"))
    return folder
