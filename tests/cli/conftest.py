"""A new project for the tests of commands, in an interpreter that has not imported it."""

import sys

import pytest

from alchemy.cli import main


@pytest.fixture(autouse=True)
def fresh_imports():
    """Forget the imported package: every project calls it `src`."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition(".")[0] == "src"]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    """A new project as the working folder."""
    folder = tmp_path / "my project"
    assert main(["new", str(folder)]) == 0
    monkeypatch.chdir(folder)
    capsys.readouterr()
    return folder


@pytest.fixture
def records(tmp_path, monkeypatch):
    """The folder for the records of an empty project, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "records"


@pytest.fixture(scope="session")
def record(corpora, tmp_path_factory):
    """The read-only record of a translation model trained for two epochs."""
    from alchemy.runner import run_task
    from tests.tasks.pairs import config

    cfg = config(corpora, tmp_path_factory.mktemp("run"))
    cfg["sched"]["epochs"] = 2
    return str(run_task(cfg, raise_errors=True).record_dir)
