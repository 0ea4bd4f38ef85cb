"""Describe one record: everything that `alchemy show` prints."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alchemy.checkpoint.links import is_linked
from alchemy.checkpoint.manifest import LINKS, checkpoints, read_manifest, verify
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.value_format import format_iso
from alchemy.records.disk_usage import list_files, measure_usage
from alchemy.records.failure import find_failed_updates, read_traceback
from alchemy.records.ledger import NAME as LEDGER
from alchemy.records.metrics_file import MACHINE_PREFIXES
from alchemy.records.read_media import read_media
from alchemy.records.readme import read_readme
from alchemy.records.status import try_read_info

MAX_FILES = 1000


def describe_record(index: RecordIndex, row: Row) -> dict[str, Any]:
    """Return everything about a record that is worth showing, as JSON values."""
    info, readme = try_read_info(row.folder), read_readme(row.folder)
    usage = measure_usage(row.folder)
    return {
        "id": row.name,
        "path": row.path,
        "kind": row.kind,
        "tag": row.tag,
        "purpose": row.purpose,
        "tags": row.tag_list,
        "notes": list(readme.notes),
        "status": row.status,
        "reason": row.reason,
        "cause": row.cause,
        "traceback": read_traceback(row.folder) if row.status == "failed" else "",
        "problem": row.problem,
        "started": None if row.started is None else format_iso(row.started),
        "ended": None if row.ended is None else format_iso(row.ended),
        "seconds": row.elapsed,
        "updates": row.updates,
        "generations": row.gen + 1,
        "host": row.host,
        "command": format_command(info, row),
        "versions": _table(info, "versions"),
        "git": _table(info, "git"),
        "seed": info.get("seed"),
        "variant": row.variant,
        "sweep": info.get("sweep"),
        "delta": _table(info, "delta"),
        "peak_memory": _table(info, "peak_memory"),
        "best": None if row.best_value is None else _best(row),
        "metrics": _metrics(index, row),
        "parent": _relative(_parent(index, row)),
        "children": [_relative(child) for child in index.children(row)],
        "checkpoints": [_checkpoint(folder) for folder in checkpoints(row.folder / "state")],
        "bytes": {"total": usage.total, **usage.bytes},
        "media": _media(row.folder),
        "files": _files(row.folder),
        "next": suggest_commands(row, index.shorten_ids([row])[row.id]),
    }


def suggest_commands(row: Row, name: str) -> list[str]:
    """Return the commands that are useful for a record and possible: resume, replay, test, plot, report."""
    name = shlex.quote(name)
    has_weights = any((row.folder / path).exists() for path in ("checkpt/best", "state/best", "state/last"))
    found = []
    if row.kind == "train" and row.status in ("stopped", "killed", "failed", "lost"):
        found += [f"alchemy resume {name}"] if checkpoints(row.folder / "state") else []
        updates = find_failed_updates(row.folder, row.reason) if (row.folder / LEDGER).is_file() else []
        found += [f"alchemy replay {name} --update {updates[-1]}"] if row.status == "failed" and updates else []
    if row.status == "running":
        found += [f"alchemy watch {name}", f"alchemy stop {name}", f"alchemy open {name} --log"]
    if row.kind == "train" and has_weights and row.status != "running":
        found += [f"alchemy test {name}", f"alchemy predict {name}"]
    if row.kind == "train" and row.updates:
        metric = shlex.quote(row.best_metric or "train/loss")
        found += [f"alchemy plot {name} --metric {metric}", f"alchemy report {name}"]
    return found


def _table(info: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = info.get(key)
    return found if isinstance(found, dict) else {}


def format_command(info: Mapping[str, Any], row: Row) -> str:
    """Return the command that started a run as it was typed, ready to be pasted."""
    words = info.get("cmd")
    if not isinstance(words, list) or not words:
        return row.cmd
    program = "alchemy" if str(words[0]).endswith(("alchemy/__main__.py", "/alchemy")) else str(words[0])
    return shlex.join([program, *map(str, words[1:])])


def _best(row: Row) -> dict[str, Any]:
    return {"metric": row.best_metric, "value": row.best_value, "update": row.best_update}


def _metrics(index: RecordIndex, row: Row) -> dict[str, dict[str, Any]]:
    found = index.metrics([row])[row.id]
    names = [name for name in found if not name.startswith(MACHINE_PREFIXES)]
    names.sort(key=lambda name: _importance(row, name))
    return {name: dict(found[name]) for name in names}


def _importance(row: Row, name: str) -> tuple[bool, int, str]:
    """Sort the monitored metric first, then tests, evaluations and training."""
    splits = ("test", "dev", "valid", "train")
    split = name.partition("/")[0]
    return name != row.best_metric, splits.index(split) if split in splits else len(splits), name


def _parent(index: RecordIndex, row: Row) -> Row | None:
    if not row.parent:
        return None
    try:
        return index.find(row.parent)
    except AlchemyError:  # removed, or several records have this id
        return None


def _relative(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {"id": row.name, "kind": row.kind, "status": row.status, "path": row.path}


def _checkpoint(folder: Path) -> dict[str, Any]:
    links = [name for name in LINKS if is_linked(folder, folder.with_name(name))]
    about: dict[str, Any] = {"name": folder.name, "links": links, "problem": verify(folder, contents=False)}
    try:
        manifest = read_manifest(folder)
    except ValueError:
        return about
    return about | {
        "update": manifest.update,
        "bytes": manifest.bytes,
        "metric": manifest.metric,
        "value": manifest.value,
    }


def _media(folder: Path) -> dict[str, int]:
    """Return the names of the media of a record, with the number of entries of each; captures come last."""
    counts = Counter(entry["name"] for entry in read_media(folder))
    return {name: counts[name] for name in sorted(counts, key=lambda name: name.startswith("capture/"))}


def _files(folder: Path) -> dict[str, int]:
    """Return the files and folders at the top level of a record with their sizes."""
    sizes: dict[str, int] = {}
    for file in list_files(folder):
        first, inner, _ = file.name.partition("/")
        sizes[first + inner] = sizes.get(first + inner, 0) + file.bytes
    shown = sorted(name for name in sizes if not name.startswith("."))
    return {name: sizes[name] for name in shown[:MAX_FILES]}
