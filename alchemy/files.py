"""Files that are never half written, their hashes, and files that somebody else may have written."""

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
from io import BufferedReader
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError

LARGEST_JSON = 64 * 2**20  # bytes; what is larger was not written by a run


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Writes `content` so that a reader sees the old file or the new one, never a part of it."""
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    handle, temp = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
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
    """Opens a regular file; anything else is an OSError, since a FIFO or a device may never answer."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # or opening a FIFO would wait for its other end
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("it is not a regular file")
    return open(handle, "rb")


def read_bytes(path: str | Path, largest: int = LARGEST_JSON) -> bytes:
    """The content of a file; one of more than `largest` bytes is a ValueError."""
    with open_to_read(path) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"it is larger than {readable_size(largest)}")
    return data


def read_json(path: str | Path, largest: int = LARGEST_JSON) -> Any:
    """The JSON in a file that may be damaged or hostile: whatever is wrong with it is an OSError or a ValueError."""
    return parse_json(read_bytes(path, largest).decode("utf-8"))


def read_table(path: str | Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """The same of a JSON object; any other value is a ValueError."""
    content = read_json(path, largest)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def parse_json(text: str | bytes) -> Any:
    """The value that JSON stands for; a ValueError also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_in_place(path: str | Path, content: str) -> None:
    """Overwrites a JSON file within the blocks it already has, which works on a full disk."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
        info, data = os.fstat(file.fileno()), content.encode("utf-8")
        if len(data) > max(info.st_size, info.st_blocks * 512):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file.write(data.ljust(info.st_size))  # trailing blanks are valid after JSON
        file.flush()
        os.fsync(file.fileno())


def open_to_append(path: str | Path) -> int:
    """A handle that appends to a file and can still read it after it was deleted; a FIFO is an OSError."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    if stat.S_ISFIFO(os.fstat(handle).st_mode):  # which would block whoever writes to it
        os.close(handle)
        raise OSError("it is not a regular file")
    return handle


def reopen(handle: int, path: str | Path) -> int:
    """Recreates a deleted file with the content behind its handle; returns the handle to use from now on."""
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
    """Lets `save(path)` write beside `target`, then swaps: what is there is the old one or the new one, whole.

    Of several writers at once, each has a place of its own, and the last one wins. A writer that is killed between the
    two renames leaves nothing there: `recover_folder` puts the old one back.
    """
    recover_folder(target)
    room = Path(tempfile.mkdtemp(prefix=f"{_owner(target)}{os.getpid()}.", dir=target.parent))
    try:
        new = room / target.name
        save(new)
        if not new.exists():
            raise AlchemyError(f"save({str(new)!r}) wrote nothing there", hint="save(path) must create path")
        _swap(new, target)
        sync_folder(target.parent)
    finally:
        _remove(room)


def recover_folder(target: Path, *, alone: bool = False) -> None:
    """Removes what killed writers of `target` left behind, and puts back what one had taken away.

    `alone` says that nobody can be writing now; else the process of a writer tells whether it is dead.
    """
    found = target.parent.glob(f".{glob.escape(target.name)}.*")
    rooms = [path for path in found if not path.is_symlink()]  # a writer makes folders: a link may lead anywhere
    dead = [room for room in rooms if alone or _is_dead(room.name.removeprefix(_owner(target)).partition(".")[0])]
    former = target.with_name(f".{target.name}.old")  # earlier versions had one place for all writers
    for room in dead:
        _put_back(room, target)
    if former.exists() and not target.exists():
        former.rename(target)
    for leftover in (*dead, former, target.with_name(f".{target.name}.new")):
        _remove(leftover)


def _owner(target: Path) -> str:
    """How the places of the writers on this machine begin; the number of the process follows."""
    return f".{target.name}.{os.uname().nodename}-"


def _swap(new: Path, target: Path) -> None:
    for number in itertools.count():
        with contextlib.suppress(FileNotFoundError):  # there is none, or another writer has it in his hands
            target.rename(new.with_name(f"old-{number}-{target.name}"))
        try:
            new.rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                _put_back(new.parent, target)
                raise
            # another writer was quicker: his is taken away as the old one was


def _put_back(room: Path, target: Path) -> None:
    """What a writer had taken away, and put nothing in the place of."""
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
        shutil.rmtree(path, ignore_errors=True)  # another writer may be at it too
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[bool]:
    """Holds the lock file `path` until the end of the block, or of this process; False: another one has it."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except IsADirectoryError:
        raise AlchemyError(f"the lock {path} is a folder, expected a file", hint="remove it") from None
    try:
        try:
            # of this process alone: a lock that forked loader workers share would outlive a kill for a while
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def sync_folder(folder: str | Path) -> None:
    """Makes a rename inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_same(one: str | Path, other: str | Path) -> bool:
    """Whether two names are of one file, also by a hard link."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def hash_file(path: str | Path) -> str:
    with open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_tree(root: str | Path, pattern: str = "*.py") -> str:
    """One hash for all files below `root` that match, names included."""
    digest = hashlib.sha256()
    root = Path(root)
    for path in sorted(root.rglob(pattern)):
        if path.is_file():
            digest.update(f"{path.relative_to(root).as_posix()}\0{hash_file(path)}\n".encode())
    return digest.hexdigest()


def readable_size(count: float) -> str:
    """Bytes as a reader wants them.

    >>> readable_size(3 * 2**20), readable_size(10)
    ('3.0 MiB', '10 B')
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} GiB"


def home() -> Path:
    """The `.alchemy` folder of the project: that of the nearest ancestor that has one, else of the working folder."""
    here = Path.cwd()
    found = (folder / ".alchemy" for folder in (here, *here.parents) if (folder / ".alchemy").is_dir())
    return next(found, here / ".alchemy")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
