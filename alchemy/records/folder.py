"""The record folder of a run: `record.json`, heartbeat and final status."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from alchemy.config.secrets import hide, hide_words
from alchemy.errors import AlchemyError
from alchemy.files import lock_file, write_atomic, write_in_place
from alchemy.records.create_folder import make_folder, write_error
from alchemy.records.kill_reason import count_oom_kills
from alchemy.records.media_file import MediaFile
from alchemy.records.metrics_file import MetricsFile
from alchemy.records.record_json import FORMAT
from alchemy.records.status import (
    HEARTBEAT_SECONDS,
    INFO,
    LOCK,
    boot_id,
    is_here,
    now,
    process_start,
    read_info,
    refuse_running,
)
from alchemy.records.symlinks import refuse_links
from alchemy.records.usage import Usage

# fields that the creator of a record sets, with their values if it does not; those from `kind` on are new in format 2
FIELDS: dict[str, Any] = {
    "cfg_hash": "",
    "code_hash": "",
    "code": {},
    "seed": None,
    "versions": {},
    "parent": None,
    "gen": 0,
    "variant": "",
    "delta": {},
    "sweep": None,
    "best": None,
    "kind": "train",
    "fold_hash": "",
    "git": None,
    "alchemy": None,
}


class RecordLike(Protocol):
    """The interface of a record, as used by a run; `NoRecord` is the null object."""

    @property
    def lines(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def error(self) -> str: ...
    @property
    def resumed_from(self) -> int | None: ...
    def log(self, values: Mapping[str, float], *, update: int, step: int, epoch: int) -> None: ...
    def sync(self) -> bool: ...
    def resume(self, *, from_update: int, from_line: int, seconds: float) -> None: ...
    def note(self, **fields: object) -> None: ...
    def on_removal(self, reopen: Callable[[], None]) -> None: ...
    def restore_folder(self) -> None: ...
    def finish(self, status: str, reason: str = "") -> None: ...


class NoRecord:
    """The null object for a run without a record folder; discards everything."""

    lines = generation = 0
    error = ""
    resumed_from: int | None = None

    def resume(self, *, from_update: int, from_line: int, seconds: float) -> None:
        pass

    def log(self, values: Mapping[str, float], *, update: int, step: int, epoch: int) -> None:
        pass

    def sync(self) -> bool:
        return True

    def note(self, **fields: object) -> None:
        pass

    def on_removal(self, reopen: Callable[[], None]) -> None:
        pass

    def restore_folder(self) -> None:
        pass

    def finish(self, status: str, reason: str = "") -> None:
        pass


class Record:
    """A record written by the run in this process."""

    def __init__(self, folder: Path, info: dict[str, Any], files: Mapping[str, str] = {}) -> None:
        self.path = folder
        self.info = info
        self.files = files  # name -> content, to recreate a folder that was deleted
        self.when_resumed: Callable[[], None] = lambda: None  # called once the state is restored
        self.resumed_from: int | None = None  # the update, once the state is restored
        self.before: dict[str, Any] = info  # the fields before the record was reopened
        self._lock = contextlib.ExitStack()
        if not self._lock.enter_context(lock_file(folder / LOCK)):
            self._lock.close()
            raise AlchemyError(
                f"another process is writing to {folder}", hint="wait for it, or stop it with `alchemy stop`"
            )
        self.series = MetricsFile(folder / "metrics.jsonl", info["gen"])
        self.log = self.series.log
        self.media = MediaFile(folder, gen=info["gen"])
        self.usage = Usage(info)
        self.remarks: list[str] = []  # notes on lost data, appended to the reason when the record is closed
        self._reopen = [self.series.reopen]
        self._save_lock, self._restore_lock = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._run_heartbeat, name="alchemy-heartbeat", daemon=True)

    @classmethod
    def create(
        cls,
        log_dir: str | Path,
        *,
        name: str,
        tag: str,
        purpose: str = "",
        files: Mapping[str, str] = {},
        **fields: object,
    ) -> Record:
        """Create the folder `log_dir/name` with `files` and mark the run as running.

        Raises an error if the folder cannot be written to. `record.json` is written last: a run killed before that
        leaves no record, and a run killed later leaves a complete one.
        """
        folder = make_folder(Path(log_dir), name)
        info = {
            "format": FORMAT,
            "id": folder.name,
            "tag": hide(tag),
            "purpose": purpose,
            **_process_fields(),
            "started": now(),
            "seconds": 0.0,
            "cmd": hide_words(sys.argv),
            **FIELDS,
            **fields,
        }
        return cls._open(folder, info, files)

    @classmethod
    def reopen(cls, folder: str | Path, **fields: object) -> Record:
        """Reopen a record as its next generation; raise an error if a run is still writing to it."""
        folder = refuse_links(Path(folder))
        info = read_info(folder)
        refuse_running(folder, info)
        changed = {"format": FORMAT, "gen": info.get("gen", 0) + 1, **fields}
        record = cls._open(folder, FIELDS | info | _process_fields() | changed)
        record.before = info
        return record

    @classmethod
    def _open(cls, folder: Path, info: dict[str, Any], files: Mapping[str, str] = {}) -> Record:
        try:
            record = cls(folder, info, files)
            for name, text in files.items():
                write_atomic(folder / name, text)
            record.note(**record.usage.measure())
        except OSError as error:
            raise write_error(folder, error) from error
        record._heartbeat.start()
        return record

    def undo_reopen(self) -> None:
        """Restore the fields to their values before `reopen` and close the record."""
        self._ended.set()
        self.series.close()
        self.info = dict(self.before)
        self.note()
        self._lock.close()

    @property
    def generation(self) -> int:
        """The number of times the run has been resumed."""
        return int(self.info["gen"])

    @property
    def lines(self) -> int:
        """The number of lines in `metrics.jsonl`, including lines superseded when the run was resumed."""
        return self.series.lines

    def resume(self, *, from_update: int, from_line: int, seconds: float) -> None:
        """Mark the rows after `from_line` as superseded, because the run resumes from an earlier state."""
        self.resumed_from = from_update
        self.series.resume(self.generation, from_update, from_line, seconds)
        self.media.resume(self.generation, from_update)
        self.when_resumed()

    @property
    def error(self) -> str:
        """The first error that occurred while writing a row, or an empty string."""
        return self.series.error

    def sync(self) -> bool:
        """Wait until all rows are on disk; return False if that fails."""
        return self.series.sync()

    def note(self, **fields: object) -> None:
        """Update fields of `record.json`. Thread-safe."""
        with self._save_lock:
            self.info.update(fields)
            text = json.dumps(self.info, ensure_ascii=False, indent=1, default=str) + "\n"
            try:
                write_atomic(self.path / INFO, text)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not (self.path / INFO).exists():
                    raise
                write_in_place(self.path / INFO, text)

    def on_removal(self, reopen: Callable[[], None]) -> None:
        """Register a function that recreates an open file after the folder was deleted."""
        self._reopen.append(reopen)

    def restore_folder(self) -> None:
        """Recreate the folder if it was deleted. Open files keep their content; checkpoints are lost."""
        with self._restore_lock:
            if (self.path / LOCK).exists():
                return
            self.path.mkdir(parents=True, exist_ok=True)
            for reopen in self._reopen:
                reopen()
            for name, text in self.files.items():
                write_atomic(self.path / name, text)
            self.note()
            self._lock.close()
            self._lock.enter_context(lock_file(self.path / LOCK))
        text = "the record folder was deleted during the run and recreated: log, metrics and ledger are complete, "
        self.remarks.append(f"{text}checkpoints and other files written before {now()} are lost")
        _warn("{}: {}", self.path, self.remarks[-1])

    def finish(self, status: str, reason: str = "", **fields: object) -> None:
        """Close the record: write its final status and reason, and all pending metrics."""
        self._ended.set()
        with self._lock:
            try:
                self.restore_folder()
            finally:
                self.series.close()
            reasons = "; ".join(text for text in (reason, *self.remarks) if text)
            self.note(status=status, reason=reasons, ended=now(), heartbeat=now(), **self.usage.measure(), **fields)

    def _run_heartbeat(self) -> None:
        warned = False
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                self.restore_folder()
                self.note(heartbeat=now(), oom_kills=count_oom_kills(), **self.usage.measure())
            except Exception as error:  # keep the thread alive: space may be freed on a full disk
                if not warned:
                    _warn("cannot update {}: {}", self.path / INFO, error)
                warned = True


def _warn(text: str, *values: object) -> None:
    from loguru import logger  # imported here because listing records does not need it

    logger.warning(text, *values)


def _process_fields() -> dict[str, Any]:
    """Return the `record.json` fields that describe this process."""
    pid = os.getpid()
    life = {"status": "running", "reason": "", "pid": pid, "pid_started": process_start(pid)}
    place = {"host": socket.gethostname(), "boot_id": boot_id(), "oom_kills": count_oom_kills()}
    return life | place | {"ended": None, "heartbeat": now()}


def stop(folder: str | Path) -> dict[str, Any]:
    """Stop the run that writes to `folder` at its next step; return its `record.json`."""
    info = read_info(folder)
    if info["status"] != "running":
        raise AlchemyError(f"{folder} is not running: {info['status']}")
    if not is_here(info):
        raise AlchemyError(f"{folder} is running on {info['host']}", hint="stop it there")
    os.kill(info["pid"], signal.SIGTERM)
    return info


def find(name: str | Path, roots: tuple[str, ...] = (".",)) -> Path:
    """Return the record folder for a path or an id; `latest` is the latest training run."""
    path = Path(name)
    if not str(name):
        raise AlchemyError("the record name is empty", hint="pass a record folder, its name, or 'latest'")
    if os.path.lexists(path / INFO):  # also for a broken link, since reading it raises the right error
        return path
    if str(name) == "latest":
        return newest(roots, having="ledger.jsonl")
    matches = [folder for root in roots for folder in folders(Path(root)) if folder.name == str(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise AlchemyError(f"{name!r} matches {len(matches)} records: {', '.join(map(str, matches))}")
    if path.is_dir():
        raise AlchemyError(f"{name} is not a record: it has no {INFO}")
    raise AlchemyError(f"record not found: {str(name)!r}", hint="pass the path of a record folder")


def newest(roots: tuple[str, ...] = (".",), status: str = "", having: str = "") -> Path:
    """Return the latest record below `roots`, optionally with a given status or file."""
    for folder, info in read_newest_first([folder for root in roots for folder in folders(Path(root))]):
        if status in ("", info["status"]) and (folder / having).exists():
            return folder
    raise AlchemyError(f"no {status or ''} record below {', '.join(roots)}".replace("  ", " "))


def read_newest_first(found: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield records, latest first, with their `record.json`; skip unreadable records with a warning."""
    for folder in sorted(found, key=lambda folder: folder.name, reverse=True):
        try:
            info = read_info(folder)
        except AlchemyError as error:
            _warn("skipping a record: {}", error)
        else:
            yield folder, info


def folders(root: Path) -> Iterator[Path]:
    """Yield every record folder below `root`, without descending into hidden folders or records."""
    for folder, names, files in os.walk(root):
        if INFO in files:
            names.clear()
            yield Path(folder)
        names[:] = [name for name in names if not name.startswith(".")]
