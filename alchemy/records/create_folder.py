"""A folder for a new record, on a disk that has room for it."""

from __future__ import annotations

import shutil
from pathlib import Path

from alchemy.errors import AlchemyError

# below this a run would fail in its first minutes, with half a log to show for it
MIN_FREE_BYTES = 16 * 2**20


def make_folder(log_dir: Path, name: str) -> Path:
    """Makes the folder `log_dir/name`, with a number appended if it exists."""
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(log_dir).free
        folder = log_dir / name
        for again in range(1, 1000):  # two runs that start in the same microsecond
            try:
                folder.mkdir()
                break
            except FileExistsError:
                folder = log_dir / f"{name}-{again}"
    except OSError as error:
        raise cannot_write(log_dir, error) from error
    if free < MIN_FREE_BYTES:
        folder.rmdir()
        raise AlchemyError(
            f"the disk of {log_dir} is full: {free / 2**20:.1f} MiB are free, a run needs {MIN_FREE_BYTES // 2**20}",
            hint="make room, choose another log_dir, or run with --no-file",
        )
    return folder


def cannot_write(folder: Path, error: OSError) -> AlchemyError:
    """The error for a record that cannot be written."""
    return AlchemyError(
        f"the record folder {folder} cannot be written: {error.strerror or error}",
        hint="fix its permissions, choose another log_dir for FileLogger, or run with --no-file",
    )
