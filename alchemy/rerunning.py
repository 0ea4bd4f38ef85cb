"""Prepare to repeat a run from its record: with its config and its code, not with those in the working directory."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.launch.device import CPU, alloc
from alchemy.launch.project_imports import add_to_path
from alchemy.plugins.code_state import describe_commit, read_alchemy
from alchemy.records.environment import ENV_NAMES, read_environment
from alchemy.records.local_copies import config_of
from alchemy.records.status import INFO, read_info, refuse_running
from alchemy.records.symlinks import refuse_links
from alchemy.trust import BACKUP, CONFIG, record_of, untrusted_record

if TYPE_CHECKING:
    from alchemy.plugins.resume_changes import Change

SHOWN = 5  # missing files in an error message
MOST_THREADS = 4096


class Rerun(NamedTuple):
    """Everything that is needed to repeat a run."""

    document: Document
    user_dir: str
    folder: Path  # the working directory, which relative paths in the config refer to
    device: list[int] | None
    threads: int | None
    processes: int
    warnings: list[str]  # what may lead to other results


def prepare_rerun(
    record: Path, *, overrides: Sequence[str] = (), seed: int | None = None, device: Sequence[int] | None = None
) -> Rerun:
    """Return what is needed to repeat a run; raise an error if the record is not trusted or lacks code.

    Sets the environment variables of the run, and puts the code in the backup of the record on the import path. Call it
    before torch is imported, which reads the variables.
    """
    record = record.absolute()
    config = config_of(record)
    info = read_info(record) if (record / INFO).exists() else {}
    if info:
        refuse_running(record, info)
    _require_trust(record)
    user_dir = _find_code(record, info)
    environment = read_environment(record / "env.json")
    folder, warnings = _find_folder(environment)
    os.environ.update(_read_variables(environment))
    add_to_path(user_dir)
    document = prepare_cfg(config, overrides=overrides, seed=seed, user_dir=user_dir, record=True)
    document.parent = str(info.get("id") or record.name)
    document.path = f"{record.name}/{CONFIG}"  # shorter in messages
    devices = list(device) if device else _recorded_device(environment)
    if info:
        from alchemy.plugins.resume_changes import changes  # imports torch

        found = changes(record, document, alloc(devices)[0], user_dir)
        warnings += [f"{change.name}: {change.text}" for change in found if _matters(change)]
        warnings += _compare_alchemy(info)
    threads, processes = (_positive(environment.get(name)) for name in ("threads", "processes"))
    return Rerun(document, user_dir, folder, devices, threads, processes or 1, warnings)


def _matters(change: Change) -> bool:
    """Return whether a change since the run may lead to other results, and the user has not asked for it."""
    return change.breaks and not change.of_config and change.name != "checkpt"


def _read_variables(environment: Mapping[str, Any]) -> dict[str, str]:
    found = environment.get("env")
    values = found if isinstance(found, dict) else {}
    return {name: str(values[name]) for name in ENV_NAMES if name in values and name != "CUDA_VISIBLE_DEVICES"}


def _require_trust(record: Path) -> None:
    """Raise an error if the user has neither written nor trusted the config and the code of a record."""
    if record_of(record / CONFIG) != os.path.realpath(record):
        raise AlchemyError(f"{record} is not a complete record", hint=f"it needs {INFO} or the files of alchemy 0.x")
    for path, what in ((record / CONFIG, "its config was"), (record / BACKUP, f"the code in {BACKUP}/ was")):
        if untrusted_record(path):
            raise AlchemyError(
                f"{record} cannot be rerun: {what} not written by one of your runs, or has been edited since",
                hint=f"read {CONFIG} and {BACKUP}/, then trust both with `alchemy trust {shlex.quote(str(record))}`",
            )


def _find_code(record: Path, info: Mapping[str, Any]) -> str:
    """Return the package in the backup that contains the code of the project; raise an error if files are missing."""
    backup = record / BACKUP
    if backup.is_dir():
        refuse_links(backup)
    names = [name for name in info.get("code", {}) if not os.path.isabs(name) and ".." not in Path(name).parts]
    roots = [backup]
    if names:  # `paths = ["."]` of Backup puts the code one level deeper
        places = sorted(backup.rglob(names[0]), key=lambda path: len(path.parts))
        roots += [place.parents[len(Path(names[0]).parts) - 1] for place in places]
    missing = {root: [name for name in names if not (root / name).is_file()] for root in roots}
    root = min(missing, key=lambda root: len(missing[root]))
    if missing[root]:
        raise _lacks_code(record, info, missing[root])
    packages = [name.partition("/")[0] for name in names if "/" in name]
    packages += sorted(path.parent.name for path in backup.glob("*/*.py"))  # an early end, or from an older version
    return str(root / next(iter(packages), "src"))


def _lacks_code(record: Path, info: Mapping[str, Any], missing: list[str]) -> AlchemyError:
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    text = f"{record} cannot be rerun: it lacks code that the run imported: {', '.join(missing[:SHOWN])}{more}"
    packages = sorted({name.partition("/")[0] for name in missing})
    hint = f'to keep the code of future runs, add {{ type = "alchemy.plugins.Backup", paths = {packages} }} to plugins'
    if commit := describe_commit(info.get("git")):
        patch = " and apply git.diff" if (record / "git.diff").exists() else ""
        hint = f"check out commit {commit.partition(' ')[0]}{patch}, and run `alchemy run {record / 'cfg.toml'}` there"
    return AlchemyError(text, hint=hint.replace("'", '"'))


def _find_folder(environment: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """Return the working directory of the run, or the current one if it is gone, with a warning."""
    folder = environment.get("cwd")
    if isinstance(folder, str) and os.path.isabs(folder) and os.path.isdir(folder):
        return Path(folder), []
    here = Path.cwd()
    what = f"of the run, {folder}, does not exist" if folder else "is unknown"
    return here, [f"the working directory {what}: relative paths refer to {here}"]


def _recorded_device(environment: Mapping[str, Any]) -> list[int] | None:
    name = (environment.get("device") or {}).get("device")
    kind, _, number = str(name or "").partition(":")
    if kind == "cpu":
        return [CPU]
    return [int(number)] if kind == "cuda" and number.isdecimal() else None


def _compare_alchemy(info: Mapping[str, Any]) -> list[str]:
    """Return a warning if the code of alchemy differs, although its version may be the same."""
    before, now = info.get("alchemy"), read_alchemy().fields
    if not isinstance(before, dict) or now is None or before.get("hash") == now["hash"]:
        return []
    commits = [describe_commit(row) or "unknown commit" for row in (before, now)]
    return [f"the code of alchemy has changed ({' -> '.join(commits)})"]


def _positive(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= MOST_THREADS else None
