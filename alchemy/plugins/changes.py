"""What has changed since a record was written, and whether a run that goes on with it is still the same run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.config.explain import differences
from alchemy.config.load import prepare_cfg
from alchemy.config.merge import brief
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.files import hash_tree, read_table
from alchemy.plugins.files import environment, values_hash, versions
from alchemy.records.folder import read_info

# keys of a config that leave every number of a training as it is
HARMLESS = (
    "tag",
    "plugins.*",
    "checkpoint.*",
    "stop.*",
    "task.datasets.*.num_workers",  # with a stream it does matter: the state knows, and refuses
    "task.datasets.*.prefetch_factor",
    "task.datasets.*.persistent_workers",
    "task.datasets.*.pin_memory",
    "task.datasets.*.timeout",
    "task.datasets.test.*",
    "task.datasets.inference.*",
)


class Change(NamedTuple):
    """One thing that is not as it was; if it `breaks`, a run that goes on is not equal to one that never stopped."""

    name: str
    text: str
    breaks: bool
    of_config: bool = False


def changes(record: Path, document: Document, device_info: Mapping[str, Any], user_dir: str) -> list[Change]:
    """All that differs between a record and the run that is to go on with it."""
    return [*_config(record, document), *_code(record, user_dir), *_machine(record, device_info)]


def _config(record: Path, document: Document) -> Iterator[Change]:
    was, written = prepare_cfg(record / "cfg.toml"), read_info(record).get("cfg_values")
    if written and written != values_hash(was):
        yield Change("cfg.toml", "was edited since the run wrote it", True, of_config=True)
    for key, before, after in differences(was, document):
        harmless = any(fnmatch(key, pattern) for pattern in HARMLESS)
        yield Change(key, f"{_shown(before)} -> {_shown(after)}", not harmless, of_config=True)


def _shown(value: object) -> str:
    return "absent" if type(value) is object else brief(value)


def _code(record: Path, user_dir: str) -> Iterator[Change]:
    info = read_info(record)
    code = Path(user_dir)
    now = hash_tree(code) if code.is_dir() else ""
    if info["code_hash"] != now:
        yield Change("code", f"the code in {user_dir} has changed", True)
    for package, version in versions().items():
        before = info["versions"].get(package)
        if before != version:
            yield Change(package, f"{before} -> {version}", True)


def _machine(record: Path, device_info: Mapping[str, Any]) -> Iterator[Change]:
    before = _environment_in(record / "env.json")
    now = environment(dict(device_info))
    rows = {
        "device": (_kind(before.get("device")), _kind(now["device"]), True),
        "threads": (before.get("threads"), now["threads"], True),  # sums are cut differently
        "processor": (before.get("processor"), now["processor"], True),
        "platform": (before.get("platform"), now["platform"], False),
        "cwd": (before.get("cwd"), now["cwd"], False),
    }
    for name, (was, new, breaks) in rows.items() if before else ():
        if was != new:
            yield Change(name, f"{was} -> {new}", breaks)
    was = before.get("processes", now["processes"])
    if was != now["processes"]:  # where the data stands is counted over all of them; a state that cannot do so refuses
        text = "the data goes on where it stood, but sums are added in another order and dropout draws anew"
        yield Change("ranks", f"{was} -> {now['processes']} processes: {text}", False)
    packages = before.get("packages", {})
    for name in sorted({*packages, *now["packages"]}) if before else ():
        if name not in versions() and packages.get(name) != now["packages"].get(name):
            yield Change(name, f"{packages.get(name, 'absent')} -> {now['packages'].get(name, 'absent')}", False)


def _environment_in(path: Path) -> dict[str, Any]:
    try:
        content = read_table(path) if path.exists() else {}
        for key in ("device", "packages"):
            if not isinstance(content.get(key, {}), dict):
                raise ValueError(f"its {key!r} is not a JSON object")
    except (OSError, ValueError) as error:
        hint = "put it back, or remove it: then nobody knows on what machine the run was"
        raise AlchemyError(f"{path} cannot be read: {error}", hint=hint) from error
    return content


def _kind(device: Mapping[str, Any] | None) -> str:
    """The sort of device: one GPU of a machine is as good as the next."""
    return str((device or {}).get("device", "cpu")).partition(":")[0]


def refuse_changes(found: Collection[Change], allowed: Collection[str]) -> None:
    """An error that names every change which breaks exactness and was not allowed."""
    breaking = [change for change in found if change.breaks]
    names = {change.name for change in breaking} | {"config"}
    refused = [change for change in breaking if not _is_allowed(change, allowed)]
    if refused:
        listed = "".join(f"\n  {change.name}: {change.text}" for change in refused)
        raise AlchemyError(
            f"it would not be the same run any more:{listed}",
            hint=f"put it back, or go on all the same with --allow {','.join(change.name for change in refused)}",
        )
    for name in set(allowed) - names - {"data", "num_workers", "ranks", "code", "torch", "device", "threads"}:
        raise AlchemyError(f"--allow {name}: nothing of that name has changed", hint=did_you_mean(name, names))


def _is_allowed(change: Change, allowed: Collection[str]) -> bool:
    return change.name in allowed or (change.of_config and "config" in allowed)
