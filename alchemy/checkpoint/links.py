"""`best` and `last`: folders of hard links to a checkpoint, and the removal of checkpoints nobody wants."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from alchemy.checkpoint.manifest import MANIFEST, TEMPORARY, checkpoints
from alchemy.files import replace_folder


def link(folder: Path, name: str) -> None:
    """Makes `name`, beside `folder`, the same checkpoint: the same files, which take no room twice."""
    target = folder.with_name(name)
    if not is_same(folder, target):
        replace_folder(target, lambda new: _link_files(folder, new))


def remove_others(state_dir: Path, wanted: Collection[str]) -> list[str]:
    """Removes the checkpoints that are not wanted; each is gone at once, its files a little later."""
    unwanted = [folder for folder in checkpoints(state_dir) if folder.name not in wanted]
    for folder in unwanted:
        doomed = folder.with_name(f"{TEMPORARY}{os.getpid()}-old-{folder.name}")
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    return [folder.name for folder in unwanted]


def is_same(folder: Path, target: Path) -> bool:
    try:
        return os.path.samefile(folder / MANIFEST, target / MANIFEST)
    except FileNotFoundError:
        return False


def _link_files(folder: Path, new: Path) -> None:
    new.mkdir()
    for file in sorted(folder.iterdir()):
        try:
            os.link(file, new / file.name)
        except OSError:  # a file system without links
            shutil.copy2(file, new / file.name)
