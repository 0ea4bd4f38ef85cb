"""An entry of the queue: one command, what it needs, and the attempts to run it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from alchemy.annotations import fits

FORMAT = 1
WAITING, HELD, RUNNING, DONE, FAILED = STATES = ("waiting", "held", "running", "done", "failed")
LOCAL = "local"
REMOVED = "removed"  # the next state of an entry that is removed while it is running

# variables that decide which program an entry starts and how it computes; others come from the worker
ENV_NAMES = ("PATH", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
ENV_PREFIXES = ("ALCHEMY_", "CONDA_", "MKL_", "CUBLAS_")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an entry occupies while it runs."""

    devices: int = 1  # GPUs; 0 runs on the CPU even if there are GPUs
    memory_mb: int = 0  # free memory on each GPU
    seconds: float = 0.0  # time limit of an attempt; 0 is none


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of an entry's command."""

    number: int
    started: str
    device: tuple[str, ...]  # numbers of its GPUs, or "cpu"
    boot_id: str | None = None
    ended: str = ""
    exit_code: int | None = None  # None if it is unknown; negative signal number if killed
    outcome: str = ""  # done, failed, stopped, time limit or lost
    job: str = ""  # its job on a cluster


@dataclass(frozen=True, kw_only=True)
class NewEntry:
    """An entry to add: `NewEntry(argv=["python", "train.py"])`."""

    argv: tuple[str, ...]
    cwd: str = field(default_factory=os.getcwd)
    env: dict[str, str] = field(default_factory=lambda: choose_environment())
    group: str = ""
    priority: int = 0
    after: tuple[int, ...] = ()
    needs: Needs = Needs()
    retries: int = 0
    state: str = WAITING  # or held
    note: dict[str, Any] = field(default_factory=dict)
    on: str = LOCAL  # or slurm, ray, ray://HOST:PORT: who runs it
    options: dict[str, Any] = field(default_factory=dict)  # of the cluster


@dataclass(frozen=True, kw_only=True)
class Entry(NewEntry):
    """An entry as stored in its file, which is the source of truth."""

    id: int
    added: str
    position: float  # entries of equal priority start in this order
    attempts: tuple[Attempt, ...] = ()
    failures: int = 0  # failed attempts since it was added or released
    not_before: float = 0.0  # in seconds since 1970: the pause before a retry
    then: str = ""  # the state that it gets when its attempt ends, if somebody has asked for it to stop
    reason: str = ""  # why it failed, was stopped, or cannot start here

    @property
    def order(self) -> tuple[int, float, int]:
        return (-self.priority, self.position, self.id)


def release(entry: Entry) -> Entry:
    """Return an entry that starts again, although it is held, has failed, or waits for a retry."""
    return replace(entry, state=WAITING, failures=0, not_before=0.0, reason="", after=())


def choose_environment(names: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of this process that an entry keeps, and those named."""
    return {name: value for name, value in os.environ.items() if is_kept(name) or name in names}


def is_kept(name: str) -> bool:
    return name in ENV_NAMES or (name.startswith(ENV_PREFIXES) and not name.startswith("ALCHEMY_QUEUE_"))


def serialize_entry(entry: Entry) -> dict[str, Any]:
    return {"format": FORMAT, **asdict(entry)}


def parse_entry(table: Mapping[str, Any]) -> Entry:
    """Return the entry of a JSON object; raise ValueError if it is damaged."""
    if table.get("format") != FORMAT:
        raise ValueError(f"it has format {table.get('format')!r}, expected {FORMAT}")
    try:
        attempts = tuple(Attempt(**_check(Attempt, row)) for row in table["attempts"])
        values = {**_check(Entry, table), "needs": Needs(**_check(Needs, table["needs"])), "attempts": attempts}
        entry = Entry(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"its keys do not fit: {error}") from None
    if not entry.argv:
        raise ValueError("it has no command")
    if entry.state == RUNNING and not entry.attempts:
        raise ValueError("it is running, but it has no attempts")
    return entry


def _check(kind: type[Needs | Attempt | NewEntry], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for a class from JSON; raise an error if one is missing or has another type."""
    for row in fields(kind):
        if not fits(table[row.name], str(row.type)) or (row.name == "state" and table["state"] not in STATES):
            raise ValueError(f"its {row.name} is {table[row.name]!r}")
        if row.type == "float" and not math.isfinite(table[row.name]):  # JSON as Python reads it has Infinity and NaN
            raise ValueError(f"its {row.name} is {table[row.name]!r}")
    values = {row.name: table[row.name] for row in fields(kind)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def split_command(argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a command into the program and the words after `alchemy`; there are none if it is another program.

    >>> split_command(("python", "-m", "alchemy", "run", "a.toml")), split_command(("ls", "-l"))
    ((('python', '-m', 'alchemy'), ('run', 'a.toml')), (('ls', '-l'), ()))
    """
    if argv[1:3] == ("-m", "alchemy"):
        return argv[:3], argv[3:]
    if argv and Path(argv[0]).name == "alchemy":
        return argv[:1], argv[1:]
    return argv, ()


def read_option(argv: tuple[str, ...], name: str, default: str) -> str:
    """Return the value of an option of an `alchemy` command.

    >>> read_option(("python", "-m", "alchemy", "run", "a.toml", "--processes=2"), "--processes", "1")
    '2'
    """
    words = split_command(argv)[1]
    for word, following in zip(words, (*words[1:], "")):
        own, _, value = word.partition("=")
        if own == name:
            return value or following
    return default
