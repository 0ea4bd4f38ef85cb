"""Create the folder of a new record and check the free disk space."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from alchemy.errors import AlchemyError

# with less free space, a run would fail within minutes
MIN_FREE_BYTES = 16 * 2**20
# environment variables of a run of the queue: the file that lists its records, and the sweep and point it belongs to
QUEUE_RECORDS, SWEEP_POINT = "ALCHEMY_QUEUE_RECORDS", "ALCHEMY_QUEUE_SWEEP"


def make_folder(log_dir: Path, name: str) -> Path:
    """Create the folder `log_dir/name`; append a number if it already exists. A run of the queue adds it to a list."""
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(log_dir).free
        folder = log_dir / name
        for again in range(1, 1000):  # two runs may start in the same microsecond
            try:
                folder.mkdir()
                break
            except FileExistsError:
                folder = log_dir / f"{name}-{again}"
        if QUEUE_RECORDS in os.environ:
            with open(os.environ[QUEUE_RECORDS], "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{folder.absolute()}\n")
    except OSError as error:
        raise write_error(log_dir, error) from error
    if free < MIN_FREE_BYTES:
        folder.rmdir()
        raise AlchemyError(
            f"not enough disk space in {log_dir}: {free / 2**20:.1f} MiB free, need {MIN_FREE_BYTES // 2**20} MiB",
            hint="free some space, choose another log_dir, or run with --no-file",
        )
    return folder


def read_sweep() -> dict[str, object] | None:
    """Return the name of the sweep that has started this run and the number of its point; None for any other run."""
    name, _, point = os.environ.get(SWEEP_POINT, "").rpartition("/")
    return {"name": name, "point": int(point)} if name else None


def write_error(folder: Path, error: OSError) -> AlchemyError:
    """Return the error to raise if a record folder cannot be written to."""
    return AlchemyError(
        f"cannot write to the record folder {folder}: {error.strerror or error}",
        hint="fix its permissions, choose another log_dir for FileLogger, or run with --no-file",
    )
