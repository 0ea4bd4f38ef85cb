"""The index in a PostgreSQL database, which a team can share: every machine sees its own records."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.errors import AlchemyError, IndexFailed
from alchemy.index.schema import SCHEMA, VERSION
from alchemy.index.store import BUSY_SECONDS, URL, Row, SqliteStore
from alchemy.index.words import is_prefix
from alchemy.optional_packages import import_package

if TYPE_CHECKING:
    from sqlalchemy import Connection

CONNECT_SECONDS = 5
NAMESPACE = f"alchemy_{VERSION}"  # a schema for each version: two versions of alchemy can share a database
LOCK = 0x616C6368  # of the writer; one at a time, as in SQLite
_TYPES = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    "BLOB": "BYTEA",
    "TEXT": 'TEXT COLLATE "C"',  # the order of SQLite: by bytes
    " WITHOUT ROWID": "",
}
_FUNCTION = """CREATE FUNCTION fold_case(value TEXT) RETURNS TEXT IMMUTABLE LANGUAGE sql
    AS $$ SELECT LOWER(value COLLATE "default") $$"""
_SEARCH = (
    "CREATE TABLE search (record BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
    "CREATE INDEX search_by_word ON search USING GIN (words)",
)


def open_postgres(url: str, local: Path) -> PostgresStore | SqliteStore:
    """Open the database at `url`; if that fails, warn and open the SQLite index `local` instead."""
    try:
        return PostgresStore(url, local)
    except IndexFailed as error:
        return _open_local(local, error)


class PostgresStore:
    """An index in a PostgreSQL database, in the schema `alchemy_VERSION`."""

    warning = ""

    def __init__(self, url: str, local: Path) -> None:
        self._local = local
        self.site = socket.gethostname()
        self._db = _connect(url)
        try:
            self._prepare()
        except IndexFailed:
            self.close()
            raise

    def fallback(self, error: IndexFailed) -> SqliteStore:
        """Close this index after an error and return the local one."""
        self.close()
        return _open_local(self._local, error)

    def _prepare(self) -> None:
        for name, value in {
            "search_path": NAMESPACE,
            "lock_timeout": f"{BUSY_SECONDS:g}s",
            "idle_in_transaction_session_timeout": "60s",  # a suspended process must not block the others
        }.items():
            self.write(f"SET {name} = '{value}'")
        if not self._has_tables():
            with self.transaction():
                if not self._has_tables():  # another process may have been faster
                    self._create_tables()

    def _has_tables(self) -> bool:
        sql = "SELECT 1 FROM pg_tables WHERE schemaname = :name AND tablename = 'search'"
        return bool(self.query(sql, {"name": NAMESPACE}))

    def _create_tables(self) -> None:
        self.write(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}")
        for statement in (*map(translate, SCHEMA), _FUNCTION, *_SEARCH):
            self.write(statement)

    def clear(self) -> None:
        """Remove the records of this machine; those of others stay."""
        own = "SELECT id FROM records WHERE site = :site"
        with self.transaction():
            for table in ("config", "metrics", "curves", "search"):
                self.write(f"DELETE FROM {table} WHERE record IN ({own})", {"site": self.site})
            self.write("DELETE FROM records WHERE site = :site", {"site": self.site})

    def query(self, sql: str, params: Mapping[str, Any] = {}) -> list[Row]:
        from sqlalchemy import text

        with _report():
            return [tuple(row) for row in self._db.execute(text(sql), params)]

    def write(self, sql: str, params: Mapping[str, Any] = {}) -> None:
        from sqlalchemy import text

        with _report():
            self._db.execute(text(sql), params)

    def write_many(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        from sqlalchemy import text

        if rows:
            with _report():
                self._db.execute(text(sql), rows)

    def insert(self, sql: str, params: Mapping[str, Any]) -> int:
        """Insert a row and return its id."""
        return int(self.query(f"{sql} RETURNING id", params)[0][0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.write("BEGIN")
        try:
            self.write(f"SELECT pg_advisory_xact_lock({LOCK})")
            yield
            self.write("COMMIT")
        except BaseException:
            with contextlib.suppress(IndexFailed):
                self.write("ROLLBACK")
            raise

    def put_words(self, record: int, words: Sequence[str]) -> None:
        """Add the words of a record to the full-text index, as they are: `to_tsvector` would split them differently."""
        sql = "INSERT INTO search (record, words) VALUES (:record, array_to_tsvector(CAST(:words AS TEXT[])))"
        self.write(sql, {"record": record, "words": list(words)})

    def remove_words(self, record: int) -> None:
        self.write("DELETE FROM search WHERE record = :id", {"id": record})

    def text_match(self, column: str, param: str) -> str:
        """Return a condition that is true if the record in `column` contains the words of a full-text query."""
        return f"{column} IN (SELECT record FROM search WHERE words @@ CAST(:{param} AS TSQUERY))"

    def text_query(self, words: Iterable[str]) -> str:
        """Return the full-text query for records that contain all of the words, or words that begin with them."""
        return " & ".join(f"'{word}'{':*' if is_prefix(word) else ''}" for word in words)

    def close(self) -> None:
        with contextlib.suppress(IndexFailed), _report():
            self._db.close()


def translate(statement: str) -> str:
    """Translate a statement of the schema from SQLite.

    >>> translate("CREATE TABLE names (id INTEGER PRIMARY KEY AUTOINCREMENT, size INTEGER NOT NULL)")
    'CREATE TABLE names (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, size BIGINT NOT NULL)'
    """
    return re.sub("|".join(_TYPES), lambda match: _TYPES[match[0]], statement)


def _connect(url: str) -> Connection:
    import_package("psycopg", f"the database that {URL} names")
    sqlalchemy = import_package("sqlalchemy", f"the database that {URL} names")
    try:
        parts = sqlalchemy.make_url(url)
    except sqlalchemy.exc.ArgumentError:
        parts = None
    if parts is None or parts.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise AlchemyError(f"{URL} is not the URL of a PostgreSQL database", hint="postgresql://USER@HOST/DATABASE")
    parts = parts.set(drivername="postgresql+psycopg")
    options = {"connect_timeout": CONNECT_SECONDS, "application_name": "alchemy"}
    # autocommit: transactions are explicit
    engine = sqlalchemy.create_engine(
        parts, poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT", connect_args=options
    )
    with _report():
        return engine.connect()


@contextlib.contextmanager
def _report() -> Iterator[None]:
    """Raise errors of the database as `IndexFailed`, in one line and without the statement."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise IndexFailed(" ".join(str(cause).split())) from error


def _open_local(path: Path, error: IndexFailed) -> SqliteStore:
    store = SqliteStore.open(path)
    store.warning = f"cannot use the database that {URL} names: {error}; using {path} instead"
    return store
