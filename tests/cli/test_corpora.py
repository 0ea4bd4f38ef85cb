"""`alchemy data build` and `data info`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from alchemy.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.en").write_text("a dog\na cat\n")
    Path("t.de").write_text("ein Hund\neine Katze\n")


def test_parallel_text_becomes_two_corpora(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["data", "build", "c/train", "--side", "en=t.en", "--side", "de=t.de", "--workers", "2"]
    assert main(command) == 0
    one, two, speed = capsys.readouterr().out.splitlines()
    assert one == "c/train.en  2 sentences  6 tokens  vocabulary 7  unknown 0.00%  uint8"
    assert two == "c/train.de  2 sentences  6 tokens  vocabulary 8  unknown 0.00%  uint8"
    assert speed.startswith("4 lines in ")
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing has changed"
    assert main([*command, "--force"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("4 lines in ")
    assert main(["data", "build", "c/dev", "--side", "en=t.en", "--like", "c/train", "--json"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert built["c/dev.en"]["vocabulary"] == 7
    assert main(["data", "build", "c/dev", "t.en", "--like", "c/train"]) == 2
    told = "folder not found: 'c/train.tokenizer'; name its sides with --side NAME=FILE; available: dev.en, train.de"
    assert told in capsys.readouterr().err


def test_info_tells_what_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "build", "c", "t.en"]) == 0
    capsys.readouterr()
    assert main(["data", "info", "c"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "sentences   2"
    assert "       3 - 3                 2  ########################################" in told
    assert told[-1].endswith("3 tokens  t.en:1")
    assert main(["data", "info", "c", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 6


@pytest.mark.parametrize(
    ("position", "value", "told"),
    [(0, 99, "c contains the id 99, but the largest valid id is 6"), (0, 1, "c.bin was modified")],
)
def test_verify_finds_what_was_changed(
    capsys: pytest.CaptureFixture[str], position: int, value: int, told: str
) -> None:
    assert main(["data", "build", "c", "t.en"]) == 0
    assert main(["data", "info", "c", "--verify"]) == 0
    assert "files       unmodified" in capsys.readouterr().out
    content = bytearray(Path("c.bin").read_bytes())
    content[position] = value
    Path("c.bin").write_bytes(content)
    assert main(["data", "info", "c"]) == 0
    assert main(["data", "info", "c", "--verify"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["c"], "no files to build a corpus from; pass at least one file"),
        (["c", "t.fr"], "file not found: 't.fr'; relative paths"),
        (["c", "--side", "t.en"], "invalid --side 't.en'; expected NAME=FILE"),
        (["c", "t.en", "--side", "en=t.en"], "cannot mix files with and without a side"),
        (["c", "t.en", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["c", "t.en", "--like", "d", "--tokenizer", "bpe"], "--like cannot be combined with --tokenizer"),
        (["c", "t.en", "--like", "d"], "folder not found: 'd.tokenizer'"),
        (["c", "t.en", "--like", "d", "--lower"], "--lower only applies to a tokenizer learned from the text"),
        (["c", "t.en", "--tokenizer", "chars"], "unknown tokenizer 'chars'; did you mean 'characters'"),
    ],
)
def test_what_cannot_be_built_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "build", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(Path.cwd().glob("c.*"))


def test_a_bar_is_drawn_for_those_who_look(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert main(["data", "build", "c", "t.en"]) == 0
    assert "encoding" in capsys.readouterr().err
