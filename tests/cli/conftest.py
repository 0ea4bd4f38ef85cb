"""A new project for the tests of commands, and a Python that has not seen it before."""

import sys

import pytest

from alchemy.cli import main


@pytest.fixture(autouse=True)
def fresh_imports():
    """Every project calls its package `src`."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition(".")[0] == "src"]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    """A new project, as the working folder."""
    folder = tmp_path / "my project"
    assert main(["new", str(folder)]) == 0
    monkeypatch.chdir(folder)
    capsys.readouterr()
    return folder
