"""`alchemy archive` and `alchemy import`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.analysis.fake_runs import write_run
from tests.cli.run_command import run


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another project."""
    return tmp_path_factory.mktemp("elsewhere")


def test_a_run_and_its_tests_move_to_another_project(records: Path, elsewhere: Path, capsys, monkeypatch) -> None:
    name = write_run(records, 1, {"dev/f1": 0.5})
    write_run(records, 2, {"test/f1": 0.4}, kind="test", parent=name)
    (records / name / "link").symlink_to("/etc/passwd")
    told = run(capsys, "archive", name, "--children", "-o", "a.tar.gz")
    assert told.startswith("a.tar.gz: 2 records, 8 files, ")
    assert "left out, since it is a link" in told
    archive = os.path.abspath("a.tar.gz")
    monkeypatch.chdir(elsewhere)
    told = run(capsys, "import", archive)
    assert told.splitlines()[0] == f"records/imported/{name}"
    assert "2 untrusted configs: read cfg.toml, then `alchemy trust`" in told
    assert "0.4" in run(capsys, "ls", "--columns", "test/f1")
    assert "exist already" in run(capsys, "import", archive, "--to", "third")
    assert os.listdir("third") == []


def test_an_imported_config_is_foreign(records: Path, elsewhere: Path, capsys, monkeypatch) -> None:
    name = write_run(records, 1, {}, {"model": {"type": "os.system"}})
    run(capsys, "archive", "last", "-o", "a.tar")
    archive = os.path.abspath("a.tar")
    monkeypatch.chdir(elsewhere)
    (row,) = json.loads(run(capsys, "import", archive, "--json"))["added"]
    assert row == {"path": f"records/imported/{name}", "trusted": False}
    assert "'os.system' is not allowed" in run(capsys, "test", "last", "--device", "-1", code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "none.tar"], "file not found"),
        (["import", "."], "it is not a regular file"),
        (["import", "empty"], "not a valid archive of records"),
        (["import", "text"], "not a valid archive of records"),
        (["import", "text", "--max-size", "0"], "--max-size must be greater than 0"),
        (["import", "text", "--to", "text/x"], "cannot unpack"),
        (["archive", "last"], "the following arguments are required: -o"),
        (["archive", "last", "-o", "text"], "exists already"),
        (["archive", "-o", "new.tar"], "pass records or --filter"),
    ],
)
def test_wrong_arguments(records: Path, capsys, words: list[str], message: str) -> None:
    write_run(records, 1, {})
    Path("text").write_text("hello\n" * 200)
    Path("empty").touch()
    assert message in run(capsys, *words, code=2)
    assert sorted(os.listdir(".")) in ([".alchemy", "empty", "records", "text"], ["empty", "records", "text"])
