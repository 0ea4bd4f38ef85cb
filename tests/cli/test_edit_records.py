"""`alchemy tag`, `note`, `purpose` and `open`: edits go to the README of the record."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from alchemy.records.readme import read_readme
from tests.analysis.fake_runs import write_run
from tests.cli.run_command import run


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "records" / write_run(tmp_path / "records", 1, {"dev/f1": 0.5}, {"optim": {"lr": 0.1}})


def test_tags_are_added_removed_and_found(record: Path, capsys) -> None:
    assert run(capsys, "tag", "last", "+paper", "+焦点") == "2026-03-01_13-00-00: paper, 焦点\n"
    assert run(capsys, "tag", record.name[:12], "--remove", "paper", "+v2") == "2026-03-01_13-00-00: 焦点, v2\n"
    assert read_readme(record).tags == ("焦点", "v2")
    assert json.loads(run(capsys, "tag", "last", "--json"))[0]["tags"] == ["焦点", "v2"]
    assert "2026-03-01_13-00-00" in run(capsys, "ls", "tag:焦点")


def test_several_records_are_tagged_by_a_filter(record: Path, capsys) -> None:
    other = record.parent / write_run(record.parent, 2, {}, {"optim": {"lr": 0.2}})
    run(capsys, "tag", "--filter", "lr<0.15", "+small")
    assert (read_readme(record).tags, read_readme(other).tags) == (("small",), ())
    run(capsys, "tag", "last", "last~1", "+both")
    assert (read_readme(record).tags, read_readme(other).tags) == (("small", "both"), ("both",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "paper"], "to add a tag, write +paper"),
        (["--filter", "lr=0.1", "paper"], "to add a tag, write +paper"),
        (["lr=0.1", "paper"], "write --filter lr=0.1; to add a tag, write +paper"),
        (["dev/f1>0.2", "+paper"], "to select records with a filter, write --filter 'dev/f1>0.2'"),
        (["+paper"], "pass records or --filter"),
        (["last", "--filter", "x", "+a"], "pass records or --filter"),
        (["--filter", "status:failed", "+a"], "no training run matches 'status:failed'"),
        (["last", "+two words"], "invalid tag 'two words'"),
        (["last", "-paper"], "alchemy tag has no option '-paper'"),
    ],
)
def test_wrong_tags(record: Path, capsys, words: list[str], message: str) -> None:
    assert message in run(capsys, "tag", *words, code=2)
    assert read_readme(record).tags == ()


def test_a_filter_in_place_of_a_record_gets_a_hint(record: Path, capsys) -> None:
    assert "`alchemy ls 'dev/f1>0.2'` lists the records" in run(capsys, "note", "dev/f1>0.2", "x", code=2)
    assert "write --filter status:failed" in run(capsys, "rm", "status:failed", code=2)
    assert "write --filter status:failed" in run(capsys, "gc", "status:failed", code=2)


def test_notes_are_words_or_standard_input(record: Path, capsys, monkeypatch) -> None:
    run(capsys, "note", "last", "it", "works")
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    run(capsys, "note", str(record))
    assert [note.partition(": ")[2] for note in read_readme(record).notes] == ["it works", "from a pipe"]
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    assert "the note is empty" in run(capsys, "note", "last", code=2)


def test_the_purpose_is_printed_and_replaced(record: Path, capsys) -> None:
    assert run(capsys, "purpose", "last") == "\n"
    assert run(capsys, "purpose", "last", "does", "it help?") == f"changed the purpose of {record.name}\n"
    assert run(capsys, "purpose", "last") == "does it help?\n"
    run(capsys, "purpose", "last", "")
    assert read_readme(record).purpose == ""
    assert "pass either TEXT or --edit" in run(capsys, "purpose", "last", "x", "--edit", code=2)


def test_an_editor_changes_the_purpose(record: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/old/new/")
    run(capsys, "purpose", "last", "an old purpose")
    run(capsys, "purpose", "last", "--edit")
    assert read_readme(record).purpose == "an new purpose"
    for editor, message in (
        ("false", "false ended with exit code 1"),
        ("/nowhere/vi", "cannot start"),
        ("'", "invalid"),
    ):
        monkeypatch.setenv("EDITOR", editor)
        assert message in run(capsys, "purpose", "last", "--edit", code=2)
    assert read_readme(record).purpose == "an new purpose"


def test_no_editor_is_started_without_a_terminal(record: Path, capsys, monkeypatch) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "no terminal, or none of nano, vi is installed; set $EDITOR" in run(
        capsys, "purpose", "last", "--edit", code=2
    )


def test_paths_are_printed_for_scripts(record: Path, capsys) -> None:
    assert run(capsys, "open", "last") == f"{record}\n"
    assert run(capsys, "open", record.name[:10], "--config") == f"{record}/cfg.toml\n"
    assert "has no run.log" in run(capsys, "open", "last", "--log", code=2)
    (record / "run.log").symlink_to("/etc/passwd")
    assert "points outside" in run(capsys, "open", "last", "--log", code=2)


@pytest.mark.parametrize("words", [("tag", "none", "+a"), ("note", "none", "x"), ("purpose", "none"), ("open", "none")])
def test_an_unknown_record(record: Path, capsys, words: tuple[str, ...]) -> None:
    assert run(capsys, *words, code=2) == "error: record not found: 'none'; `alchemy ls` lists all records\n"


def test_a_read_only_record_is_an_error(record: Path, capsys) -> None:
    import os

    if os.geteuid() == 0:
        (record / "README.md").unlink()
        (record / "README.md").mkdir()
    else:
        record.chmod(0o500)
    assert "cannot edit" in run(capsys, "tag", "last", "+a", code=2)
    record.chmod(0o700)
