"""Read `media.jsonl`, the list of the media that a run has logged."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from alchemy.records.jsonl_writer import read_lines
from alchemy.records.media_entry import KINDS

MEDIA = "media.jsonl"


def read_media(folder: str | Path) -> list[dict[str, Any]]:
    """Return the media of a record, in the order in which they were logged.

    Rows that are damaged, superseded by a resumed run or replaced by a later row are left out, as are rows whose file
    is missing, a link or outside `media/`.
    """
    path, kept = Path(folder, MEDIA), dict[tuple[str, str, int], dict[str, Any]]()
    if not path.is_file() or path.is_symlink():
        return []
    for _, row in read_lines(path):
        if row is None:
            continue
        if row.get("event") == "resume" and type(row.get("from_update")) is int:
            kept = {key: entry for key, entry in kept.items() if _logged_at(entry) <= row["from_update"]}
        elif _is_valid(row):
            key = (row["kind"], row["name"], row["update"])
            kept.pop(key, None)
            kept[key] = row
    return [row for row in kept.values() if not row["file"] or _is_inside(Path(folder), row["file"])]


def _logged_at(row: dict[str, Any]) -> int:
    """Return the update of the run at which an entry was logged."""
    at = row.get("at")
    return at if type(at) is int else int(row["update"])


def _is_valid(row: dict[str, Any]) -> bool:
    types = {"update": int, "kind": str, "name": str, "file": str, "info": dict}
    return all(type(row.get(key)) is kind for key, kind in types.items()) and row["kind"] in KINDS


def _is_inside(folder: Path, file: str) -> bool:
    """Return whether a file is a regular file below `media/`, reached through no link."""
    parts = PurePosixPath(file).parts
    if parts[:1] != ("media",) or ".." in parts:
        return False
    paths = [folder.joinpath(*parts[: number + 1]) for number in range(len(parts))]
    try:
        return paths[-1].is_file() and not any(path.is_symlink() for path in paths)
    except (OSError, ValueError):  # a name that no file can have
        return False
