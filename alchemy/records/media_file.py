"""Write the media of a run to `media/` and `media.jsonl` in its record, within a bound on their size."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.files import open_to_append, write_atomic
from alchemy.records.jsonl_writer import count_lines
from alchemy.records.media_entry import FORMAT, MediaEntry
from alchemy.records.read_media import MEDIA, read_media

MAX_MB = 500.0
KEPT = 0.8  # share of the bound that remains after thinning
MAX_NAME = 80  # characters of a folder

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
        if (self.folder / MEDIA).is_file():
            self._begin()
            self._append({"event": "resume", "gen": gen, "from_update": from_update})
            self._begun = False  # without the superseded entries

    def _row(self, entry: MediaEntry) -> dict[str, Any]:
        update, epoch, seconds = entry.moment
        file = f"media/{entry.kind}/{to_path(entry.name)}/u{update}{entry.suffix}" if entry.suffix else ""
        place = {"update": update, "epoch": epoch, "t": round(seconds, 3), "gen": self.gen}
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
        self._kept, self._total, self._begun = {}, 0, True
        for row in read_media(self.folder):
            file = self.folder / row["file"]
            self._remember(row, len(_encode(row)) + (file.stat().st_size if row["file"] else 0))

    def _append(self, row: Mapping[str, Any]) -> int:
        """Append a row and return its number of bytes."""
        data = f"{_encode(row)}\n".encode("utf-8", "backslashreplace")
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
        self._kept, self._total = {}, 0
        for row, size in kept:
            self._remember(row, size)
        lines = [{"event": "start", "format": FORMAT}, *(row for row, _ in kept)]
        write_atomic(self.folder / MEDIA, "".join(f"{_encode(line)}\n" for line in lines))
        for row in removed:
            if row["file"]:
                (self.folder / row["file"]).unlink(missing_ok=True)


def to_path(name: str) -> str:
    """Return the folder for the name of an entry; a name that is no path gets a hash, so that it stays unique.

    >>> to_path("dev/hardest"), to_path("../a b")
    ('dev/hardest', 'a_b-2c2c791a')
    """
    parts = [re.sub(r"[^\w.+=-]", "_", part).strip(".")[:MAX_NAME] for part in name.split("/")]
    path = "/".join(part for part in parts if part)
    if path == name and len(path) <= 2 * MAX_NAME:
        return path
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{path[: 2 * MAX_NAME].rstrip('/')}-{digest}"
