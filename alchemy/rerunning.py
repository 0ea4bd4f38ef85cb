"""Prepare to repeat a run from its record: with its config and its code, not with those in the working directory."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.files import hash_file
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
    refuse_running(record, info)
    _require_trust(record)
    user_dir, changed = _find_code(record, info)
    environment = read_environment(record / "env.json")
    folder, warnings = _find_folder(environment)
    warnings += [f"{name} in {BACKUP}/ is not the file that the run imported" for name in changed]
    os.environ.update(_read_variables(environment))
    add_to_path(user_dir)
    document = prepare_cfg(config, overrides=overrides, seed=seed, user_dir=user_dir, record=True)
    document.parent = str(info.get("id") or record.name)
    if not record.is_relative_to(folder):
        _write_next_to(record, document)
    document.path = f"{record.name}/{CONFIG}"  # shorter in messages
    devices = list(device) if device else _recorded_device(environment)
    if info:
        from alchemy.plugins.resume_changes import changes  # imports torch

        found = changes(record, document, alloc(devices)[0], user_dir)
        warnings += [f"{change.name}: {change.text}" for change in found if _matters(change)]
        warnings += _compare_alchemy(info)
    threads, processes = (_positive(environment.get(name)) for name in ("threads", "processes"))
    return Rerun(document, user_dir, folder, devices, threads, processes or 1, warnings)


def _write_next_to(record: Path, document: Document) -> None:
    """Write the new record next to a copy of a record, instead of to the project that the copy comes from."""
    for plugin in document.get("plugins") or []:
        if str(plugin.get("type", "")).rpartition(".")[2] == "FileLogger":
            plugin["log_dir"] = str(record.parent)


def _matters(change: Change) -> bool:
    """Return whether a change since the run may lead to other results, and the user has not asked for it."""
    return change.breaks and not change.of_config and change.name not in ("code", "checkpt")


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


def _find_code(record: Path, info: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the package in the backup that contains the code of the project, and the files that have changed.

    Raises an error if files are missing.
    """
    backup = record / BACKUP
    if backup.is_dir():
        refuse_links(backup)
    code = {name: digest for name, digest in info.get("code", {}).items() if _is_needed(name, info)}
    roots = [backup]
    for first in list(code)[:1]:  # `paths = ["."]` of Backup puts the code one level deeper
        found = (Path(place) for place, _, _ in os.walk(backup) if os.path.isfile(os.path.join(place, first)))
        roots += sorted(found, key=lambda place: len(place.parts))
    missing = {root: [name for name in code if not (root / name).is_file()] for root in roots}
    root = min(missing, key=lambda root: len(missing[root]))
    if missing[root]:
        raise _lacks_code(record, info, missing[root])
    packages = [name.partition("/")[0] for name in code if "/" in name]
    packages += sorted(path.parent.name for path in backup.glob("*/*.py"))  # an early end, or from an older version
    changed = [name for name, digest in code.items() if hash_file(root / name) != digest]
    return str(root / next(iter(packages), "src")), changed


def _is_needed(name: str, info: Mapping[str, Any]) -> bool:
    """Return whether a rerun needs a file: not the script that started the run, nor a name that no run writes."""
    cmd = info.get("cmd")
    script = str(cmd[0]) if isinstance(cmd, list) and cmd else ""
    return not (os.path.isabs(name) or ".." in Path(name).parts or f"/{script}".endswith(f"/{name}"))


def _lacks_code(record: Path, info: Mapping[str, Any], missing: list[str]) -> AlchemyError:
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    text = f"{record} cannot be rerun: it lacks code that the run imported: {', '.join(missing[:SHOWN])}{more}"
    packages = json.dumps(sorted({name.partition("/")[0] for name in missing}), ensure_ascii=False)
    hint = f'to keep it in future runs, use the plugin {{ type = "alchemy.plugins.Backup", paths = {packages} }}'
    if commit := describe_commit(info.get("git")):
        patch = " and apply git.diff" if (record / "git.diff").exists() else ""
        again = f"alchemy run {shlex.quote(str(record / CONFIG))}"
        hint = f"check out commit {commit.partition(' ')[0]}{patch}, and run `{again}` there"
    return AlchemyError(text, hint=hint)


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
