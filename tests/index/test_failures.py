"""A database that fails never prevents a command: there is one warning, and the answer is complete."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.errors import AlchemyError, IndexFailed
from alchemy.index import store
from alchemy.index.record_index import RecordIndex
from alchemy.index.store import DATABASE, URL, SqliteStore
from tests.analysis.fake_runs import write_run

ROOT = Path(__file__).parents[2]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def index_file(local_project: Path) -> Path:
    """The index of 20 records."""
    for number in range(20):
        write_run(local_project / "records", number, {"dev/f1": number / 20}, {"lr": number, "name": "x" * number})
    with RecordIndex.open() as index:
        assert len(index.query()) == 20
    return local_project / ".alchemy" / DATABASE


def ls(capsys: Capture, *words: str) -> tuple[Any, list[str]]:
    """Return what `alchemy ls` prints, and its warnings."""
    capsys.readouterr()
    assert main(["ls", "--each", "--json", "--columns", "id,lr,dev/f1,name", "-n", "0", *words]) == 0
    output, errors = capsys.readouterr()
    return json.loads(output), errors.splitlines()


def overwrite(path: Path, seed: int) -> None:
    """Write zeros or noise over some pages."""
    draw = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 4)):
        page = draw.randrange(len(data) // 4096) * 4096
        data[page : page + 4096] = draw.choice([bytes(4096), draw.randbytes(4096)])
    path.write_bytes(data)


def forget_tables(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE metrics")


def repeat_names(path: Path) -> None:
    """Make the next insertion fail: a unique name exists that no record uses."""
    with sqlite3.connect(path) as db:
        db.executescript(
            "DROP TABLE names; CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL, x NOT NULL)"
        )


def scramble_schema(path: Path) -> None:
    """Replace the text of the schema, which is in the first page, by bytes that are not UTF-8."""
    content = path.read_bytes()
    path.write_bytes(content[:3000] + b"\xff" * 9000 + content[12000:])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("this is not a database\n" * 500),
    "garbage": lambda path: path.write_bytes(random.Random(1).randbytes(5000)),
    "an unreadable schema": scramble_schema,
    "cut in a page": lambda path: os.truncate(path, path.stat().st_size // 2 + 100),
    "cut to its header": lambda path: os.truncate(path, 100),
    "without a table": forget_tables,
    "with a strange table": repeat_names,
    **{f"overwritten {seed}": lambda path, seed=seed: overwrite(path, seed) for seed in range(25)},  # type: ignore[misc]
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_rebuilt(index_file: Path, capsys: Capture, damage: str) -> None:
    before, _ = ls(capsys)
    DAMAGES[damage](index_file)
    write_run(index_file.parents[1] / "records", 99, {"dev/new": 1.0})  # written to the index by the next command
    after, warnings = ls(capsys, "lr>=0")
    assert after == before
    assert len(warnings) <= 1
    assert all(line.endswith((") and is rebuilt", "; trying again")) for line in warnings)
    assert len(ls(capsys, "lr>=0 or dev/new=1")[0]) == 21
    assert ls(capsys, "lr>=0")[1] == []


def test_an_index_of_another_version_is_rebuilt(index_file: Path, capsys: Capture) -> None:
    before, _ = ls(capsys)
    with sqlite3.connect(index_file) as db:
        db.executescript("PRAGMA user_version = 999; DROP TABLE records; CREATE TABLE records (later TEXT)")
        db.executescript("CREATE TABLE later (x); CREATE VIEW v AS SELECT * FROM later")
    assert ls(capsys) == (before, [])
    with sqlite3.connect(index_file) as db:
        assert db.execute("SELECT COUNT(*) FROM records").fetchone() == (20,)


@pytest.mark.parametrize("kind", ["folder", "FIFO", "loop", "device"])
def test_an_index_that_is_no_file(index_file: Path, capsys: Capture, kind: str) -> None:
    before, _ = ls(capsys)
    index_file.unlink()
    if kind == "folder":
        index_file.mkdir()
    elif kind == "FIFO":
        os.mkfifo(index_file)
    else:
        index_file.symlink_to(index_file if kind == "loop" else "/dev/zero")
    after, warnings = ls(capsys)
    assert after == before
    (line,) = warnings
    assert line.startswith("warning: cannot write the index ") and line.endswith("; using a temporary one")


def test_a_lock_that_is_never_released(index_file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new record is found, since the index is copied into memory."""
    before, _ = ls(capsys)
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    with sqlite3.connect(index_file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert ls(capsys) == (before, [])  # nothing to write
        write_run(index_file.parents[1] / "records", 30, {"dev/f1": 1.0})
        after, (line,) = ls(capsys)
        assert (after[1:], len(after)) == (before, 21)
        assert "database is locked; using a temporary one" in line
        other.execute("ROLLBACK")
        other.execute("BEGIN EXCLUSIVE")
        assert len(ls(capsys)[0]) == 21  # not even reading is possible
        other.execute("ROLLBACK")
    other.close()
    assert ls(capsys) == (after, [])


def test_a_database_without_space(index_file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = store._connect

    def connect_to_full_disk(name: str) -> sqlite3.Connection:
        db = connect(name)
        if name != ":memory:":
            db.execute("PRAGMA max_page_count = 1")  # at most as many pages as there are
        return db

    before, _ = ls(capsys)
    monkeypatch.setattr(store, "_connect", connect_to_full_disk)
    for number in range(30, 60):
        write_run(index_file.parents[1] / "records", number, {"dev/f1": 1.0}, {"name": "y" * 400, "lr": number})
    after, (line,) = ls(capsys)
    assert after[30:] == before
    assert "database or disk is full; using a temporary one" in line
    monkeypatch.undo()
    monkeypatch.chdir(index_file.parents[1])
    assert ls(capsys) == (after, [])


MOUNTS = {
    "read-only": "mount --bind . . && mount -o remount,ro,bind . && cd .",
    "read-only index": "mount --bind .alchemy .alchemy && mount -o remount,ro,bind .alchemy",
    "full": "mount -t tmpfs -o size=64k none .alchemy && head -c 60000 /dev/zero > .alchemy/filler",
}


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, to mount a disk without root")
@pytest.mark.parametrize("state", ["new", "old", "current"])
@pytest.mark.parametrize("mount", MOUNTS)
def test_a_real_disk(index_file: Path, mount: str, state: str) -> None:
    """Without an index, with one that has to be updated, and with one that is up to date."""
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'cd "$PWD" && {MOUNTS[mount]} && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    if state == "new":
        index_file.unlink()
    elif state == "old":
        write_run(index_file.parents[1] / "records", 30, {"dev/f1": 1.0})
    words = [*prefix, sys.executable, "-m", "alchemy", "ls", "--each", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 20 + (state == "old")
    warnings = 0 if state == "current" and mount != "full" else 1
    assert len(done.stderr.splitlines()) == warnings, done.stderr


def test_a_failure_while_records_are_queried(
    index_file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is repeated once, with a new index if the old one was damaged."""
    before, _ = ls(capsys)
    query, failures = SqliteStore.query, iter([True])

    def fail_once(self: SqliteStore, sql: str, params: Any = {}) -> Any:
        if "ORDER BY" in sql and next(failures, False):
            index_file.write_bytes(b"x" * 10_000)
            with self._report(), contextlib.closing(sqlite3.connect(index_file)) as damaged:
                damaged.execute("SELECT 1 FROM records")
        return query(self, sql, params)

    monkeypatch.setattr(SqliteStore, "query", fail_once)
    after, (line,) = ls(capsys)
    assert after == before
    assert line == "warning: the index of records failed (file is not a database); trying again"


def test_a_failure_that_stays_is_an_error(index_file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: SqliteStore, sql: str, params: Any = {}) -> Any:
        raise IndexFailed("the database is on fire")

    monkeypatch.setattr(SqliteStore, "query", fail)
    assert main(["ls"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: the database is on fire"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://me:secret@localhost:1/x", "refused"),
        ("postgresql:///x?host=/nowhere", "No such file"),
        ("postgres://me:secret@127.0.0.1:1/x", "refused"),
    ],
)
def test_a_server_that_cannot_be_reached(
    index_file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    pytest.importorskip("psycopg", reason="the extra `track` is not installed")
    before, _ = ls(capsys)
    monkeypatch.setenv(URL, url)
    after, (line,) = ls(capsys)
    assert after == before
    assert line.startswith("warning: cannot use the database that ALCHEMY_DB names: ") and reason in line
    assert line.endswith(f"; using {index_file} instead")
    assert "secret" not in line


@pytest.mark.usefixtures("local_project")
@pytest.mark.parametrize("url", ["nonsense", "mysql://a/b", "sqlite:///x.db", "postgresql+psycopg2://a/b", "://", "\0"])
def test_a_url_of_another_database_is_an_error(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    pytest.importorskip("psycopg", reason="the extra `track` is not installed")
    monkeypatch.setattr(os, "environ", {**os.environ, URL: url})
    with pytest.raises(AlchemyError, match=r"ALCHEMY_DB is not the URL .*; postgresql://USER@HOST/DATABASE"):
        RecordIndex.open().__enter__()


@pytest.mark.usefixtures("local_project")
@pytest.mark.parametrize("package", ["psycopg", "sqlalchemy"])
def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setenv(URL, "postgresql://a/b")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AlchemyError, match=rf"needs the package {package}; pip install 'alchemy\[track\]'"):
        RecordIndex.open().__enter__()


def test_a_connection_that_is_lost(shared_project: Path, capsys: Capture, postgres_url: str) -> None:
    """While records are read: the local index takes over."""
    import psycopg

    from alchemy.index import sync

    write_run(shared_project, 0, {"dev/f1": 0.5}, {"lr": 1, "name": "x"})
    read = sync.read_record

    def cut(*words: Any) -> Any:
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'alchemy'")
        return read(*words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync, "read_record", cut)
        rows, (line,) = ls(capsys)
    assert len(rows) == 1
    assert line.startswith("warning: cannot use the database that ALCHEMY_DB names: ") and "terminat" in line
    assert len(line.splitlines()) == 1
    assert ls(capsys) == (rows, [])


def test_a_user_who_may_not_create_tables(
    shared_project: Path, capsys: Capture, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    write_run(shared_project, 0, {"dev/f1": 0.5}, {"lr": 1, "name": "x"})
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS guest")
        db.execute("CREATE ROLE guest LOGIN")
    monkeypatch.setenv(URL, postgres_url.replace("alchemy@", "guest@"))
    rows, (line,) = ls(capsys)
    assert len(rows) == 1
    assert "permission denied for database postgres" in line


def test_a_writer_that_hangs_blocks_nobody(
    shared_project: Path, capsys: Capture, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from alchemy.index import postgres

    write_run(shared_project, 0, {"dev/f1": 0.5}, {"lr": 1, "name": "x"})
    monkeypatch.setattr(postgres, "BUSY_SECONDS", 0.2)
    with psycopg.connect(postgres_url) as db:
        db.execute(f"SELECT pg_advisory_lock({postgres.LOCK})")
        rows, (line,) = ls(capsys)
        assert len(rows) == 1
        assert "lock timeout" in line
