"""Find changes made since a record was written that would make a resumed run differ from the original."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.checkpoint.links import missing_names
from alchemy.config.dynamic_values import part_names
from alchemy.config.explain import differences
from alchemy.config.load import prepare_cfg
from alchemy.config.merge import format_brief
from alchemy.config.secrets import MASK
from alchemy.config.tree import Array, Document, Table
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.launch.project_imports import describe_changes
from alchemy.plugins.config_hash import values_hash
from alchemy.plugins.file_logger import environment, hash_code, versions
from alchemy.records.environment import read_environment
from alchemy.records.status import read_info

# keys that do not affect training results: `*` matches one name, `**` all remaining names
HARMLESS = (
    "tag",
    "checkpoint.**",
    "stop.**",
    "capture.**",
    "task.datasets.*.num_workers",  # matters only for streams; checked when the state is loaded
    "task.datasets.*.prefetch_factor",
    "task.datasets.*.persistent_workers",
    "task.datasets.*.pin_memory",
    "task.datasets.*.timeout",
    "task.datasets.test.**",
    "task.datasets.inference.**",
)
# plugins of alchemy that only print, write or send; any other plugin may affect results
PASSIVE = (
    "BasicSetup",
    "DisplayRunningInfo",
    "FileLogger",
    "TensorboardLogger",
    "Backup",
    "Profile",
    "MailOnFinish",
)
# accepted by --allow even if nothing has changed: jobs move between machines, and the state is checked later
ALWAYS_ALLOWED = {"data", "num_workers", "ranks", "code", "torch", "device", "threads", "ledger", "checkpt"}


class Change(NamedTuple):
    """A change since the record was written; if it `breaks`, the resumed run differs from an uninterrupted one."""

    name: str
    text: str
    breaks: bool
    of_config: bool = False


def changes(record: Path, document: Document, device_info: Mapping[str, Any], user_dir: str) -> list[Change]:
    """Return the differences between a record and the run that resumes it."""
    return [
        *_config_changes(record, document),
        *_code_changes(record, user_dir),
        *_machine_changes(record, device_info),
        *_weight_changes(record),
    ]


def _config_changes(record: Path, document: Document) -> Iterator[Change]:
    was, info = prepare_cfg(record / "cfg.toml", compare=True), read_info(record)
    written, previous = info.get("cfg_values"), record / f"cfg.{info.get('gen', 0) - 1}.toml"
    # when resumed with a different config, a run saves the old config before the new hash and may be killed in between
    known = [was, *([prepare_cfg(previous, compare=True)] if previous.is_file() else [])]
    if written and written not in map(values_hash, known):
        yield Change("cfg.toml", "was edited after the run wrote it", True, of_config=True)
    harmless = [*HARMLESS, *_passive_plugins(was, document)]
    for key, before, after in differences(was, document):
        if before == after == MASK:  # even in a plugin: resuming the same run requires the same value
            yield Change(key, "the secret has changed", True, of_config=True)
            continue
        breaks = not any(_matches(key, pattern) for pattern in harmless)
        yield Change(key, f"{_format_value(before)} -> {_format_value(after)}", breaks, of_config=True)


def _matches(key: str, pattern: str) -> bool:
    """Match component by component: if `*` matched dots, it would also match the parameters of a pipe.

    >>> _matches("stop.any.0.patience", "stop.**"), _matches("task.datasets.train.pipes.0.timeout", "task.*.timeout")
    (True, False)
    """
    names, wanted = key.split("."), pattern.split(".")
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        names = names[: len(wanted)]
    return len(names) == len(wanted) and all(want in ("*", name) for name, want in zip(names, wanted))


def _passive_plugins(*documents: Document) -> Iterator[str]:
    """Yield patterns for the plugins that do not affect results in any of the configs."""
    types: dict[str, list[str]] = {}
    for document in documents:
        plugins = document.get("plugins")
        for name, table in zip(part_names(plugins), plugins, strict=True) if isinstance(plugins, Array) else ():
            types.setdefault(name, []).append(str(table.get("type")) if isinstance(table, Table) else "")
    for name, kinds in types.items():
        parts = [kind.rpartition(".") for kind in kinds]
        if all(kind in PASSIVE and module.partition(".")[0] in ("", "alchemy") for module, _, kind in parts):
            yield f"plugins.{name}.**"


def _format_value(value: object) -> str:
    return "absent" if type(value) is object else format_brief(value)


def _code_changes(record: Path, user_dir: str) -> Iterator[Change]:
    info = read_info(record)
    if info.get("code"):
        if changed := describe_changes(info["code"], user_dir):
            yield Change("code", ", ".join(changed), True)
    elif info["code_hash"] != hash_code(user_dir):  # from an earlier version, or killed before the first save
        yield Change("code", f"the code in {user_dir} has changed", True)
    for package, version in versions().items():
        before = info["versions"].get(package)
        if before != version:
            yield Change(package, f"{before} -> {version}", True)


def _weight_changes(record: Path) -> Iterator[Change]:
    missing = missing_names(record)
    if missing:
        names = ", ".join(f"checkpt/{name}" for name in missing)
        yield Change("checkpt", f"missing: {names}", True)


def _machine_changes(record: Path, device_info: Mapping[str, Any]) -> Iterator[Change]:
    before = read_environment(record / "env.json")
    now = environment(dict(device_info))
    rows = {
        "device": (_device_type(before.get("device")), _device_type(now["device"]), True),
        "threads": (before.get("threads"), now["threads"], True),  # affects how sums are split
        "processor": (before.get("processor"), now["processor"], True),
        "platform": (before.get("platform"), now["platform"], False),
        "cwd": (before.get("cwd"), now["cwd"], False),
    }
    for name, (was, new, breaks) in rows.items() if before else ():
        if was != new:
            yield Change(name, f"{was} -> {new}", breaks)
    was = before.get("processes", now["processes"])
    if was != now["processes"]:  # the data position is counted over all processes; a state without it raises an error
        text = "the data continues at the same position, but the order of sums and the dropout masks change"
        yield Change("ranks", f"{was} -> {now['processes']} processes: {text}", False)
    packages, told = before.get("packages", {}), versions()
    for name in sorted({*packages, *now["packages"]}) if before else ():
        if name not in told and packages.get(name) != now["packages"].get(name):
            yield Change(name, f"{packages.get(name, 'absent')} -> {now['packages'].get(name, 'absent')}", False)


def _device_type(device: Mapping[str, Any] | None) -> str:
    """Return the device type without its index: GPUs of a machine are interchangeable."""
    return str((device or {}).get("device", "cpu")).partition(":")[0]


def refuse_changes(found: Collection[Change], allowed: Collection[str]) -> None:
    """Raise an error that lists every breaking change that was not allowed."""
    breaking = [change for change in found if change.breaks]
    names = {change.name for change in breaking} | {"config"}
    refused = [change for change in breaking if not _is_allowed(change, allowed)]
    if refused:
        listed = "".join(f"\n  {change.name}: {change.text}" for change in refused)
        raise AlchemyError(
            f"the resumed run would not be identical:{listed}",
            hint=f"revert it, or resume anyway with --allow {','.join(change.name for change in refused)}",
        )
    for name in set(allowed) - names - ALWAYS_ALLOWED:
        raise AlchemyError(f"--allow {name}: no change with that name", hint=did_you_mean(name, names))


def _is_allowed(change: Change, allowed: Collection[str]) -> bool:
    return change.name in allowed or (change.of_config and "config" in allowed)
