"""The trust store: digests of the record configs that this user has written or has chosen to trust.

One digest a line, followed by the path it had, in a file of the user's home. A store that is damaged, or that others
can write to, trusts nothing; one that cannot be written costs a warning, never a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection
from functools import cache
from pathlib import Path

from alchemy.files import write_atomic

CONFIG, INFO = "cfg.toml", "record.json"
# what stands beside record.json: a file of that name alone may be somebody's data
_BESIDE = (CONFIG, "run.log", "state", "checkpt", "backup", "metrics.jsonl", "ledger.jsonl")
_OLD = (CONFIG, "run.log", "checkpt")  # records of 0.x have no record.json

_written: set[str] = set()  # by this process, which trusts them also where there is no store to write to


def store() -> Path | None:
    """The file with the digests; None where the user has no home, or where it would lie inside a record."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    folder = config if os.path.isabs(config) else os.path.expanduser("~/.config")
    if not os.path.isabs(folder) or record_of(folder):
        return None
    return Path(folder, "alchemy", "trusted")


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def is_trusted(digest: str) -> bool:
    return digest in _written or f"\n{digest}".encode() in b"\n" + _read()


def trust(digest: str, path: str | Path) -> None:
    """Adds the digest of a config; `path` tells the user later what it was."""
    file = store()
    if is_trusted(digest):
        return
    _written.add(digest)
    try:
        if file is None:
            raise OSError("there is no home folder")
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # one small write to the end needs no lock; the newline in front ends a line that was cut short
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            os.write(handle, f"\n{digest}  {json.dumps(os.path.realpath(path))}\n".encode())
        finally:
            os.close(handle)
    except OSError as error:
        _warn(
            f"{file or 'the trust store'} cannot be written: {error.strerror or error}; `alchemy trust` may be needed"
        )


def distrust(digests: Collection[str]) -> None:
    """Removes digests from the store."""
    _written.difference_update(digests)
    file, rows = store(), entries()
    if file is not None and any(digest in rows for digest in digests):
        kept = {digest: path for digest, path in rows.items() if digest not in digests}
        write_atomic(file, "".join(f"{digest}  {json.dumps(path)}\n" for digest, path in kept.items()))
        file.chmod(0o600)


def entries() -> dict[str, str]:
    """The trusted digests, each with the path that it had; lines that are damaged are left out."""
    found: dict[str, str] = {}
    for line in _read().decode("utf-8", "replace").split("\n"):
        digest, _, path = line.partition("  ")
        if len(digest) == 64:
            try:
                found[digest] = str(json.loads(path or '""'))
            except (ValueError, RecursionError):
                found[digest] = ""
    return found


def record_of(path: str | Path) -> str:
    """The record folder that a path lies in, or that it leads to by a link; empty where there is none."""
    for start in (os.path.dirname(path) or ".", path):
        here = Path(os.path.realpath(start))
        for folder in (here, *here.parents):
            if _is_record(folder):
                return str(folder)
    return ""


def foreign_record(path: str | Path) -> str:
    """The record folder that a path lies in, if its config is not trusted."""
    folder = record_of(path)
    if not folder:
        return ""
    try:
        content = Path(folder, CONFIG).read_bytes() if Path(folder, CONFIG).is_file() else b""
    except OSError:
        content = b""
    return "" if content and is_trusted(digest_of(content)) else folder


def _is_record(folder: Path) -> bool:
    def has(name: str) -> bool:
        return os.path.lexists(folder / name)

    return (has(INFO) and any(map(has, _BESIDE))) or all(map(has, _OLD))


def _read() -> bytes:
    file = store()
    if file is None or not os.path.lexists(file):
        return b""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
                _warn(f"{file} is ignored: you must own it, and nobody else may be able to write to it")
                return b""
            return stream.read()
    except OSError as error:
        _warn(f"{file} cannot be read, so no record is trusted: {error.strerror}")
        return b""


@cache
def _warn(text: str) -> None:
    """Once a process."""
    from loguru import logger

    logger.warning("{}", text)
