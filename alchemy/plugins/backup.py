"""Back up the code to the record, so that a run can be repeated from its folder."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from loguru import logger

from alchemy.errors import AlchemyError
from alchemy.files import replace_folder
from alchemy.plugins.base import AlchemyPlugin
from alchemy.plugins.secret_files import secret_reason
from alchemy.trust import BACKUP, digest_of_folder, record_of, trust

# version history and caches
IGNORED = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    "*.pyc",
    ".*_cache",
    ".alchemy",
)


@AlchemyPlugin.register()
class Backup(AlchemyPlugin):
    """Plugin that copies `paths` to `backup/` in the record.

    The `alchemy` path is the installed package, unless the current folder contains that package. Files that contain
    secrets, such as keys and passwords, are skipped, since records are often shared.
    """

    aside = True

    def __init__(self, *, paths: list[str], ignore: list[str] = []) -> None:
        super().__init__()
        if record := record_of(self.run.symbols.try_get_global("user_dir") or "src"):  # the code is from this record
            sources = sorted(Path(record, BACKUP).glob("*"))
            paths = [source.name for source in sources]
        else:
            sources = [_find_source(name) for name in paths]
        folder = self.run.record_dir
        if folder is None:
            return
        skipped: list[str] = []
        skip = _make_ignore((*IGNORED, *ignore), folder, skipped)

        def copy(backup: Path) -> None:
            backup.mkdir()
            for name, source in zip(paths, sources, strict=True):
                target = backup / (Path(name).name or source.resolve().name)
                if source.is_dir():
                    shutil.copytree(source, target, ignore=skip, symlinks=True, dirs_exist_ok=True)
                elif not skip(str(source.parent), [source.name]):
                    shutil.copy2(source, target)

        # replace the folder as a whole, so as not to write through a link in the backup of a resumed record
        replace_folder(folder / BACKUP, copy)
        trust(digest_of_folder(folder / BACKUP), folder / BACKUP)
        if skipped:
            logger.warning("not backed up, because they contain secrets: {}", ", ".join(sorted(skipped)))


def _find_source(name: str) -> Path:
    path = Path(name)
    # ignore an empty `alchemy` folder, such as a git submodule that was not fetched
    if path.exists() and (name != "alchemy" or (path / "__init__.py").exists()):
        return path
    if name == "alchemy":
        return Path(__file__).parents[1]
    raise AlchemyError(f"cannot back up {name!r}: no such file or folder in {os.getcwd()}", section="plugins.Backup")


def _make_ignore(patterns: Iterable[str], record: Path, skipped: list[str]) -> Callable[[str, list[str]], set[str]]:
    """Return the `ignore` function for `shutil.copytree`; it adds files with secrets, and the reason, to `skipped`."""
    patterns = tuple(patterns)
    # the folder of all records may be inside a path; copying it would never end
    records = os.path.realpath(record.parent)

    def skip(folder: str, names: list[str]) -> set[str]:
        matched = {name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)}
        # realpath, because Path.resolve raises an error for a link to itself
        matched |= {name for name in names if os.path.realpath(os.path.join(folder, name)) == records}
        secret = {name: reason for name in names if name not in matched and (reason := secret_reason(folder, name))}
        skipped.extend(f"{os.path.join(folder, name)} ({reason})" for name, reason in secret.items())
        return {*matched, *secret}

    return skip
