"""Write the media of a run to `media/` and `media.jsonl` in its record, within a bound on their size."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.files import open_to_append, write_atomic
from alchemy.records.jsonl_writer import count_lines
from alchemy.records.media_entry import FORMAT, MediaEntry
from alchemy.records.read_media import MEDIA, read_media

MAX_MB = 500.0
KEPT = 0.8  # share of the bound that remains after thinning
MAX_NAME = 80  # bytes of a folder
_TAKEN = re.compile(r"-[0-9a-f]{8}$|(^|/)u\d+\.")  # names that could be those of other entries or of files

_Key = tuple[str, str, int]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class MediaFile:
    """Appends entries to `media.jsonl` and writes their files; it is created with the first entry.

    If all entries together exceed `max_mb`, every second entry of the older half is removed, with one warning, until
    they fit: the latest entries stay complete, and early ones become sparser.
    """

    def __init__(self, folder: Path, *, gen: int = 0, max_mb: float = MAX_MB) -> None:
        self.folder, self.gen, self.max_mb = folder, gen, max_mb
        self._kept: dict[_Key, tuple[dict[str, Any], int]] = {}  # rows and their bytes, oldest first
        self._total = 0
        self._begun = self._warned = False
        self._resumed: dict[str, Any] | None = None  # the row of a resume that is not written yet

    def write(self, entry: MediaEntry) -> None:
        """Write the file of an entry, then its row, so that every row has a file."""
        if len(entry.data) > self.max_mb * 2**20:
            raise ValueError(f"its {len(entry.data) / 2**20:.1f} MB exceed max_media_mb = {self.max_mb:g}")
        self._begin()
        row = self._row(entry)
        if entry.suffix:
            path = self.folder / row["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, entry.data)
        self._remember(row, self._append(row) + len(entry.data))
        if self._total > self.max_mb * 2**20:
            self._thin()

    def resume(self, gen: int, from_update: int) -> None:
        """Continue as generation `gen`; entries after `from_update` are superseded."""
        self.gen = gen
        if not (self.folder / MEDIA).is_file():
            return
        self._resumed = {"event": "resume", "gen": gen, "from_update": from_update}
        try:
            self._begin()
        except OSError as error:
            logger.warning("cannot write to {}; training continues: {}", MEDIA, error)

    def _row(self, entry: MediaEntry) -> dict[str, Any]:
        update, epoch, seconds, at = entry.moment
        file = f"media/{entry.kind}/{to_path(entry.name)}/u{update}{entry.suffix}" if entry.suffix else ""
        place = {"update": update, "epoch": epoch, "t": round(seconds, 3), "gen": self.gen}
        place |= {} if at is None else {"at": at}
        return place | {"kind": entry.kind, "name": entry.name, "file": file, "info": dict(entry.info)}

    def _begin(self) -> None:
        """Begin the file, or complete the line that a crash has cut off and read the entries of earlier generations."""
        path = self.folder / MEDIA
        if self._begun and path.exists():  # the folder may have been deleted
            return
        lines, cut = count_lines(path) if path.exists() else (0, False)
        if cut:
            self._append_bytes(b"\n")
        if not lines:
            self._append({"event": "start", "format": FORMAT})
        if self._resumed:
            before = {row["file"] for row in read_media(self.folder)}
            self._append(self._resumed)
            self._resumed = None
            self._delete(before - {row["file"] for row in read_media(self.folder)})
        self._kept, self._total, self._begun = {}, 0, True
        for row in read_media(self.folder):
            file = self.folder / row["file"]
            self._remember(row, len(_encode(row)) + (file.stat().st_size if row["file"] else 0))

    def _append(self, row: Mapping[str, Any]) -> int:
        """Append a row and return its number of bytes."""
        data = _to_line(row)
        self._append_bytes(data)
        return len(data)

    def _append_bytes(self, data: bytes) -> None:
        file = open_to_append(self.folder / MEDIA)
        try:
            written = os.write(file, data)
        finally:
            os.close(file)
        if written < len(data):
            self._begun = False  # the next entry completes the line
            raise OSError(f"only {written} of {len(data)} bytes could be written to {MEDIA}")

    def _remember(self, row: dict[str, Any], size: int) -> None:
        key = (row["kind"], row["name"], row["update"])
        self._total += size - self._kept.pop(key, (row, 0))[1]
        self._kept[key] = (row, size)

    def _thin(self) -> None:
        """Remove every second entry of the older half until the rest fits, and rewrite the rows."""
        kept, removed = list(self._kept.values()), list[dict[str, Any]]()
        while sum(size for _, size in kept) > KEPT * self.max_mb * 2**20 and len(kept) > 1:
            older = kept[: (len(kept) + 1) // 2]
            removed += [row for row, _ in older[::2]]
            kept = older[1::2] + kept[len(older) :]
        if not self._warned:
            self._warned = True
            text = "the media of this run exceed max_media_mb = {:g}: older entries become sparser, {} of {} go now"
            logger.warning(text, self.max_mb, len(removed), len(self._kept))
        lines = [{"event": "start", "format": FORMAT}, *(row for row, _ in kept)]
        write_atomic(self.folder / MEDIA, b"".join(map(_to_line, lines)))
        self._kept, self._total = {}, 0
        for row, size in kept:
            self._remember(row, size)
        self._delete(row["file"] for row in removed)

    def _delete(self, files: Iterable[str]) -> None:
        for file in filter(None, files):
            (self.folder / file).unlink(missing_ok=True)


def _to_line(row: Mapping[str, Any]) -> bytes:
    return f"{_encode(row)}\n".encode("utf-8", "backslashreplace")


def to_path(name: str) -> str:
    """Return the folder for the name of an entry; a name that is no path gets a hash, so that it stays unique.

    >>> to_path("dev/hardest"), to_path("../a b")
    ('dev/hardest', 'a_b-2c2c791a')
    """
    parts = [_cut(re.sub(r"[^\w.+=-]", "_", part).strip(".")) for part in name.split("/")]
    path = "/".join(part for part in parts if part)
    if path == name and len(path) <= 2 * MAX_NAME and not _TAKEN.search(name):
        return path
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{path[: 2 * MAX_NAME].rstrip('/')}-{digest}"


def _cut(part: str) -> str:
    return part.encode("utf-8", "ignore")[:MAX_NAME].decode("utf-8", "ignore")
