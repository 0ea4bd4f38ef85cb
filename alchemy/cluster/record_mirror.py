"""Copies the records of a run on another machine home while it writes them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from alchemy.cluster.ray_node import Files, Signature

CHECKPOINTS = "state"


class RecordSource(Protocol):
    """The machine on which a run writes its records."""

    def list_files(self) -> dict[str, Files]:
        """Return the files of each record, by its path in the project."""

    def read(self, name: str, offset: int) -> bytes | None:
        """Return a part of a file, empty at its end; None if the file was removed."""


class RecordMirror:
    """Copies of records in a project.

    A record appears once it has been copied completely. Afterwards, its files and its checkpoints are replaced one by
    one. Checkpoints are fetched before the other files and put into place after them: wherever the machine is lost,
    metrics and ledger may be ahead of the latest checkpoint, as after a kill, but never behind it.
    """

    def __init__(self, source: RecordSource, project: Path, on_new: Callable[[Path], object]) -> None:
        self._source, self._project, self._on_new = source, project, on_new
        self._copied: dict[str, dict[str, Files]] = {}  # record -> unit -> its files

    def sync(self) -> None:
        for record, files in self._source.list_files().items():
            self._sync_record(record, _group(files))

    def _sync_record(self, record: str, units: dict[str, Files]) -> None:
        home, copied = self._project / record, self._copied.setdefault(record, {})
        is_new = not home.exists()
        target = home.with_name(f".{home.name}.incoming") if is_new else home
        if is_new:
            shutil.rmtree(target, ignore_errors=True)
            copied.clear()
        changed = [unit for unit in units if copied.get(unit) != units[unit]]
        checkpoints = [unit for unit in changed if unit.startswith(CHECKPOINTS)]
        kept = [unit for unit in copied if unit not in changed]
        known = {signature: target / name for unit in kept for name, signature in copied[unit].items()}
        fetched = [unit for unit in checkpoints if self._fetch(record, units[unit], target, unit, known)]
        for unit in [unit for unit in changed if unit not in checkpoints]:
            if self._fetch(record, units[unit], target, unit, known):
                _place(target, unit)
                copied[unit] = units[unit]
                known[units[unit][unit]] = target / unit
        for unit in fetched:
            _place(target, unit)
            copied[unit] = units[unit]
        for unit in [unit for unit in copied if unit not in units]:
            _remove(target / unit)
            del copied[unit]
        if is_new:
            target.rename(home)
            self._on_new(home)

    def _fetch(self, record: str, files: Files, target: Path, unit: str, known: dict[Signature, Path]) -> bool:
        """Copy a file or a checkpoint next to its place; return False if it was removed in the meantime.

        Hard links, as between `state/best` and other checkpoints, become links to the `known` copy.
        """
        stage = _stage(target, unit)
        _remove(stage)
        for name, signature in files.items():
            path = stage if name == unit else stage / Path(name).relative_to(unit)
            path.parent.mkdir(parents=True, exist_ok=True)
            if signature in known:
                with contextlib.suppress(OSError):  # a file system without links, for example
                    os.link(known[signature], path)
                    continue
            known[signature] = path
            with open(path, "wb") as file:
                while data := self._source.read(f"{record}/{name}", file.tell()):
                    file.write(data)
            if data is None:
                _remove(stage)
                return False
        return True


def _stage(target: Path, unit: str) -> Path:
    return (target / unit).with_name(f".{Path(unit).name}.incoming")


def _place(target: Path, unit: str) -> None:
    stage = _stage(target, unit)
    if stage.is_dir():
        _remove(target / unit)
    os.replace(stage, target / unit)


def _group(files: Files) -> dict[str, Files]:
    """Return what is put into place at once: a checkpoint with all its files, or a single file."""
    units: dict[str, Files] = {}
    for name, signature in files.items():
        parts = Path(name).parts
        is_checkpoint = len(parts) > 2 and parts[0] == CHECKPOINTS
        units.setdefault("/".join(parts[:2]) if is_checkpoint else name, {})[name] = signature
    return units


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
