"""Reject symbolic links that point outside a record, which an untrusted record could use to access other files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from alchemy.errors import AlchemyError

MAX_LISTED = 5
BACKUP = "backup"  # a copy of the code that may contain links; never read, and only replaced as a whole


def refuse_links(record: Path) -> Path:
    """Return the record; raise an error if a link inside it points outside. The path to the record may contain links.

    The check runs once, when a record is opened, so it misses links that another process creates later.
    """
    found = sorted(_links_out(record))
    if found:
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        raise AlchemyError(
            f"{record} contains links that point outside it: {', '.join(found[:MAX_LISTED])}{more}",
            hint="remove them, or replace them with the files themselves",
        )
    return record


def path_inside(record: Path, name: str) -> Path:
    """Return a path in a record; raise an error if a link on the path points outside (a backup may contain links)."""
    path, root = record / name, os.path.realpath(record)
    if not os.path.realpath(path).startswith(root + os.sep):
        raise AlchemyError(f"{path} points outside the record through a link", hint="remove the link")
    return path


def _links_out(record: Path) -> Iterator[str]:
    root = os.path.realpath(record)
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path) and not f"{os.path.realpath(path)}{os.sep}".startswith(root + os.sep):
                yield f"{os.path.relpath(path, root)} -> {os.readlink(path)}"
        if folder == root and BACKUP in names:
            names.remove(BACKUP)
