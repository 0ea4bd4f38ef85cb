"""Hard-link checkpoints as `best`, `last` and `checkpt/NAME`, and remove old ones."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from alchemy.checkpoint.manifest import MANIFEST, TEMPORARY, checkpoints
from alchemy.checkpoint.monitor import Monitor
from alchemy.checkpoint.policy import Score
from alchemy.files import is_same, read_table, recover_folder, replace_folder, write_atomic

INFO = "_info.json"


class NamedWeights:
    """The best weights of a record as `checkpt/NAME`, described in `NAME_info.json`: value, update and all scores.

    `save(path)` writes them in a custom format; by default, they are hard links to the files of a checkpoint.
    """

    def __init__(self, record: Path, folder: Path | None = None, save: Callable[[Path], object] | None = None) -> None:
        self.record, self.folder, self.save = record, folder or record / "checkpt", save

    def write(self, name: str, monitor: Monitor, score: Score, fill: Callable[[Path], object]) -> None:
        """Write the folder with `fill(path)`, then atomically replace the old one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_folder(self.folder / name, fill)
        write_atomic(self._info(name), _describe(monitor, score))

    def link(self, folder: Path, names: Collection[str], monitor: Monitor, score: Score) -> None:
        """Link a checkpoint under `names` unless already linked; finish linking that a full disk interrupted."""
        for name in names:
            info = self._info(name)
            is_current = info.is_file() and info.read_text("utf-8", "replace") == _describe(monitor, score)
            if not is_current or not is_linked(folder, self.folder / name):
                self.write(name, monitor, score, functools.partial(link_files, folder))

    def _info(self, name: str) -> Path:
        return self.record / f"{name}{INFO}"


def _describe(monitor: Monitor, score: Score) -> str:
    at = {"update": score.where.update, "epoch": score.where.epoch, "step": score.where.step}
    info = {"metric": monitor.score, "value": score.value, "split": monitor.split, **at, "scores": score.numbers}
    return json.dumps(info, indent=1) + "\n"


def _is_weights_info(info: Path) -> bool:
    """Return whether `NamedWeights` wrote the file; a project may have its own `*_info.json` files."""
    with contextlib.suppress(OSError, ValueError):
        return {"metric", "value", "split", "update", "scores"} <= read_table(info).keys()
    return False


def missing_names(record: Path) -> list[str]:
    """Return the names that the run wrote to `checkpt/` and that no longer exist."""
    names = sorted(path.name.removesuffix(INFO) for path in record.glob(f"*{INFO}") if _is_weights_info(path))
    for name in names:
        recover_folder(record / "checkpt" / name, alone=True)
    return [name for name in names if not (record / "checkpt" / name).exists()]


def link(folder: Path, name: str) -> None:
    """Create the folder `name` next to `folder`, with hard links to its files."""
    target = folder.with_name(name)
    if not is_linked(folder, target):
        replace_folder(target, lambda new: link_files(folder, new))


def remove_others(state_dir: Path, wanted: Collection[str]) -> list[str]:
    """Remove all checkpoints that are not in `wanted`: rename each one atomically, then delete its files."""
    unwanted = [folder for folder in checkpoints(state_dir) if folder.name not in wanted]
    for folder in unwanted:
        doomed = folder.with_name(f"{TEMPORARY}{os.getpid()}-old-{folder.name}")
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    return [folder.name for folder in unwanted]


def is_linked(folder: Path, target: Path) -> bool:
    """Return whether `target` contains links to the checkpoint `folder`."""
    return is_same(folder / MANIFEST, target / MANIFEST)


def link_files(folder: Path, new: Path) -> None:
    """Create the folder `new` with hard links to the files of `folder`."""
    new.mkdir()
    for file in os.listdir(folder):
        try:
            os.link(folder / file, new / file)
        except OSError:  # a file system without hard links
            shutil.copy2(folder / file, new / file)
