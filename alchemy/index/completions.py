"""Names for shell completion, read from the index as it is: fast, and without errors."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from alchemy.index.store import DATABASE

BUSY_SECONDS = 0.2
MAX_NAMES = 100
# completions become part of a command line, and record folders come from anywhere: only harmless names are offered
_HARMLESS = re.compile(r"[\w.+@%=/-]+")

_RECORDS = "SELECT name FROM records WHERE substr(name, 1, length(:typed)) = :typed ORDER BY started DESC, name"
_NAMES = "SELECT name FROM names n WHERE substr(name, 1, length(:typed)) = :typed AND EXISTS ({}) ORDER BY name"
_METRICS = _NAMES.format("SELECT 1 FROM metrics m WHERE m.metric = n.id")
_KEYS = _NAMES.format("SELECT 1 FROM config c WHERE c.key = n.id")


def is_harmless(name: str) -> bool:
    """Return whether a shell takes a name as it is.

    >>> is_harmless("2026-01-01_12-00-00.000000"), is_harmless("$(reboot)"), is_harmless("-rf")
    (True, False, False)
    """
    return _HARMLESS.fullmatch(name) is not None and not name.startswith("-")


def complete_record(home: Path, typed: str) -> list[str]:
    """Return the records whose names start with a text, newest first; also `last` and `best(METRIC)`."""
    found = [name for name in ("last", "latest") if typed and name.startswith(typed)]
    if typed.startswith("b"):
        found += [name for metric in complete_metric(home, "") if (name := f"best({metric})").startswith(typed)]
    return found + list(_read(home, _RECORDS, typed))


def complete_metric(home: Path, typed: str) -> list[str]:
    return list(_read(home, _METRICS, typed))


def complete_column(home: Path, typed: str) -> list[str]:
    """Return the fields, metrics and config keys that start with a text."""
    from alchemy.index.listing import FIELD_COLUMNS

    fields = [name for name in FIELD_COLUMNS if name.startswith(typed)]
    return [*fields, *_read(home, _METRICS, typed), *_read(home, _KEYS, typed)]


def _read(home: Path, sql: str, typed: str) -> Iterator[str]:
    """Yield harmless names from the database; none if there is no index, or if it is busy, damaged or PostgreSQL."""
    path = home / DATABASE
    if os.environ.get("ALCHEMY_DB") or not path.is_file():
        return
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as db:
            for (name,) in db.execute(f"{sql} LIMIT {MAX_NAMES}", {"typed": typed}):
                if isinstance(name, str) and is_harmless(name):
                    yield name
    except sqlite3.Error:
        return
