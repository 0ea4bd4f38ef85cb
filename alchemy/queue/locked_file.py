"""Locked files: the lock is inherited by child processes, and the status inside fits into the same blocks forever."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from alchemy.files import read_table

SIZE = 4096  # bytes; a status is padded to this size, so that it can be overwritten on a full disk


class LockedFile:
    """A file that stays locked until this process, and every process that inherits the handle, has closed it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def write(self, status: Mapping[str, object]) -> None:
        """Overwrite the status in place; the lock belongs to the file, so it cannot be replaced."""
        data = json.dumps(status, ensure_ascii=False).encode("utf-8", "replace").ljust(SIZE)
        if len(data) > SIZE:
            raise ValueError(f"the status has {len(data)} bytes, expected at most {SIZE}")
        if os.pwrite(self.handle, data, 0) < SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(self.handle, SIZE)  # a longer file has a tail that is not part of the status
        os.fsync(self.handle)

    def unlock(self) -> None:
        """Unlock the file even if a process that inherits the handle has not closed it yet."""
        fcntl.flock(self.handle, fcntl.LOCK_UN)

    def __enter__(self) -> LockedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.handle)


def lock(path: Path, *, wait: bool = False) -> LockedFile | None:
    """Lock a file; return None if it is locked and `wait` is False.

    Unlike `files.lock_file`, this uses flock: child processes share the lock, and it is released when the last of them
    has ended.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return LockedFile(handle)


def read_status(path: Path) -> dict[str, Any]:
    """Return the status in a locked file; empty if there is none, or if it was cut off by a power failure."""
    with contextlib.suppress(OSError, ValueError):
        return read_table(path)
    return {}
