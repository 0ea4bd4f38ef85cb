"""The record folder of a run: its `record.json`, its life signs and its end."""

from __future__ import annotations

import contextlib
import datetime
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
from alchemy.records.create_folder import cannot_write, make_folder
from alchemy.records.metrics_file import MetricsFile
from alchemy.records.record_json import FORMAT, read_fields
from alchemy.records.symlinks import refuse_links

HEARTBEAT_SECONDS = 30.0
SILENT_SECONDS = 10 * HEARTBEAT_SECONDS
INFO = "record.json"
LOCK = ".lock"


class RecordLike(Protocol):
    """What a run needs of its record; `NoRecord` is the one that keeps nothing."""

    @property
    def lines(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def error(self) -> str: ...
    def log(self, values: Mapping[str, float], *, update: int, step: int, epoch: int) -> None: ...
    def sync(self) -> bool: ...
    def resume(self, *, from_update: int, from_line: int, seconds: float) -> None: ...
    def note(self, **fields: object) -> None: ...
    def on_removal(self, reopen: Callable[[], None]) -> None: ...
    def mend(self) -> None: ...
    def finish(self, status: str, reason: str = "") -> None: ...


class NoRecord:
    """A run without a folder: everything that is written is forgotten."""

    lines = generation = 0
    error = ""

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

    def mend(self) -> None:
        pass

    def finish(self, status: str, reason: str = "") -> None:
        pass


class Record:
    """A record that is being written by the run in this process."""

    def __init__(self, folder: Path, info: dict[str, Any], files: Mapping[str, str] = {}) -> None:
        self.path = folder
        self.info = info
        self.files = files  # name -> content, to recreate a folder that was deleted
        self.when_resumed: Callable[[], None] = lambda: None  # what is written only once the state was taken up
        self.before: dict[str, Any] = info  # what it said before it was reopened
        self._lock = contextlib.ExitStack()
        if not self._lock.enter_context(lock_file(folder / LOCK)):
            self._lock.close()
            raise AlchemyError(f"another process writes to {folder}", hint="wait for it, or end it with `alchemy stop`")
        self.series = MetricsFile(folder / "metrics.jsonl", info["gen"])
        self.log = self.series.log
        self.remarks: list[str] = []  # what was lost; appended to the reason when the record is closed
        self._reopen = [self.series.reopen]
        self._save_lock, self._mend_lock = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="alchemy-heartbeat", daemon=True)

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
        """Makes the folder `log_dir/name` with `files` and marks the run as running; raises if it cannot be written.

        `record.json` is written last: a run that is killed earlier leaves no record, one that is killed later a
        complete one.
        """
        folder = make_folder(Path(log_dir), name)
        info = {
            "format": FORMAT,
            "id": folder.name,
            "tag": hide(tag),
            "purpose": purpose,
            **_running_here(),
            "started": now(),
            "cmd": hide_words(sys.argv),
            "cfg_hash": "",
            "code_hash": "",
            "code": {},
            "seed": None,
            "versions": {},
            "parent": None,
            "gen": 0,
            "variant": "",
            "delta": {},
            "best": None,
            **fields,
        }
        return cls._open(folder, info, files)

    @classmethod
    def reopen(cls, folder: str | Path, **fields: object) -> Record:
        """Goes on with a record as its next generation; one that is being written is refused."""
        folder = refuse_links(Path(folder))
        info = read_info(folder)
        refuse_running(folder, info)
        record = cls._open(folder, info | _running_here() | {"gen": info.get("gen", 0) + 1, **fields})
        record.before = info
        return record

    @classmethod
    def _open(cls, folder: Path, info: dict[str, Any], files: Mapping[str, str] = {}) -> Record:
        try:
            record = cls(folder, info, files)
            for name, text in files.items():
                write_atomic(folder / name, text)
            record.note()
        except OSError as error:
            raise cannot_write(folder, error) from error
        record._heart.start()
        return record

    def put_back(self) -> None:
        """Leaves the record as it was before it was reopened."""
        self._ended.set()
        self.series.close()
        self.note(**self.before)
        self._lock.close()

    @property
    def generation(self) -> int:
        """0, and one more after each resume."""
        return int(self.info["gen"])

    @property
    def lines(self) -> int:
        """Rows of `metrics.jsonl`, with those that a resume has made void."""
        return self.series.lines

    def resume(self, *, from_update: int, from_line: int, seconds: float) -> None:
        """Makes the rows after a line void: the run goes on from an earlier state."""
        self.series.resume(self.generation, from_update, from_line, seconds)
        self.when_resumed()

    @property
    def error(self) -> str:
        """The first trouble that the disk made of a row."""
        return self.series.error

    def sync(self) -> bool:
        """Returns when all rows so far are on the disk, or cannot be brought there."""
        return self.series.sync()

    def note(self, **fields: object) -> None:
        """Changes fields of `record.json`; from any thread."""
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
        """Registers a function that recreates an open file of the folder after it was deleted."""
        self._reopen.append(reopen)

    def mend(self) -> None:
        """Recreates the folder if it was deleted. Open files keep their content; checkpoints are lost."""
        with self._mend_lock:
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
        """Closes the record: its status, why, and all numbers on the disk."""
        self._ended.set()
        with self._lock:
            try:
                self.mend()
            finally:
                self.series.close()
            reasons = "; ".join(text for text in (reason, *self.remarks) if text)
            self.note(status=status, reason=reasons, ended=now(), heartbeat=now(), **fields)

    def _beat(self) -> None:
        told = False
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                self.mend()
                self.note(heartbeat=now())
            except Exception as error:  # a full disk must not end the thread that would report its recovery
                if not told:
                    _warn("{} cannot be kept up to date: {}", self.path / INFO, error)
                told = True


