"""An edited, truncated or invalid `record.json`: one message, and other records are not affected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.errors import AlchemyError
from alchemy.records.folder import Record, newest, stop
from alchemy.records.status import read_info

NONE = object()


def record(folder: Path, name: str = "2026-01-01_00-00-00.000000", status: str = "stopped") -> Path:
    made = Record.create(folder, name=name, tag="t")
    made.finish(status)
    (made.path / "cfg.toml").write_text('runner = "alchemy.runner.Trainer"\n')
    return made.path


def damage(folder: Path, field: str, value: Any) -> None:
    info = json.loads((folder / "record.json").read_text())
    if value is NONE:
        del info[field]
    else:
        info[field] = value
    (folder / "record.json").write_text(json.dumps(info))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("gen", "two", r"record.json: invalid gen = 'two', expected an integer >= 0; the file was edited or damaged"),
        ("gen", -1, "invalid gen = -1"),
        ("gen", True, "invalid gen = True"),
        ("gen", 10**300, r"invalid gen = 10{59}\.\., expected an integer >= 0"),
        ("tag", ["a"], r"invalid tag = \['a'\], expected a string"),
        ("heartbeat", "0001-01-01T00:00:00", "invalid heartbeat = '0001-01-01T00:00:00', expected an ISO 8601 time"),
        ("host", ["\x1b[2J"], r"invalid host = \['\\x1b\[2J'\], expected a string"),
        (
            "status",
            "sleeping",
            "invalid status = 'sleeping', expected one of running, finished, failed, killed, lost",
        ),
        ("status", ["finished"], r"invalid status = \['finished'\]"),
        ("status", NONE, "record.json has no 'status' .expected one of running"),
        ("pid", "7", "invalid pid = '7', expected a process id"),
        ("pid", -1, "invalid pid = -1"),  # the process that `alchemy stop` would terminate
        ("pid", 2**40, "invalid pid = 1099511627776"),
        ("pid_started", "x", "invalid pid_started = 'x'"),
        ("host", None, "invalid host = None, expected a string"),
        ("heartbeat", "yesterday", "invalid heartbeat = 'yesterday', expected an ISO 8601 time"),
        ("versions", [], r"invalid versions = \[\], expected a table"),
        ("code_hash", NONE, "has no 'code_hash'"),
        ("reason", 3, "invalid reason = 3"),
        ("format", 3, "has format 3, expected 1 or 2; it was written by a newer version of alchemy"),
        ("kind", "sweep", "invalid kind = 'sweep', expected one of train, test, predict, import"),
        ("parent", 3, "invalid parent = 3, expected a string or null"),
        ("git", "main", "invalid git = 'main', expected a table or null"),
        ("cpu_seconds", "1", "invalid cpu_seconds = '1', expected a number or null"),
    ],
)
def test_a_field_that_no_run_has_written(field: str, value: Any, message: str, tmp_path: Path) -> None:
    folder = record(tmp_path)
    damage(folder, field, value)
    with pytest.raises(AlchemyError, match=message):
        read_info(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "record.json cannot be read: it is empty; the file was edited or damaged"),
        (b"\n", "record.json cannot be read: it is empty"),
        (b'{"format": 1, "id": "2026', "record.json cannot be read: invalid JSON"),
        (b"\xff\xfe", "record.json cannot be read: invalid JSON"),
        (b"[" * 100_000, "record.json cannot be read: invalid JSON"),
        (b"[]", r"record.json has format \?, expected 1"),
        (b"null", r"record.json has format \?, expected 1"),
    ],
)
def test_a_file_that_is_no_record(content: bytes, message: str, tmp_path: Path) -> None:
    folder = record(tmp_path)
    (folder / "record.json").write_bytes(content)
    with pytest.raises(AlchemyError, match=message):
        read_info(folder)


def test_a_heartbeat_without_a_zone_is_of_this_one(tmp_path: Path) -> None:
    folder = record(tmp_path)
    for field, value in {"status": "running", "host": "elsewhere", "heartbeat": "2026-01-01T00:00:00"}.items():
        damage(folder, field, value)
    assert read_info(folder)["status"] == "lost"


@pytest.mark.parametrize("status", ["stopped", ""])
def test_one_that_cannot_be_read_is_skipped_with_a_warning(tmp_path: Path, warnings: list[str], status: str) -> None:
    good, bad = record(tmp_path), record(tmp_path, "2026-01-02_00-00-00.000000")
    damage(bad, "status", "sleeping")
    assert newest((str(tmp_path),), status=status) == good
    assert [str(bad) in line for line in warnings] == [True]


def test_a_process_is_known_by_the_time_that_it_started(tmp_path: Path) -> None:
    folder = record(tmp_path)
    for field, value in {"status": "running", "pid": 1, "pid_started": NONE}.items():
        damage(folder, field, value)
    with pytest.raises(AlchemyError, match="is not running: killed"):
        stop(folder)


@pytest.mark.parametrize(
    "words", [["resume", "{}", "--device", "-1"], ["stop", "{}"], ["replay", "{}", "--update", "1", "--device", "-1"]]
)
@pytest.mark.parametrize("content", ["", "{}", '{"format": 1}', '{"format": 1, "status": "x"}', "[1]"])
def test_a_command_says_it_in_one_line(words: list[str], content: str, tmp_path: Path, capsys: Any) -> None:
    folder = record(tmp_path)
    (folder / "record.json").write_text(content)
    assert main([word.format(folder) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folder}") and error.count("\n") == 1
