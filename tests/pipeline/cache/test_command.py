"""`alchemy data cache`: stored, listed, compared and removed entries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.data.cache.entries import cache_folder
from tests.pipeline.cache.chains import (
    built,
    write,
)


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["data", "cache", "ls", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_lists_and_removes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed(capsys) == []
    assert main(["data", "cache", "rm", "--all"]) == 0
    assert not Path(".alchemy").exists()
    built()
    built(sep="b")
    built(also=["3"])
    capsys.readouterr()
    rows = listed(capsys)
    assert [(row["samples"], row["data"]) for row in rows] == [(2, ["train.jsonl"])] * 3
    main(["data", "cache", "ls"])
    out = capsys.readouterr().out
    assert rows[0]["key"][:12] in out
    assert "  train.jsonl\n3 entries, " in out
    main(["data", "cache", "rm", rows[0]["key"][:8]])
    later = time.time() + 31 * 86400
    monkeypatch.setattr("alchemy.cli.cache.time.time", lambda: later)
    os.utime(Path(rows[2]["path"]) / "manifest.json", (later, later))
    main(["data", "cache", "rm", "--older-than", "30"])
    capsys.readouterr()
    assert [row["key"] for row in listed(capsys)] == [rows[2]["key"]]
    main(["data", "cache", "path"])
    assert capsys.readouterr().out.strip() == str(cache_folder())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rm"], "nothing selected to remove"),
        (["rm", "ff", "--all"], "nothing selected to remove"),
        (["rm", "ff"], "no cache key starts with 'ff'"),
        (["ls", "--all"], "does not accept '--all'"),
        (["path", "--json"], "does not accept '--json'"),
        (["verify", "ff"], "does not accept 'ff'"),
        *(
            (["rm", "--older-than", days], "--older-than must be a number of days >= 0")
            for days in ("-1", "nan", "inf")
        ),
        (["lst"], "did you mean 'ls'"),
    ],
)
def test_the_command_says_what_is_wrong(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "cache", *words]) == 2
    assert told in capsys.readouterr().err


def test_what_is_damaged_is_listed_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    built()
    built(sep="b")
    assert main(["data", "cache", "verify"]) == 0
    assert "2 entries, " in capsys.readouterr().out
    first, second = listed(capsys)
    (Path(first["path"]) / "manifest.json").write_text('{"format": 3, "layout": []}')
    content = Path(second["path"]) / "samples.bin"
    content.write_bytes(content.read_bytes()[::-1])
    assert [row.get("damaged") for row in listed(capsys)] == ["manifest.json was modified after it was written", None]
    assert main(["data", "cache", "verify"]) == 1
    out = capsys.readouterr().out
    assert "damaged: manifest.json was modified after it was written" in out
    assert "damaged: samples.bin was modified after it was written" in out
    assert "2 entries, " in out
    assert main(["data", "cache", "rm", first["key"][:9]]) == 0
    assert "1 removed" in capsys.readouterr().out
    assert main(["data", "cache", "rm", "--all"]) == 0
    capsys.readouterr()
    assert listed(capsys) == []


def test_names_that_are_no_unicode_are_listed() -> None:
    write("\udcff.jsonl", '{"text": "a"}\n')
    built()
    for words in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "alchemy", "data", "cache", "ls", *words],
            env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
            capture_output=True,
            check=True,
        )
        assert b"\\udcff.jsonl" in done.stdout
