"""The database of the index: SQLite in `.alchemy/index.db`, or PostgreSQL by URL."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from alchemy.index.schema import SCHEMA, VERSION

DATABASE = "index.db"
BUSY_SECONDS = 10.0  # how long to wait for another process that writes to the index

Row = Sequence[Any]


class Store(Protocol):
    """A database with the tables of `schema`. Statements use named parameters: `:name`."""

    name: str
    site: str  # the machine whose paths are stored; empty if the database belongs to one machine
    warning: str  # why the index is not saved, or an empty string

    def query(self, sql: str, params: Mapping[str, Any] = {}) -> list[Row]: ...
    def write(self, sql: str, params: Mapping[str, Any] = {}) -> None: ...
    def write_many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None: ...
    def insert(self, sql: str, params: Mapping[str, Any]) -> int: ...
    def transaction(self) -> contextlib.AbstractContextManager[None]: ...
    def text_match(self, column: str, param: str) -> str: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...


def open_store(folder: Path) -> Store:
    """Open the index in an `.alchemy` folder, or the PostgreSQL database that `ALCHEMY_DB` names."""
    url = os.environ.get("ALCHEMY_DB", "")
    if url:
        from alchemy.index.postgres import PostgresStore

        return PostgresStore(url)
    return SqliteStore.open(folder / DATABASE)


class SqliteStore:
    """An index in a SQLite file. If the file cannot be written, the index is kept in memory for this command."""

    site = ""

    def __init__(self, connection: sqlite3.Connection, name: str, warning: str = "") -> None:
        self._db, self.name, self.warning = connection, name, warning

    @classmethod
    def open(cls, path: Path) -> SqliteStore:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            store = cls(_connect(str(path)), str(path))
            store._prepare()
            return store
        except sqlite3.OperationalError as error:  # a read-only folder, a full disk, or a lock that is never released
            return cls.in_memory(path, str(error))
        except OSError as error:
            return cls.in_memory(path, error.strerror or str(error))
        except sqlite3.DatabaseError as error:
            return cls._replace(path, error)

    @classmethod
    def in_memory(cls, path: Path, why: str) -> SqliteStore:
        store = cls(_connect(":memory:"), ":memory:", f"cannot write the index {path}: {why}; using a temporary one")
        store._prepare()
        return store

    @classmethod
    def _replace(cls, path: Path, error: sqlite3.DatabaseError) -> SqliteStore:
        """Replace a damaged database: nothing is lost, since it is rebuilt from the records."""
        try:
            for file in (path, path.with_name(f"{path.name}-journal")):
                file.unlink(missing_ok=True)
            store = cls(_connect(str(path)), str(path))
            store._prepare()
            store.warning = f"the index {path} was damaged ({error}) and is rebuilt"
            return store
        except (OSError, sqlite3.Error) as again:
            return cls.in_memory(path, str(again))

    def _prepare(self) -> None:
        """Create the tables, or recreate them if they are from another version."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            self.clear()

    def clear(self) -> None:
        """Remove all tables, whatever version they are from, and create empty ones."""
        with self.transaction():
            tables = self.query("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
            shadows = tuple(f"{name}_" for name, sql in tables if "VIRTUAL" in (sql or ""))
            for name, _ in tables:
                if not name.startswith(shadows or "\0"):  # a virtual table drops its own tables
                    self._db.execute(f'DROP TABLE IF EXISTS "{name}"')
            for statement in SCHEMA:
                self._db.execute(statement)
            self._db.execute("CREATE VIRTUAL TABLE search USING fts5(words)")  # rowid is the id of the record
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def query(self, sql: str, params: Mapping[str, Any] = {}) -> list[Row]:
        return self._db.execute(sql, params).fetchall()

    def write(self, sql: str, params: Mapping[str, Any] = {}) -> None:
        self._db.execute(sql, params)

    def write_many(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._db.executemany(sql, rows)

    def insert(self, sql: str, params: Mapping[str, Any]) -> int:
        """Insert a row and return its id."""
        return int(self._db.execute(f"{sql} RETURNING id", params).fetchone()[0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def text_match(self, column: str, param: str) -> str:
        """Return a condition that is true if the record in `column` contains the words of a full-text query."""
        return f"{column} IN (SELECT rowid FROM search WHERE search MATCH :{param})"

    def close(self) -> None:
        self._db.close()


def _connect(name: str) -> sqlite3.Connection:
    # autocommit: transactions are explicit
    db = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None)
    # the index can be rebuilt, so that losing the last transaction in a power failure costs nothing
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = -65536")
    return db
