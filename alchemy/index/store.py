"""The database of the index: SQLite in `.alchemy/index.db`, or PostgreSQL by URL.

Statements are in the SQL that both databases understand, with named parameters (`:name`) and two functions of our own:
`fold_case(text)`, since the databases disagree on the case of letters outside ASCII, and `strpos(text, part)`. LIKE is
only used on text with folded case.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from alchemy.errors import IndexFailed
from alchemy.index.schema import SCHEMA, VERSION
from alchemy.index.words import is_prefix

DATABASE = "index.db"
URL = "ALCHEMY_DB"  # the environment variable that names a PostgreSQL database
BUSY_SECONDS = 10.0  # how long to wait for another process that writes to the index

Row = Sequence[Any]


class Store(Protocol):
    """A database with the tables of `schema`; every error of the database is raised as `IndexFailed`."""

    site: str  # the machine whose paths are stored; empty if the database belongs to one machine
    warning: str  # why the index is not saved where it should be, or an empty string

    def query(self, sql: str, params: Mapping[str, Any] = {}) -> list[Row]: ...
    def write(self, sql: str, params: Mapping[str, Any] = {}) -> None: ...
    def write_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None: ...
    def insert(self, sql: str, params: Mapping[str, Any]) -> int: ...
    def transaction(self) -> contextlib.AbstractContextManager[None]: ...
    def put_words(self, record: int, words: Sequence[str]) -> None: ...
    def remove_words(self, record: int) -> None: ...
    def text_match(self, column: str, param: str) -> str: ...
    def text_query(self, words: Iterable[str]) -> str: ...
    def clear(self) -> None: ...
    def fallback(self, error: IndexFailed) -> Store: ...
    def close(self) -> None: ...


def open_store(folder: Path) -> Store:
    """Open the index in an `.alchemy` folder, or the PostgreSQL database that `ALCHEMY_DB` names."""
    url = os.environ.get(URL, "")
    if url:
        from alchemy.index.postgres import open_postgres

        return open_postgres(url, folder / DATABASE)
    return SqliteStore.open(folder / DATABASE)


class SqliteStore:
    """An index in a SQLite file, or in memory if the file cannot be written."""

    site = ""

    def __init__(self, path: Path, warning: str = "", *, in_memory: bool = False) -> None:
        self.path, self.warning, self._in_memory = path, warning, in_memory
        with self._report():
            self._db = _connect(":memory:" if in_memory else str(path))

    @classmethod
    def open(cls, path: Path, warning: str = "") -> SqliteStore:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_regular(path)
            store = cls(path, warning)
        except OSError as error:
            return cls.in_memory(path, error.strerror or str(error))
        except IndexFailed as error:
            return cls._replace(path, error, warning)
        try:
            store._prepare()
            return store
        except IndexFailed as error:
            return store.fallback(error)

    @classmethod
    def in_memory(cls, path: Path, why: str) -> SqliteStore:
        """Return an index for this command only, with the content of the file if that can be read."""
        warning = f"cannot write the index {path}: {why}; using a temporary one"
        store = cls(path, warning, in_memory=True)
        try:
            with contextlib.closing(_connect_readonly(path)) as saved:
                saved.backup(store._db, progress=_give_up_if_locked)
            store._prepare()
        except (sqlite3.Error, OSError, IndexFailed):
            store = cls(path, warning, in_memory=True)
            store._prepare()
        return store

    def fallback(self, error: IndexFailed) -> SqliteStore:
        """Close this index after an error and return another."""
        self.close()
        if self._in_memory:
            raise error
        return self._replace(self.path, error, self.warning)

    @classmethod
    def _replace(cls, path: Path, error: IndexFailed, warning: str) -> SqliteStore:
        """Create a damaged file, which was removed, again, but only once: then there is a warning."""
        if not error.damaged or warning or path.exists():
            return cls.in_memory(path, str(error))
        return cls.open(path, f"the index {path} was damaged ({error}) and is rebuilt")

    def _prepare(self) -> None:
        """Create the tables, or recreate them if they are from another version."""
        if self._version() != VERSION:
            with self.transaction():
                if self._version() != VERSION:  # another process may have been faster
                    self._create_tables()

    def _version(self) -> int:
        return int(self.query("PRAGMA user_version")[0][0])

    def clear(self) -> None:
        with self.transaction():
            self._create_tables()

    def _create_tables(self) -> None:
        """Remove all tables, whatever version they are from, and create empty ones."""
        tables = self.query("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        shadows = tuple(f"{name}_" for name, sql in tables if "VIRTUAL" in (sql or ""))
        for name, _ in tables:
            if not name.startswith(shadows or "\0"):  # a virtual table drops its own tables
                self.write(f'DROP TABLE IF EXISTS "{name}"')
        for statement in SCHEMA:
            self.write(statement)
        # rowid is the id of the record; the ascii tokenizer splits at spaces and keeps all letters of other scripts
        self.write("CREATE VIRTUAL TABLE search USING fts5(words, tokenize = 'ascii')")
        self.write(f"PRAGMA user_version = {VERSION}")

    def query(self, sql: str, params: Mapping[str, Any] = {}) -> list[Row]:
        with self._report():
            return self._db.execute(sql, params).fetchall()

    def write(self, sql: str, params: Mapping[str, Any] = {}) -> None:
        with self._report():
            self._db.execute(sql, params)

    def write_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        with self._report():
            self._db.executemany(sql, rows)

    def insert(self, sql: str, params: Mapping[str, Any]) -> int:
        """Insert a row and return its id."""
        return int(self.query(f"{sql} RETURNING id", params)[0][0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.write("BEGIN IMMEDIATE")
        try:
            yield
            self.write("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite itself rolls back if the disk is full
                self._db.execute("ROLLBACK")
            raise

    def put_words(self, record: int, words: Sequence[str]) -> None:
        """Add the words of a record to the full-text index."""
        self.write("INSERT INTO search (rowid, words) VALUES (:id, :words)", {"id": record, "words": " ".join(words)})

    def remove_words(self, record: int) -> None:
        self.write("DELETE FROM search WHERE rowid = :id", {"id": record})

    def text_match(self, column: str, param: str) -> str:
        """Return a condition that is true if the record in `column` contains the words of a full-text query."""
        return f"{column} IN (SELECT rowid FROM search WHERE search MATCH :{param})"

    def text_query(self, words: Iterable[str]) -> str:
        """Return the full-text query for records that contain all of the words, or words that begin with them."""
        return " ".join(f'"{word}"{"*" if is_prefix(word) else ""}' for word in words)

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _report(self) -> Iterator[None]:
        """Raise errors of the database as `IndexFailed`, and remove a damaged file: the next command rebuilds it."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            damaged = _is_damage(error)
            if damaged and not self._in_memory:
                for file in (self.path, self.path.with_name(f"{self.path.name}-journal")):
                    with contextlib.suppress(OSError):
                        file.unlink()
            raise IndexFailed(str(error), damaged=damaged) from error


def _connect(name: str) -> sqlite3.Connection:
    # autocommit: transactions are explicit
    db = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None)
    # the index can be rebuilt, so that losing the last transaction in a power failure costs nothing
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = -65536")
    db.create_function("fold_case", 1, str.lower, deterministic=True)
    db.create_function("strpos", 2, lambda text, part: text.find(part) + 1, deterministic=True)
    return db


def _connect_readonly(path: Path) -> sqlite3.Connection:
    _check_regular(path)
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)


def _check_regular(path: Path) -> None:
    if path.exists() and not path.is_file():  # opening a FIFO may block
        raise OSError("it is not a regular file")


def _give_up_if_locked(status: int, _remaining: int, _total: int) -> None:
    """End a backup that would otherwise wait as long as another process locks the file."""
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise sqlite3.OperationalError("the database is locked")


def _is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """Return whether a file must be replaced; a full disk, a lock or a lack of permissions is no damage."""
    if isinstance(error, UnicodeDecodeError):  # from a message that quotes the damaged file
        return True
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    damages = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_SCHEMA)
    return code in damages or str(error).startswith("no such ")
