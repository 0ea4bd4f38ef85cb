"""Folders of hard links to a checkpoint: `best`, `last`, `checkpt/NAME`; and the removal of old checkpoints."""

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


class Named:
    """The best weights of a record as `checkpt/NAME`, with `NAME_info.json` beside: value, place and all scores.

    `save(path)` writes them in a project's own format; without it they are links to the files of a checkpoint.
    """

    def __init__(self, record: Path, folder: Path | None = None, save: Callable[[Path], object] | None = None) -> None:
        self.record, self.folder, self.save = record, folder or record / "checkpt", save

    def write(self, name: str, monitor: Monitor, score: Score, fill: Callable[[Path], object]) -> None:
        """Lets `fill(path)` write the folder; it is complete before it takes the place of the old one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_folder(self.folder / name, fill)
        write_atomic(self._info(name), _describe(monitor, score))

    def link(self, folder: Path, names: Collection[str], monitor: Monitor, score: Score) -> None:
        """Links a checkpoint under the names, unless it already is; completes what a full disk left half done."""
        for name in names:
            info = self._info(name)
            is_told = info.is_file() and info.read_text("utf-8", "replace") == _describe(monitor, score)
            if not is_told or not links_to(folder, self.folder / name):
                self.write(name, monitor, score, functools.partial(link_files, folder))

    def _info(self, name: str) -> Path:
        return self.record / f"{name}{INFO}"


def _describe(monitor: Monitor, score: Score) -> str:
    at = {"update": score.where.update, "epoch": score.where.epoch, "step": score.where.step}
    info = {"metric": monitor.score, "value": score.value, "split": monitor.split, **at, "scores": score.numbers}
    return json.dumps(info, indent=1) + "\n"


def _is_ours(info: Path) -> bool:
    """Whether `Named` has written a file; a project may have others of such a name."""
    with contextlib.suppress(OSError, ValueError):
        return {"metric", "value", "split", "update", "scores"} <= read_table(info).keys()
    return False


def missing_names(record: Path) -> list[str]:
    """The names below `checkpt/` that a record has written and that no longer exist."""
    names = sorted(path.name.removesuffix(INFO) for path in record.glob(f"*{INFO}") if _is_ours(path))
    for name in names:
        recover_folder(record / "checkpt" / name, alone=True)
    return [name for name in names if not (record / "checkpt" / name).exists()]


def link(folder: Path, name: str) -> None:
    """Makes `name`, beside `folder`, the same checkpoint: the same files, which take no room twice."""
    target = folder.with_name(name)
    if not links_to(folder, target):
        replace_folder(target, lambda new: link_files(folder, new))


def remove_others(state_dir: Path, wanted: Collection[str]) -> list[str]:
    """Removes the checkpoints that are not wanted; each is gone at once, its files a little later."""
    unwanted = [folder for folder in checkpoints(state_dir) if folder.name not in wanted]
    for folder in unwanted:
        doomed = folder.with_name(f"{TEMPORARY}{os.getpid()}-old-{folder.name}")
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    return [folder.name for folder in unwanted]


def links_to(folder: Path, target: Path) -> bool:
    """Whether a folder holds the links to a checkpoint."""
    return is_same(folder / MANIFEST, target / MANIFEST)


def link_files(folder: Path, new: Path) -> None:
    """Makes the folder `new` with the files of `folder`."""
    new.mkdir()
    for file in os.listdir(folder):
        try:
            os.link(folder / file, new / file)
        except OSError:  # a file system without links
            shutil.copy2(folder / file, new / file)
