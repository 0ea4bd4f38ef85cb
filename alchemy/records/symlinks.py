"""Links in a record that leave it: a record that came from elsewhere could use them to reach the user's own files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from alchemy.errors import AlchemyError

MOST_NAMED = 5
BACKUP = "backup"  # a copy of code, which may hold links; it is replaced as a whole, and never read


def refuse_links(record: Path) -> Path:
    """The record itself, or an error if a link in it leads out of it; the path to a record may have links.

    It is looked at once, when a record is opened: links that another process makes after that are not seen.
    """
    found = sorted(_links_out(record))
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise AlchemyError(
            f"{record} has links that lead out of it: {', '.join(found[:MOST_NAMED])}{more}",
            hint="remove them, or put the files themselves in their place",
        )
    return record


def path_inside(record: Path, name: str) -> Path:
    """A path in a record, or an error if a link, as those that its backup may hold, leads out of it."""
    path, root = record / name, os.path.realpath(record)
    if not os.path.realpath(path).startswith(root + os.sep):
        raise AlchemyError(f"{path} leads out of the record, through a link", hint="remove the link")
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
