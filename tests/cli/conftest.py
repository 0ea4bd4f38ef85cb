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
    _forget_src()


def _forget_src():
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


@pytest.fixture(scope="session")
def trained_project(tmp_path_factory):
    """A project with one short run; it is copied, never changed."""
    folder = tmp_path_factory.mktemp("trained") / "project"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        assert main(["new", str(folder)]) == 0
        patch.chdir(folder)
        quick = ["--device", "-1", "--set", "sched.epochs=1", "--set", "log_every=5"]
        assert main(["run", "train.toml", *quick]) == 0
    _forget_src()
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
