"""Unpack an archive of records that may come from anywhere: nothing in it can write outside its folder.

Only regular files with plain relative names are accepted. Everything is unpacked into a temporary folder, and compared
with the manifest; then the records are moved into place. A record that exists already is never overwritten.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from alchemy.errors import AlchemyError
from alchemy.files import open_to_read, parse_json, readable_size
from alchemy.records.archive import FORMAT, MANIFEST
from alchemy.records.status import INFO

LARGEST = 100 * 2**30  # bytes of all files
LARGEST_MANIFEST = LARGEST_HEADER = 64 * 2**20
MAX_FILES, DEEPEST, LONGEST = 1_000_000, 32, 200  # files, folders in a path, and bytes of a name
BLOCK = 2**20
FREE = 16 * 2**20  # bytes that stay free on the disk


class BadArchive(AlchemyError):
    """An archive that is damaged, or that tries something that an archive of records never does."""

    def __init__(self, message: str) -> None:
        super().__init__(f"not a valid archive of records: {message}")


@dataclass
class Unpacked:
    """The records that were added, and the ids of those that existed already."""

    added: list[Path] = field(default_factory=list)
    existing: list[str] = field(default_factory=list)


def unpack_archive(path: Path, target: Path, known: Collection[str] = (), *, largest: int = LARGEST) -> Unpacked:
    """Unpack an archive into `target/<id>`; records with an id in `known` or in `target` are left out."""
    done = Unpacked()
    try:
        target.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=".import-", dir=target))
        try:
            for name in _unpack(path, room, min(largest, shutil.disk_usage(room).free - FREE)):
                if name in known or os.path.lexists(target / name):
                    done.existing.append(name)
                else:
                    os.rename(room / name, target / name)
                    done.added.append(target / name)
        finally:
            shutil.rmtree(room, ignore_errors=True)
    except OSError as error:
        raise AlchemyError(f"cannot unpack {path}: {error.strerror or error}") from error
    return done


def _unpack(path: Path, room: Path, largest: int) -> list[str]:
    """Write all files below `room`, verify them, and return the ids of the records."""
    with open_to_read(path) as raw:
        magic = raw.read(2)
        raw.seek(0)
        stream = _Limited(gzip.GzipFile(fileobj=raw) if magic == b"\x1f\x8b" else raw, largest)
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:  # type: ignore[call-overload]
                found, manifest = _write_members(tar, room)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError) as error:
            raise BadArchive(str(error) or type(error).__name__) from error
    entries = _read_manifest(manifest)
    stated = {f"{name}/{file}": digest for name, entry in entries.items() for file, digest in entry["files"].items()}
    if stated != found:
        wrong = sorted({*stated, *found} - {name for name in found if stated.get(name) == found[name]})
        raise BadArchive(f"{wrong[0]!r} is not as its manifest says")
    for name, entry in entries.items():
        _write_links(room / name, entry)
    return list(entries)


def _write_members(tar: tarfile.TarFile, room: Path) -> tuple[dict[str, tuple[int, str]], bytes]:
    """Write the members to disk; return the size and hash of each, and the manifest."""
    found: dict[str, tuple[int, str]] = {}
    for member in tar:
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
            raise BadArchive(f"{member.name!r} is not a regular file")
        content = tar.extractfile(member)
        assert content is not None
        if member.name == MANIFEST:
            return found, content.read(LARGEST_MANIFEST)
        check_name(member.name)
        if member.name in found or len(found) >= MAX_FILES:
            raise BadArchive(f"{member.name!r} occurs twice" if member.name in found else "too many files")
        found[member.name] = _write_file(content, room / member.name, member.mtime)
    raise BadArchive(f"it has no {MANIFEST}: was it cut off?")


def check_name(name: str) -> None:
    """Raise an error unless a name is `<id>/<path>` without `..`, hidden ids, control characters and the like."""
    parts = name.split("/")
    is_plain = all(part not in ("", ".", "..") and len(os.fsencode(part)) <= LONGEST for part in parts)
    if not is_plain or "\\" in name or not name.isprintable() or name.startswith("."):
        raise BadArchive(f"it contains a file with the name {name[:100]!r}")
    if not 2 <= len(parts) <= DEEPEST:
        raise BadArchive(f"{name[:100]!r} is not a file in a record")


def _write_file(content: IO[bytes], path: Path, modified: float) -> tuple[int, str]:
    """Write a new file; return its size and hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb") as out:
        while block := content.read(BLOCK):
            digest.update(block)
            size += len(block)
            out.write(block)
    if 0 < modified < 2**33:
        os.utime(path, (modified, modified))
    return size, digest.hexdigest()


def _read_manifest(data: bytes) -> dict[str, dict[str, Any]]:
    """Return the entries of a manifest by record id, with `files: {name: (size, hash)}`."""
    try:
        manifest = parse_json(data.decode("utf-8"))
        if manifest["format"] != FORMAT:
            raise BadArchive(f"it has format {manifest['format']!r}, expected {FORMAT}")
        entries: dict[str, dict[str, Any]] = {}
        for entry in manifest["records"]:
            files = {str(name): (file["bytes"], file["sha256"]) for name, file in entry["files"].items()}
            links = {str(name): str(first) for name, first in entry["links"].items()}
            entries[str(entry["id"])] = {"files": files, "links": links}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadArchive(f"{MANIFEST} is damaged: {error}") from error
    for name, entry in entries.items():
        if INFO not in entry["files"] and "cfg.toml" not in entry["files"]:
            raise BadArchive(f"{name!r} is not a record")
    return entries


def _write_links(record: Path, entry: Mapping[str, Any]) -> None:
    """Create the hard links of a record; they may only refer to its own files."""
    for name, first in entry["links"].items():
        check_name(f"{record.name}/{name}")
        if first not in entry["files"]:
            raise BadArchive(f"{name!r} is a link to {first!r}, which is not a file of the record")
        (record / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(record / first, record / name)
        except FileExistsError as error:
            raise BadArchive(f"{name!r} occurs twice") from error
        except OSError:  # a file system without hard links
            shutil.copy2(record / first, record / name)


class _Limited:
    """A stream that ends with an error after `largest` bytes, or if a single header is huge: see zip bombs."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, largest: int) -> None:
        self._stream, self._left, self._largest = stream, largest, largest

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST_HEADER:  # tarfile reads files in small blocks, but headers as a whole
            raise BadArchive("it has a header that is too large")
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise BadArchive(f"it needs more than {readable_size(self._largest)}")
        return data

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, place: int) -> int:
        skipped = place - self._stream.tell()
        if skipped < 0:
            raise BadArchive("its members overlap")
        while skipped > 0:
            block = self.read(min(skipped, BLOCK))
            if not block:
                raise BadArchive("it was cut off")
            skipped -= len(block)
        return place
