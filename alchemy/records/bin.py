"""The bin of a project: removed records in `.alchemy/bin`, from where they can be restored."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from alchemy.errors import AlchemyError
from alchemy.files import lock_file, read_table, write_json
from alchemy.records.status import LOCK, now, refuse_running, try_read_info

BIN = "bin"
TEMPORARY = ".tmp-"


class Removed(NamedTuple):
    """A record in the bin: `path` is where it was, `batch` is the time of the command that removed it.

    Its `id` is unique in the bin: a number is appended if another record with the same id is there.
    """

    folder: Path
    path: str
    when: str
    batch: str

    @property
    def id(self) -> str:
        return self.folder.name


def move_to_bin(home: Path, record: Path, roots: Sequence[Path], batch: str) -> Removed:
    """Move a record to the bin; raises an error if it is in use, or not below one of the roots."""
    record = Path(os.path.abspath(record))
    check_removable(record, roots)
    try:
        (home / BIN).mkdir(parents=True, exist_ok=True)
        target = _free_place(home / BIN, record.name)
        removed = Removed(target, str(record), now(), batch)
        about = {"path": removed.path, "when": removed.when, "batch": batch}
        # written first: a file that describes nothing is harmless, but a record in the bin must be restorable
        write_json(_about(target), about)
        try:
            with lock_record(record):
                move_folder(record, target)
        finally:
            if not target.is_dir():
                _about(target).unlink(missing_ok=True)
    except OSError as error:
        raise AlchemyError(f"cannot move {record} to {home / BIN}: {error.strerror or error}") from error
    return removed


def check_removable(record: Path, roots: Sequence[Path]) -> None:
    """Raise an error if a record is a link, outside of the roots, or still being written."""
    if record.is_symlink():
        raise AlchemyError(f"{record} is a link", hint=f"remove the record it points to, {os.path.realpath(record)}")
    if not _is_below(record, roots):
        shown = ", ".join(map(str, roots))
        raise AlchemyError(f"{record} is not below {shown}", hint="add its folder to `roots` in .alchemy/config.toml")
    refuse_running(record, try_read_info(record))  # a damaged record can be removed, unless it is locked


@contextlib.contextmanager
def lock_record(record: Path) -> Iterator[None]:
    """Keep a run from writing to a record; raises an error if one is writing to it now."""
    path = record / LOCK
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):  # a foreign record: no run has locked this
        yield
        return
    with lock_file(path) as free:
        if not free:
            raise AlchemyError(f"another process is writing to {record}", hint="stop it with `alchemy stop`")
        yield


def list_bin(home: Path) -> list[Removed]:
    """Return the records in the bin, the latest removal last."""
    found = []
    for about in (home / BIN).glob("*.json"):
        folder = about.with_suffix("")
        try:
            fields = read_table(about)
        except (OSError, ValueError):
            continue
        texts = [fields.get(key) for key in ("path", "when", "batch")]
        if folder.is_dir() and all(isinstance(text, str) for text in texts):
            found.append(Removed(folder, *map(str, texts)))
    return sorted(found, key=lambda removed: (removed.batch, removed.path))


def restore_record(removed: Removed, roots: Sequence[Path]) -> Path:
    """Move a record from the bin back to where it was."""
    target = Path(removed.path)
    if not _is_below(target, roots):
        raise AlchemyError(f"{removed.id} was at {target}, outside of the project", hint=f"move {removed.folder} there")
    if os.path.lexists(target):
        raise AlchemyError(f"{target} exists already", hint="rename it, then try again")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        move_folder(removed.folder, target)
        _about(removed.folder).unlink(missing_ok=True)
    except OSError as error:
        raise AlchemyError(f"cannot restore {target}: {error.strerror or error}") from error
    return target


def delete_forever(removed: Removed) -> None:
    """Delete a record in the bin."""
    doomed = _temporary(removed.folder)  # a killed process leaves no half of a record that could be restored
    os.rename(removed.folder, doomed)
    _about(removed.folder).unlink(missing_ok=True)
    shutil.rmtree(doomed, ignore_errors=True)


def list_leftovers(home: Path) -> list[Path]:
    """Return the folders in the bin that killed processes were copying or deleting."""
    return sorted(path for path in (home / BIN).glob(f"{TEMPORARY}*") if path.is_dir() and not path.is_symlink())


def move_folder(source: Path, target: Path) -> None:
    """Move a folder. On another file system, it is copied under a temporary name first, and then deleted."""
    try:
        os.rename(source, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    copy = _temporary(target)
    try:
        copy_folder(source, copy)
        os.rename(copy, target)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise
    doomed = source.with_name(f".{source.name}.removed")  # hidden, so that a half-deleted folder is not a record
    os.rename(source, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder; hard links stay hard links, symbolic links are not followed, FIFOs and devices are left out."""
    copies: dict[tuple[int, int], str] = {}

    def copy(old: str, new: str) -> str:
        found = os.lstat(old)
        first = copies.setdefault((found.st_dev, found.st_ino), new)
        if first != new:
            os.link(first, new)
        elif stat.S_ISREG(found.st_mode):
            shutil.copy2(old, new, follow_symlinks=False)
        return new

    shutil.copytree(source, target, symlinks=True, copy_function=copy)


def _is_below(path: Path, roots: Sequence[Path]) -> bool:
    place = os.path.realpath(path)
    return any(place.startswith(os.path.join(os.path.realpath(root), "")) for root in roots)


def _free_place(folder: Path, name: str) -> Path:
    target, number = folder / name, 0
    while os.path.lexists(target) or os.path.lexists(_about(target)):
        number += 1
        target = folder / f"{name}-{number}"
    return target


def _temporary(folder: Path) -> Path:
    return folder.with_name(f"{TEMPORARY}{os.getpid()}-{folder.name}")


def _about(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")