def _warn(text: str, *values: object) -> None:
    from loguru import logger  # here, since lists of records are read without a log

    logger.warning(text, *values)


def _running_here() -> dict[str, Any]:
    """What `record.json` says while this process writes it."""
    pid = os.getpid()
    life = {"status": "running", "reason": "", "pid": pid, "pid_started": process_start(pid)}
    return life | {"host": socket.gethostname(), "ended": None, "heartbeat": now()}


def read_info(folder: str | Path) -> dict[str, Any]:
    """`record.json` of a folder, with the honest status: a run whose process is gone is not running."""
    info = read_fields(Path(folder) / INFO)
    if info["status"] == "running" and info["host"] == socket.gethostname() and not is_alive(info):
        info["status"], info["reason"] = "killed", "its process is gone"
    elif info["status"] == "running" and info["host"] != socket.gethostname() and _is_silent(info):
        info["status"], info["reason"] = "lost", f"no sign of life from {info['host']} since {info['heartbeat']}"
    return info


def refuse_running(folder: Path, info: Mapping[str, Any]) -> None:
    """An error where the run that writes a record has not ended, here or on another machine."""
    if info["status"] == "running":
        here = info["host"] == socket.gethostname()
        where = "" if here else f" on {info['host']}"
        silence = f"or wait, if it is gone: it counts as lost after {SILENT_SECONDS:g} s without a sign of life"
        hint = "`alchemy stop` ends it" if here else f"end it there, {silence}"
        raise AlchemyError(f"{folder} is still running{where}, as process {info['pid']}", hint=hint)


def _is_silent(info: Mapping[str, Any]) -> bool:
    """Whether a run on another machine has missed so many heartbeats that nobody waits for it any more."""
    last = datetime.datetime.fromisoformat(info["heartbeat"]).astimezone()
    return (datetime.datetime.now().astimezone() - last).total_seconds() > SILENT_SECONDS


def is_alive(info: Mapping[str, Any]) -> bool:
    """Whether the very process that wrote a record still runs here (a number may have been given away again)."""
    start = process_start(info["pid"])
    return start is not None and start == info.get("pid_started")


def stop(folder: str | Path) -> dict[str, Any]:
    """Asks the run that writes `folder` to end at the next step; returns its info."""
    info = read_info(folder)
    if info["status"] != "running":
        raise AlchemyError(f"{folder} is not running: {info['status']}")
    if info["host"] != socket.gethostname():
        raise AlchemyError(f"{folder} runs on {info['host']}", hint="stop it there")
    os.kill(info["pid"], signal.SIGTERM)
    return info


def find(name: str | Path, roots: tuple[str, ...] = (".",)) -> Path:
    """The record folder that a path or an id names; `latest` is that of the newest training."""
    path = Path(name)
    if not str(name):
        raise AlchemyError("the name of a record is empty", hint="give a record folder, its name, or 'latest'")
    if os.path.lexists(path / INFO):  # whatever it is: who reads it says what is wrong with it
        return path
    if str(name) == "latest":
        return newest(roots, having="ledger.jsonl")
    matches = [folder for root in roots for folder in folders(Path(root)) if folder.name == str(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise AlchemyError(f"{name!r} names {len(matches)} records: {', '.join(map(str, matches))}")
    if path.is_dir():
        raise AlchemyError(f"{name} is not a record: it has no {INFO}")
    raise AlchemyError(f"there is no record {str(name)!r}", hint="give the path of a record folder")


def newest(roots: tuple[str, ...] = (".",), status: str = "", having: str = "") -> Path:
    """The record that started last below `roots`, of those with a status or a file."""
    for folder, info in read_newest_first([folder for root in roots for folder in folders(Path(root))]):
        if status in ("", info["status"]) and (folder / having).exists():
            return folder
    raise AlchemyError(f"there is no {status or ''} record below {', '.join(roots)}".replace("  ", " "))


def read_newest_first(found: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Records and what `read_info` says of them; one that cannot be read is skipped with a warning."""
    for folder in sorted(found, key=lambda folder: folder.name, reverse=True):
        try:
            info = read_info(folder)
        except AlchemyError as error:
            from loguru import logger  # here, since lists of records are read without a log

            logger.warning("skipped a record: {}", error)
        else:
            yield folder, info


def status_of(folder: Path) -> str:
    """The status of a record; of one that cannot be read none, so that it does not stand in the way of the others."""
    try:
        return str(read_info(folder)["status"])
    except AlchemyError:
        return ""


def folders(root: Path) -> Iterator[Path]:
    """Every record folder below `root`; hidden folders and the insides of records are not entered."""
    for folder, names, files in os.walk(root):
        if INFO in files:
            names.clear()
            yield Path(folder)
        names[:] = [name for name in names if not name.startswith(".")]


def process_start(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when it is gone (or, elsewhere than on Linux, unknown)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if not _exists(pid) else 0
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
