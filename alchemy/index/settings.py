"""Project-wide settings in `.alchemy/config.toml`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.files import home, read_bytes

NAME = "config.toml"


class ProjectSettings(NamedTuple):
    """The settings of a project; `home` is its `.alchemy` folder."""

    home: Path
    roots: tuple[Path, ...]
    columns: tuple[str, ...] = ()
    mail: dict[str, Any] = {}
    slurm: dict[str, Any] = {}


def load_settings() -> ProjectSettings:
    """Read the settings of the project that contains the working directory; the defaults apply without a file."""
    folder = home()
    path = folder / NAME
    try:
        table = tomllib.loads(read_bytes(path).decode("utf-8"))
    except FileNotFoundError:
        table = {}
    except NotADirectoryError as error:
        raise AlchemyError(f"{folder} is not a folder", hint="rename or delete it") from error
    except OSError as error:
        raise AlchemyError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise AlchemyError(f"{path} cannot be read: {error}") from error
    project = folder.parent
    _check_keys(path, table, ("roots", "ls", "mail", "slurm"))
    _check_keys(path, _table(path, table, "ls"), ("columns",))
    roots = _strings(path, table, "roots") or (".", *_linked_records(project))
    return ProjectSettings(
        folder,
        tuple(Path(os.path.abspath(project / os.path.expanduser(root))) for root in roots),
        _strings(path, _table(path, table, "ls"), "columns"),
        _table(path, table, "mail"),
        _table(path, table, "slurm"),
    )


def _linked_records(project: Path) -> tuple[str, ...]:
    """Return `records` if it is a link to a folder outside the project, such as one on a larger disk."""
    records = project / "records"
    if not records.is_symlink() or not records.is_dir() or records.resolve().is_relative_to(project.resolve()):
        return ()
    return (records.name,)


def _check_keys(path: Path, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known) or f"expected {', '.join(known)}"
            raise AlchemyError(f"unknown key {key!r}", where=str(path), hint=hint)


def _table(path: Path, table: dict[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise AlchemyError(f"expected a table [{key}]", where=str(path))
    return found


def _strings(path: Path, table: dict[str, Any], key: str) -> tuple[str, ...]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise AlchemyError(f"{key} must be a list of strings", where=str(path))
    return tuple(found)
