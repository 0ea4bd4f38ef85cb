"""The tables of the index.

Everything in them comes from record folders, so that a new version of the schema simply rebuilds the index.
"""

from __future__ import annotations

VERSION = 3

# `site` is the machine that sees the path: a team may share one database. Times are seconds since the epoch.
SCHEMA = (
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY, site TEXT NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL,
        name TEXT NOT NULL, tag TEXT NOT NULL, title TEXT NOT NULL, purpose TEXT NOT NULL, tags TEXT NOT NULL,
        notes TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER,
        pid_started BIGINT, heartbeat DOUBLE PRECISION, started DOUBLE PRECISION, ended DOUBLE PRECISION,
        seconds DOUBLE PRECISION, kind TEXT NOT NULL, parent TEXT NOT NULL, variant TEXT NOT NULL, seed TEXT NOT NULL,
        gen INTEGER NOT NULL, cmd TEXT NOT NULL, cfg_hash TEXT NOT NULL, fold_hash TEXT NOT NULL,
        code_hash TEXT NOT NULL, git TEXT NOT NULL, best_metric TEXT NOT NULL, best_value DOUBLE PRECISION,
        best_update BIGINT, updates BIGINT, metrics_bytes BIGINT NOT NULL,
        cause TEXT NOT NULL, signature TEXT NOT NULL, problem TEXT NOT NULL, UNIQUE (site, path)
    )""",
    "CREATE INDEX records_by_name ON records (name)",
    "CREATE INDEX records_by_parent ON records (parent)",
    "CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # one row per config value: `number` is null unless the value is a number or a boolean
    """CREATE TABLE config (
        key INTEGER NOT NULL, record INTEGER NOT NULL, number DOUBLE PRECISION, text TEXT NOT NULL,
        PRIMARY KEY (key, record)
    ) WITHOUT ROWID""",
    # one row per metric of a record: its last value, its value at the best checkpoint, and its extremes
    """CREATE TABLE metrics (
        metric INTEGER NOT NULL, record INTEGER NOT NULL, last DOUBLE PRECISION, at_best DOUBLE PRECISION,
        lowest DOUBLE PRECISION, highest DOUBLE PRECISION, points BIGINT NOT NULL,
        PRIMARY KEY (metric, record)
    ) WITHOUT ROWID""",
    "CREATE INDEX metrics_by_record ON metrics (record)",
    # the buckets of a long curve at one level of detail, packed: see alchemy/index/curves.py
    """CREATE TABLE curves (
        record INTEGER NOT NULL, metric INTEGER NOT NULL, level INTEGER NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (record, metric, level)
    )""",
)
