"""Pack records into one archive.

An archive is a tar file, compressed with gzip if its name ends in `.gz` or `.tgz`. It contains the regular files of the
records as `<id>/<path>`; hard links stay hard links. The last member, `manifest.json`, lists the size and hash of every
file, and the links.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from alchemy.errors import AlchemyError
from alchemy.files import open_to_read, open_to_replace
from alchemy.records.disk_usage import RecordFile, kind_of_file, list_files
from alchemy.records.readme import EDIT_LOCK
from alchemy.records.status import LOCK, now, refuse_running, try_read_info

FORMAT = 1
MANIFEST = "manifest.json"
COMPRESSED = (".gz", ".tgz")
LEVEL = 1  # weights hardly compress: a higher level takes several times as long for a few percent
_LOCKS = (LOCK, EDIT_LOCK)


class Packed(NamedTuple):
    """A finished archive: its size, the number of files, and the links and special files that were left out."""

    bytes: int
    files: int
    left_out: list[str]


def write_archive(path: Path, records: Sequence[Path], *, checkpoints: bool = True) -> Packed:
    """Write an archive of some records; it appears under its name only when it is complete."""
    _check(path, records)
    entries: list[dict[str, Any]] = []
    left_out: list[str] = []
    try:
        with open_to_replace(path) as raw, _compress(raw, path) as stream, _open_tar(stream) as tar:
            for record in records:
                entries.append(_add_record(tar, record, checkpoints))
                left_out += [f"{record.name}/{name}" for name in _find_others(record)]
            manifest = {"format": FORMAT, "created": now(), "records": entries}
            _add(tar, MANIFEST, io.BytesIO(text := json.dumps(manifest, ensure_ascii=False).encode()), len(text))
    except OSError as error:
        raise AlchemyError(f"cannot write {path}: {error.strerror or error}") from error
    return Packed(path.stat().st_size, sum(len(entry["files"]) + len(entry["links"]) for entry in entries), left_out)


def _check(path: Path, records: Sequence[Path]) -> None:
    if os.path.lexists(path):
        raise AlchemyError(f"{path} exists already", hint="choose another name, or remove it")
    if not path.parent.is_dir():
        raise AlchemyError(f"folder not found: {path.parent}")
    if inside := next((record for record in records if _is_inside(path, record)), None):
        raise AlchemyError(f"{path} is inside the record {inside}", hint="choose a place outside of it")
    names = [record.name for record in records]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise AlchemyError(f"two of the records have the same id: {repeated[0]}", hint="archive them separately")
    for record in records:
        refuse_running(record, try_read_info(record))  # damaged records can be archived too


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _add_record(tar: tarfile.TarFile, record: Path, checkpoints: bool) -> dict[str, Any]:
    files: dict[str, dict[str, Any]] = {}
    links: dict[str, str] = {}
    first: dict[tuple[int, int], str] = {}
    for file in _select(record, checkpoints):
        if file.links > 1 and file.inode in first:
            links[file.name] = first[file.inode]
            _add_link(tar, f"{record.name}/{file.name}", f"{record.name}/{first[file.inode]}")
            continue
        first[file.inode] = file.name
        with open_to_read(record / file.name) as content:
            digest = _Hashing(content)
            size = os.fstat(content.fileno()).st_size
            _add(tar, f"{record.name}/{file.name}", digest, size, file.modified)
        files[file.name] = {"bytes": size, "sha256": digest.hash.hexdigest()}
    return {"id": record.name, "files": files, "links": links}


def _select(record: Path, checkpoints: bool) -> Iterator[RecordFile]:
    for file in list_files(record):
        temporary = file.name.startswith(("state/.", "checkpt/."))
        if file.name not in _LOCKS and not temporary and (checkpoints or kind_of_file(file.name) != "checkpoints"):
            yield file


def _find_others(record: Path) -> Iterator[str]:
    """Yield what an archive cannot contain: symbolic links, FIFOs and devices."""
    files = {file.name for file in list_files(record)}
    for folder, names, others in os.walk(record):
        for name in (*others, *names):
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, record)
            if relative not in files and (os.path.islink(path) or not os.path.isdir(path)):
                yield relative


def _add(tar: tarfile.TarFile, name: str, content: _Readable, size: int, modified: float = 0.0) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, int(modified), 0o644
    tar.addfile(member, content)


def _add_link(tar: tarfile.TarFile, name: str, first: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = tarfile.LNKTYPE, first, 0o644
    tar.addfile(member)


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Hashing:
    """A stream that hashes what is read from it."""

    def __init__(self, content: IO[bytes]) -> None:
        self._content, self.hash = content, hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        data = self._content.read(size)
        self.hash.update(data)
        return data


@contextlib.contextmanager
def _compress(raw: IO[bytes], path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if path.name.endswith(COMPRESSED):
        with gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as stream:
            yield stream
    else:
        yield raw


def _open_tar(stream: IO[bytes] | gzip.GzipFile) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)
