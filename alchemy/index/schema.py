"""The tables of the index, in the SQL of SQLite; `postgres.py` translates them.

Everything in them comes from record folders, so that a new version of the schema simply rebuilds the index.
"""

from __future__ import annotations

VERSION = 8

# `site` is the machine that sees the path: a team may share one database. Times are seconds since the epoch.
SCHEMA = (
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY AUTOINCREMENT, site TEXT NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL,
        name TEXT NOT NULL, tag TEXT NOT NULL DEFAULT '', title TEXT NOT NULL DEFAULT '',
        purpose TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '', notes TEXT NOT NULL DEFAULT '',
        status TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '', host TEXT NOT NULL DEFAULT '',
        pid INTEGER, pid_started INTEGER, heartbeat DOUBLE PRECISION, started DOUBLE PRECISION, ended DOUBLE PRECISION,
        seconds DOUBLE PRECISION, kind TEXT NOT NULL DEFAULT '', parent TEXT NOT NULL DEFAULT '',
        variant TEXT NOT NULL DEFAULT '', sweep TEXT NOT NULL DEFAULT '', point INTEGER,
        seed TEXT NOT NULL DEFAULT '', seed_number DOUBLE PRECISION, gen INTEGER NOT NULL DEFAULT 0,
        cmd TEXT NOT NULL DEFAULT '', cfg_hash TEXT NOT NULL DEFAULT '', fold_hash TEXT NOT NULL DEFAULT '',
        code_hash TEXT NOT NULL DEFAULT '', git TEXT NOT NULL DEFAULT '',
        best_metric TEXT NOT NULL DEFAULT '', best_value DOUBLE PRECISION, best_update INTEGER, updates INTEGER,
        metrics_bytes INTEGER NOT NULL DEFAULT 0, metrics_lines INTEGER NOT NULL DEFAULT 0,
        mark_bytes INTEGER NOT NULL DEFAULT 0, mark_lines INTEGER NOT NULL DEFAULT 0,
        cause TEXT NOT NULL DEFAULT '', signature TEXT NOT NULL DEFAULT '',
        problem TEXT NOT NULL DEFAULT '', UNIQUE (site, path)
    )""",
    "CREATE INDEX records_by_name ON records (name)",
    "CREATE INDEX records_by_parent ON records (parent)",
    "CREATE TABLE names (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
    # one row per config value: `number` is null unless the value is a number or a boolean
    """CREATE TABLE config (
        record INTEGER NOT NULL, key INTEGER NOT NULL, number DOUBLE PRECISION, text TEXT NOT NULL,
        PRIMARY KEY (record, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX config_by_key ON config (key, number)",
    # one row per metric of a record: its last value, its value at the best checkpoint, and its extremes
    """CREATE TABLE metrics (
        record INTEGER NOT NULL, metric INTEGER NOT NULL, last DOUBLE PRECISION, at_best DOUBLE PRECISION,
        lowest DOUBLE PRECISION, highest DOUBLE PRECISION, points INTEGER NOT NULL,
        PRIMARY KEY (record, metric)
    ) WITHOUT ROWID""",
    "CREATE INDEX metrics_by_name ON metrics (metric)",
    # the buckets of a long curve at one level of detail, packed: see alchemy/index/curves.py
    """CREATE TABLE curves (
        record INTEGER NOT NULL, metric INTEGER NOT NULL, level INTEGER NOT NULL, points INTEGER NOT NULL,
        data BLOB NOT NULL, PRIMARY KEY (record, metric, level)
    )""",
)

LONGEST_NAME = 500  # characters: an index of PostgreSQL has entries of at most 2.7 kB
LONGEST_PATH = 2500  # bytes


def is_storable(name: str) -> bool:
    """Return whether the name of a config key or metric can be stored: not too long, and valid Unicode without NUL.

    >>> is_storable("dev/f1"), is_storable("dev/\\0"), is_storable("\\ud800"), is_storable("x" * 501)
    (True, False, False, False)
    """
    return len(name) <= LONGEST_NAME and make_storable(name) == name


def make_storable(text: str) -> str:
    """Replace what databases cannot store: NUL characters and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
