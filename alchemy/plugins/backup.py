"""A copy of the code in the record, so that a run can be repeated from its folder."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from loguru import logger

from alchemy.errors import AlchemyError
from alchemy.plugins.base import AlchemyPlugin

# history and caches are no code; keys and passwords do not belong in a folder that is shared
NEVER = (".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "*.pyc", ".*_cache", ".alchemy")
SECRETS = (
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "id_rsa*",
    "id_ed25519*",
    ".netrc",
    ".pypirc",
    "credentials*",
    "secrets*",
)


@AlchemyPlugin.register()
class Backup(AlchemyPlugin):
    """Copies `paths` into `backup/` of the record; `alchemy`, unless that package is here, is the installed one."""

    aside = True

    def __init__(self, *, paths: list[str], ignore: list[str] = []) -> None:
        super().__init__()
        sources = [_source(name) for name in paths]
        folder = self.run.record_dir
        if folder is None:
            return
        skip = _ignoring((*NEVER, *SECRETS, *ignore), folder)
        for name, source in zip(paths, sources, strict=True):
            target = folder / "backup" / (Path(name).name or source.resolve().name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=skip, symlinks=True, dirs_exist_ok=True)
            elif not skip(str(source.parent), [source.name]):
                shutil.copy2(source, target)
            else:
                logger.warning("{} looks like a secret and is not backed up", source)


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


def _ignoring(patterns: Iterable[str], record: Path) -> Callable[[str, list[str]], set[str]]:
    patterns = tuple(patterns)
    # the folder of all records, when it lies inside a path, would copy itself without end
    records = os.path.realpath(record.parent)

    def skip(folder: str, names: list[str]) -> set[str]:
        matched = {name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)}
        # realpath, since Path.resolve raises at a link that leads to itself
        return matched | {name for name in names if os.path.realpath(os.path.join(folder, name)) == records}

    return skip
