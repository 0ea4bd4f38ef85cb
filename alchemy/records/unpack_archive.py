"""Unpack an archive of records that may come from anywhere: nothing in it can write outside its folder.

Only regular files with plain relative names, and hard links to them, are accepted. Everything is unpacked into a
temporary folder and compared with the manifest; then the records are moved into place. A record that exists already is
never overwritten.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from alchemy.errors import AlchemyError
from alchemy.files import open_to_read, parse_json, readable_size
from alchemy.records.archive import FORMAT, MANIFEST
from alchemy.records.status import INFO

LARGEST = 100 * 2**30  # bytes of all files
LARGEST_MANIFEST = LARGEST_HEADER = 64 * 2**20
MAX_FILES, DEEPEST, LONGEST = 1_000_000, 32, 200  # files, folders in a path, and bytes of a name
BLOCK = 2**20
ROOM = ".import-"  # prefix of the temporary folder
FREE = 16 * 2**20  # bytes that stay free on the disk


# the standard library raises any of these for headers that are damaged
_DAMAGES = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, LookupError, ArithmeticError)


class BadArchive(Exception):
    """An archive is damaged, or contains what an archive of records never contains."""


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
        _remove_leftovers(target)
        room = Path(tempfile.mkdtemp(prefix=ROOM, dir=target))
        try:
            for name in _unpack(path, room, min(largest, shutil.disk_usage(room).free - FREE)):
                if name in known or os.path.lexists(target / name):
                    done.existing.append(name)
                else:
                    os.rename(room / name, target / name)
                    done.added.append(target / name)
        finally:
            shutil.rmtree(room, ignore_errors=True)
    except BadArchive as error:
        raise AlchemyError(f"{path} is not a valid archive of records: {error}") from error
    except OSError as error:
        raise AlchemyError(f"cannot unpack {path}: {error.strerror or error}") from error
    return done


def _remove_leftovers(target: Path) -> None:
    """Remove what killed processes have unpacked; recent folders may be in use."""
    for room in target.glob(f"{ROOM}*"):
        if time.time() - room.lstat().st_mtime > 86400:
            shutil.rmtree(room, ignore_errors=True)


def _unpack(path: Path, room: Path, largest: int) -> list[str]:
    """Write all files below `room`, verify them, and return the ids of the records."""
    with open_to_read(path) as raw:
        magic = raw.read(2)
        raw.seek(0)
        stream = _Limited(gzip.GzipFile(fileobj=raw) if magic == b"\x1f\x8b" else raw, largest)
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:  # type: ignore[call-overload]
                members = _write_members(tar, room)
        except _DAMAGES as error:
            raise BadArchive(str(error) or type(error).__name__) from error
    files, links, ids = _read_manifest(members.manifest)
    for found, stated in ((members.files, files), (members.links, links)):
        if found != stated:
            wrong = next(name for name in sorted({*found, *stated}) if found.get(name) != stated.get(name))
            raise BadArchive(f"{wrong[:100]!r} is not as its manifest says")
    return ids


class _Members(NamedTuple):
    """The members of an archive: size and hash of each file, the links with their targets, and the manifest."""

    files: dict[str, tuple[int, str]]
    links: dict[str, str]
    manifest: bytes


def _write_members(tar: tarfile.TarFile, room: Path) -> _Members:
    """Write the members to disk, up to the manifest, which is the last one."""
    files: dict[str, tuple[int, str]] = {}
    links: dict[str, str] = {}
    for member in tar:
        name = member.name
        if name == MANIFEST and member.type == tarfile.REGTYPE:
            return _Members(files, links, _content(tar, member).read(LARGEST_MANIFEST))
        check_name(name)
        if name in files or name in links or len(files) + len(links) >= MAX_FILES:
            raise BadArchive("it has too many files" if name not in files | links else f"{name!r} occurs twice")
        if member.type == tarfile.LNKTYPE:
            if member.linkname not in files or member.linkname.partition("/")[0] != name.partition("/")[0]:
                raise BadArchive(f"{name!r} is a link to {member.linkname[:100]!r}, which is not a file of the record")
            _write_link(room / member.linkname, room / name)
            links[name] = member.linkname
        elif member.type == tarfile.REGTYPE and member.sparse is None:
            files[name] = _write_file(_content(tar, member), room / name, member.mtime)
        else:
            raise BadArchive(f"{name!r} is not a regular file")
    raise BadArchive(f"it has no {MANIFEST}: was it cut off?")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(member)
    assert content is not None  # a regular file
    return content


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


def _write_link(first: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(first, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        shutil.copy2(first, path)


def _read_manifest(data: bytes) -> tuple[dict[str, tuple[int, str]], dict[str, str], list[str]]:
    """Return the files, links and record ids of a manifest, with names as in the archive."""
    files: dict[str, tuple[int, str]] = {}
    links: dict[str, str] = {}
    ids: list[str] = []
    try:
        manifest = parse_json(data.decode("utf-8"))
        if manifest["format"] != FORMAT:
            raise BadArchive(f"it has format {str(manifest['format'])[:20]}, expected {FORMAT}")
        for entry in manifest["records"]:
            own = entry["id"]
            is_record = INFO in entry["files"] or "cfg.toml" in entry["files"]
            if not isinstance(own, str) or "/" in own or own in ids or not is_record:
                raise BadArchive(f"{str(own)[:100]!r} is not a record")
            ids.append(own)
            files |= {f"{own}/{name}": (file["bytes"], file["sha256"]) for name, file in entry["files"].items()}
            links |= {f"{own}/{name}": f"{own}/{first}" for name, first in entry["links"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadArchive(f"{MANIFEST} is damaged: {error}") from error
    return files, links, ids


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
