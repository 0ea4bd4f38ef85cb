"""A copy of the code in the record, so that a run can be repeated from its folder."""

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
from alchemy.plugins.secret_files import why_secret

# history and caches are no code
NEVER = (".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "*.pyc", ".*_cache", ".alchemy")


@AlchemyPlugin.register()
class Backup(AlchemyPlugin):
    """Copies `paths` into `backup/` of the record; `alchemy`, unless that package is here, is the installed one.

    Files with secrets, such as keys and passwords, are left out: a record is often shared.
    """

    aside = True

    def __init__(self, *, paths: list[str], ignore: list[str] = []) -> None:
        super().__init__()
        sources = [_source(name) for name in paths]
        folder = self.run.record_dir
        if folder is None:
            return
        left_out: list[str] = []
        skip = _ignoring((*NEVER, *ignore), folder, left_out)

        def copy(backup: Path) -> None:
            backup.mkdir()
            for name, source in zip(paths, sources, strict=True):
                target = backup / (Path(name).name or source.resolve().name)
                if source.is_dir():
                    shutil.copytree(source, target, ignore=skip, symlinks=True, dirs_exist_ok=True)
                elif not skip(str(source.parent), [source.name]):
                    shutil.copy2(source, target)

        # as a whole: a link in the backup of a resumed record is not written through
        replace_folder(folder / "backup", copy)
        if left_out:
            logger.warning("not backed up, since they hold secrets: {}", ", ".join(sorted(left_out)))


def _source(name: str) -> Path:
    path = Path(name)
    # an empty folder `alchemy`, as git leaves of a submodule that was not fetched, is no code to keep
    if path.exists() and (name != "alchemy" or (path / "__init__.py").exists()):
        return path
    if name == "alchemy":
        return Path(__file__).parents[1]
    raise AlchemyError(
        f"{name!r} cannot be backed up: there is no such file or folder in {os.getcwd()}", section="plugins.Backup"
    )


def _ignoring(patterns: Iterable[str], record: Path, left_out: list[str]) -> Callable[[str, list[str]], set[str]]:
    """What `shutil.copytree` is to skip in a folder; files with secrets are added to `left_out`, with the reason."""
    patterns = tuple(patterns)
    # the folder of all records, when it lies inside a path, would copy itself without end
    records = os.path.realpath(record.parent)

    def skip(folder: str, names: list[str]) -> set[str]:
        matched = {name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)}
        # realpath, since Path.resolve raises at a link that leads to itself
        matched |= {name for name in names if os.path.realpath(os.path.join(folder, name)) == records}
        secret = {name: reason for name in names if name not in matched and (reason := why_secret(folder, name))}
        left_out.extend(f"{os.path.join(folder, name)} ({reason})" for name, reason in secret.items())
        return {*matched, *secret}

    return skip
