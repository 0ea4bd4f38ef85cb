"""Atomic writes, locks, hashes, and safe reading of untrusted files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import itertools
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError

LARGEST_JSON = 64 * 2**20  # bytes; no run writes larger files


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically: readers see either the old or the new content."""
    with open_to_replace(path) as out:
        out.write(content.encode("utf-8") if isinstance(content, str) else content)


def write_json(path: str | Path, value: object) -> None:
    """Write a value as JSON that people can read, atomically."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


@contextlib.contextmanager
def open_to_replace(path: str | Path) -> Iterator[BufferedWriter]:
    """Open a temporary file that replaces `path` at the end of the block; if the block fails, `path` is unchanged."""
    path = Path(path)
    handle, temp = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temp, 0o666 & ~_umask())
        os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        raise
    sync_folder(path.parent)


def open_to_read(path: str | Path) -> BufferedReader:
    """Open a regular file; raise OSError for anything else, because reading a FIFO or a device may block forever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # otherwise, opening a FIFO blocks until it has a writer
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("it is not a regular file")
    return open(handle, "rb")


def read_bytes(path: str | Path, largest: int = LARGEST_JSON) -> bytes:
    """Return the content of a file; raise ValueError if it has more than `largest` bytes."""
    with open_to_read(path) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"it is larger than {readable_size(largest)}")
    return data


def read_json(path: str | Path, largest: int = LARGEST_JSON) -> Any:
    """Read JSON from an untrusted file; every problem is raised as an OSError or a ValueError."""
    return parse_json(read_bytes(path, largest).decode("utf-8"))


def read_table(path: str | Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """Read a JSON object from an untrusted file; raise ValueError for any other value."""
    content = read_json(path, largest)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_in_place(path: str | Path, content: str) -> None:
    """Overwrite a JSON file within its existing blocks, which works even on a full disk."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
        info, data = os.fstat(file.fileno()), content.encode("utf-8")
        if len(data) > max(info.st_size, info.st_blocks * 512):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file.write(data.ljust(info.st_size))  # JSON allows trailing spaces
        file.flush()
        os.fsync(file.fileno())


def open_to_append(path: str | Path) -> int:
    """Open a file for appending, with a handle that can still read it after deletion; raise OSError for a FIFO."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    if stat.S_ISFIFO(os.fstat(handle).st_mode):  # writing to it would block
        os.close(handle)
        raise OSError("it is not a regular file")
    return handle


def append_lines(path: str | Path, text: str, *, sync: bool = False) -> None:
    """Append lines in one write, so that those of several processes are not mixed; a cut-off last line is ended first.

    A full disk raises OSError, and may leave another cut-off line. `sync` waits until the lines are on disk.
    """
    handle = open_to_append(path)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            text = f"\n{text}"
        data = text.encode("utf-8", "replace")
        if os.write(handle, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def reopen(handle: int, path: str | Path) -> int:
    """Recreate a deleted file from its open handle; return the handle to use from now on."""
    if os.path.exists(path):
        return handle
    new = open_to_append(path)
    try:
        while block := os.pread(handle, 2**20, os.fstat(new).st_size):
            os.write(new, block)
    except OSError:
        os.close(new)
        os.unlink(path)
        raise
    os.close(handle)
    return new


def replace_folder(target: Path, save: Callable[[Path], object]) -> None:
    """Replace a folder atomically: `save(path)` writes next to `target`, then the two are swapped.

    Concurrent writers use separate temporary folders; the last one wins. If a writer is killed between the two renames,
    `target` is missing until `recover_folder` restores the old one.
    """
    recover_folder(target)
    room = Path(tempfile.mkdtemp(prefix=f"{_owner(target)}{os.getpid()}.", dir=target.parent))
    try:
        new = room / target.name
        save(new)
        if not new.exists():
            raise AlchemyError(f"save({str(new)!r}) wrote nothing", hint="save(path) must create path")
        _swap(new, target)
        sync_folder(target.parent)
    finally:
        _remove(room)


def recover_folder(target: Path, *, alone: bool = False) -> None:
    """Clean up after killed writers of `target` and restore the old folder if necessary.

    With `alone`, no writer can be active; otherwise, a writer is considered dead if its process has ended.
    """
    candidates = target.parent.glob(f".{glob.escape(target.name)}.*")
    rooms = [path for path in candidates if not path.is_symlink()]  # writers create folders; a link may point anywhere
    dead = [room for room in rooms if alone or _is_dead(room.name.removeprefix(_owner(target)).partition(".")[0])]
    former = target.with_name(f".{target.name}.old")  # earlier versions used it for all writers
    for room in dead:
        _put_back(room, target)
    if former.exists() and not target.exists():
        former.rename(target)
    for leftover in (*dead, former, target.with_name(f".{target.name}.new")):
        _remove(leftover)


def _owner(target: Path) -> str:
    """Return the prefix of temporary folders on this machine; the process ID follows."""
    return f".{target.name}.{os.uname().nodename}-"


def _swap(new: Path, target: Path) -> None:
    for number in itertools.count():
        with contextlib.suppress(FileNotFoundError):  # missing, or moved by another writer
            target.rename(new.with_name(f"old-{number}-{target.name}"))
        try:
            new.rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                _put_back(new.parent, target)
                raise
            # another writer was faster: replace its folder too


def _put_back(room: Path, target: Path) -> None:
    """Restore the old folder of a writer that was killed before it moved the new one into place."""
    taken = sorted(room.glob(f"old-*-{glob.escape(target.name)}"))
    if taken and not target.exists():
        taken[-1].rename(target)


def _is_dead(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OverflowError, PermissionError):
        return False
    return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)  # another writer may be removing it too
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock_file(path: str | Path) -> Iterator[bool]:
    """Lock the file `path` until the end of the block; yield False if another process has locked it."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except IsADirectoryError:
        raise AlchemyError(f"the lock {path} is a folder, expected a file", hint="remove it") from None
    try:
        try:
            # not inherited by forked loader workers, which could outlive a killed process
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def is_locked(path: str | Path) -> bool:
    """Return whether another process has locked a file; False if there is no such file, or it cannot be opened."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def sync_folder(folder: str | Path) -> None:
    """Sync a folder to disk, so that a rename in it survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_same(one: str | Path, other: str | Path) -> bool:
    """Return whether two paths refer to the same file, including hard links."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def hash_file(path: str | Path) -> str:
    with open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_tree(root: str | Path, pattern: str = "*.py") -> str:
    """Return one hash over the names and contents of all matching files below `root`."""
    digest = hashlib.sha256()
    root = Path(root)
    for path in sorted(root.rglob(pattern)):
        if path.is_file():
            digest.update(f"{path.relative_to(root).as_posix()}\0{hash_file(path)}\n".encode())
    return digest.hexdigest()


def readable_size(count: float) -> str:
    """Format a number of bytes for humans.

    >>> readable_size(3 * 2**20), readable_size(10)
    ('3.0 MiB', '10 B')
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} GiB"


def home() -> Path:
    """Return the `.alchemy` folder of the nearest ancestor that has one, or `.alchemy` in the working directory."""
    here = working_directory()
    found = (folder / ".alchemy" for folder in (here, *here.parents) if (folder / ".alchemy").is_dir())
    return next(found, here / ".alchemy")


def working_directory() -> Path:
    """Return the working directory; raise an error if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise AlchemyError("the working directory was deleted", hint="change to another folder") from None


def shorten_path(path: str | Path) -> str:
    """Return a path relative to the working directory if it is below it, as users write it."""
    return str(path).removeprefix(os.path.join(os.getcwd(), ""))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
