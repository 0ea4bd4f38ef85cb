"""Wrong values in place of a record: one clear message for every command."""

import pytest

from alchemy.cli import main

COMMANDS = {
    "resume": ["resume", "{}"],
    "replay": ["replay", "{}", "--update", "1"],
    "stop": ["stop", "{}"],
    "ledger": ["verify", "ledger", "{}"],
    "other ledger": ["verify", "ledger", "x", "{}"],
    "checkpoint": ["checkpoint", "ls", "{}"],
}


def refused(capsys, words, name):
    assert main([word.format(name) for word in words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("words", [*COMMANDS.values(), ["test", "{}"], ["predict", "{}"]], ids=" ".join)
def test_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = refused(capsys, words, "")
    assert told == "error: RECORD is empty; pass a record folder, its name, or 'latest'\n"


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("train.toml", "`alchemy run train.toml --resume auto` resumes the latest record of a config"),
        ("notes", "pass the path of a record folder"),
        ("old/run.log", "pass old"),
    ],
)
def test_a_file(words, name, hint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    for file in ("train.toml", "notes", "old/run.log", "old/record.json"):
        (tmp_path / file).write_text("")
    assert refused(capsys, words, name) == f"error: {name} is a file, expected a record folder; {hint}\n"


def test_words_of_their_own_are_not_taken_for_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for file in ("latest", "4711"):
        (tmp_path / file).write_text("")
    assert "no running record below ." in refused(capsys, ["stop", "{}"], "latest")
    assert "no background run with pid 4711" in refused(capsys, ["stop", "{}"], "4711")
