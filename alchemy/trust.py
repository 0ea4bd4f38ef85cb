"""The trust store: digests of the configs and code of records that the user has written or decided to trust.

The store is a file in the user's home directory with one digest and path per line. If the store is
damaged or others can write to it, nothing is trusted. If it cannot be written, the run continues with a warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection
from functools import cache
from pathlib import Path

from alchemy.files import hash_file, write_atomic

CONFIG, INFO, BACKUP = "cfg.toml", "record.json", "backup"
# expected next to record.json, because a file with that name alone may be user data
_SIBLINGS = (CONFIG, "run.log", "state", "checkpt", "backup", "metrics.jsonl", "ledger.jsonl")
_OLD = (CONFIG, "run.log", "checkpt")  # records from 0.x have no record.json

_written: set[str] = set()  # written by this process and trusted even without a store


def store() -> Path | None:
    """Return the path of the store; None if there is no home directory or it is inside a record."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    folder = config if os.path.isabs(config) else os.path.expanduser("~/.config")
    if not os.path.isabs(folder) or record_of(folder):
        return None
    return Path(folder, "alchemy", "trusted")


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of_folder(folder: str | Path) -> str:
    """Return a digest of the names and contents of everything in a folder, including cached bytecode."""
    digest = hashlib.sha256(b"folder\n")
    for place, names, files in os.walk(folder):
        names.sort()
        for name in sorted((*names, *files)):
            path = os.path.join(place, name)
            if os.path.islink(path):
                content = f"link {os.readlink(path)}"
            else:
                content = "folder" if name in names else _hash_any(path)
            digest.update(f"{os.path.relpath(path, folder)!r} {content!r}\n".encode())
    return digest.hexdigest()


def _hash_any(path: str) -> str:
    try:
        return hash_file(path)
    except OSError:  # not a regular file, or not readable: it cannot be imported either
        return "unreadable"


def is_trusted(digest: str) -> bool:
    return digest in _written or f"\n{digest}".encode() in b"\n" + _read()


def trust(digest: str, path: str | Path) -> None:
    """Add the digest of a config; `path` is stored for display."""
    file = store()
    if is_trusted(digest):
        return
    _written.add(digest)
    try:
        if file is None:
            raise OSError("no home directory")
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # a single small append needs no lock; the leading newline ends a truncated line
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            os.write(handle, f"\n{digest}  {json.dumps(os.path.realpath(path))}\n".encode())
        finally:
            os.close(handle)
    except OSError as error:
        _warn(
            f"{file or 'the trust store'} cannot be written: {error.strerror or error}; run `alchemy trust` if needed"
        )


def distrust(digests: Collection[str]) -> None:
    """Remove digests from the store."""
    _written.difference_update(digests)
    file, rows = store(), entries()
    if file is not None and any(digest in rows for digest in digests):
        kept = {digest: path for digest, path in rows.items() if digest not in digests}
        write_atomic(file, "".join(f"{digest}  {json.dumps(path)}\n" for digest, path in kept.items()))
        file.chmod(0o600)


def entries() -> dict[str, str]:
    """Return the trusted digests and their paths; damaged lines are skipped."""
    rows: dict[str, str] = {}
    for line in _read().decode("utf-8", "replace").split("\n"):
        digest, _, path = line.partition("  ")
        if len(digest) == 64:
            try:
                rows[digest] = str(json.loads(path or '""'))
            except (ValueError, RecursionError):
                rows[digest] = ""
    return rows


def record_of(path: str | Path) -> str:
    """Return the record folder that contains a path, directly or through a link; an empty string if there is none."""
    for start in (os.path.dirname(path) or ".", path):
        here = Path(os.path.realpath(start))
        for folder in (here, *here.parents):
            if _is_record(folder):
                return str(folder)
    return ""


def untrusted_record(path: str | Path) -> str:
    """Return the record folder that contains a path if it is not trusted, or an empty string.

    A record is trusted if its config is; for a path in its backup, that code must be trusted too.
    """
    folder = record_of(path)
    if not folder:
        return ""
    try:
        content = Path(folder, CONFIG).read_bytes() if Path(folder, CONFIG).is_file() else b""
    except OSError:
        content = b""
    if not content or not is_trusted(digest_of(content)):
        return folder
    backup = os.path.join(folder, BACKUP)
    inside = f"{os.path.realpath(path)}{os.sep}".startswith(f"{backup}{os.sep}")
    return folder if inside and os.path.isdir(backup) and not is_trusted(digest_of_folder(backup)) else ""


def _is_record(folder: Path) -> bool:
    def has(name: str) -> bool:
        return os.path.lexists(folder / name)

    return (has(INFO) and any(map(has, _SIBLINGS))) or all(map(has, _OLD))


def _read() -> bytes:
    file = store()
    if file is None or not os.path.lexists(file):
        return b""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
                _warn(f"{file} is ignored: you must own it, and no other user may have write access")
                return b""
            return stream.read()
    except OSError as error:
        _warn(f"{file} cannot be read, so no record is trusted: {error.strerror}")
        return b""


@cache
def _warn(text: str) -> None:
    """Log a warning once per process."""
    from loguru import logger

    logger.warning("{}", text)
