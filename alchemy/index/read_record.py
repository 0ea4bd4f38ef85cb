"""Read everything that the index stores about a record."""

from __future__ import annotations

import datetime
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError
from alchemy.files import read_bytes
from alchemy.index.metric_entries import MetricEntries, Summary, read_metric_entries
from alchemy.index.schema import LONGEST_NAME, make_storable
from alchemy.index.value_format import LARGEST, parse_iso, to_finite
from alchemy.index.words import split_words
from alchemy.records.failure import Cause, find_cause, read_traceback
from alchemy.records.readme import parse, read_text
from alchemy.records.status import INFO, read_info, repair

FILES = (INFO, "README.md", "metrics.jsonl", "mail.json")  # files whose changes are noticed
EARLY = ("failed", "killed", "lost", "stopped")  # runs that ended before they were complete
LARGEST_CONFIG = 4 * 2**20
MAX_KEYS = 5_000  # per record: one hostile record must not fill the index
LONGEST_VALUE, LONGEST_TEXT = 500, 100_000  # characters of a config value, and of any other text
_NAME_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)_(\d\d)-(\d\d)-(\d\d)")
# the kind of a record without a `kind` field, by its runner
_KINDS = {"Tester": "test", "ALchemyTester": "test", "InferenceRunner": "predict"}


@dataclass
class Entry:
    """What the index stores about one record."""

    fields: dict[str, Any]
    config: dict[str, tuple[float | None, str]] = field(default_factory=dict)
    metrics: dict[str, Summary] = field(default_factory=dict)
    levels: list[tuple[str, int, int, bytes]] = field(default_factory=list)  # (metric, level, points, packed buckets)
    words: list[str] = field(default_factory=list)


class Known(NamedTuple):
    """What the index knows about a running record: the process that writes to it (pid, start, gen), and its metrics."""

    process: tuple[int | None, int | None, int]
    metrics: MetricEntries


def stamp_of(folder: str) -> str:
    """Return a text that changes whenever a file of the record changes: its times and sizes; empty if it is gone."""
    stamp = _stamp_files(folder, FILES)
    # a record from alchemy 0.x may have none of these files
    return stamp if stamp.strip(",") else _stamp_files(folder, ("cfg.toml", "run.log")).strip(",")


def _stamp_files(folder: str, names: Iterable[str]) -> str:
    parts = []
    for name in names:
        try:
            found = os.stat(f"{folder}/{name}")
            parts.append(f"{found.st_mtime_ns}.{found.st_size}")
        except OSError:
            parts.append("")
    return ",".join(parts)


def read_record(folder: Path, site: str = "", known: Known | None = None) -> Entry:
    """Read a record; a record that cannot be read becomes an entry with a `problem`.

    If the same process still writes to the record, only the new lines of its metrics are read.
    """
    stamp = stamp_of(str(folder))
    try:
        info = read_info(folder) if (folder / INFO).exists() else _old_info(folder)
        if info["status"] == "killed" and info.get("ended") is None and repair(folder):
            stamp, info = stamp_of(str(folder)), read_info(folder)
        problem = ""
    except AlchemyError as error:
        info, problem = _old_info(folder), str(error)
    config, found = _read_config(folder)
    text = read_text(folder)
    readme = parse(text)
    best = info.get("best") if isinstance(info.get("best"), dict) else None
    best = best or {}
    same = known is not None and known.process == (info.get("pid"), info.get("pid_started"), info.get("gen"))
    metrics, trouble = _read_metrics(
        folder, _whole(best.get("update")), known.metrics if known is not None and same else None
    )
    purpose = readme.purpose or _text(info.get("purpose"))
    seed = found.get("seed") if info.get("seed") is None else info["seed"]
    started, ended = parse_iso(info.get("started")), parse_iso(info.get("ended"))
    beat = parse_iso(info.get("heartbeat"))
    last = ended if ended is not None else beat
    status, reason = _text(info.get("status")), _text(info.get("reason"))
    trace = read_traceback(folder) if status == "failed" else ""
    cause = find_cause(status, reason, trace) if status in EARLY else Cause()
    fields = {
        "site": site,
        "path": str(folder),
        "stamp": stamp,
        "name": folder.name,
        "tag": _text(info.get("tag")) or readme.title or _text(found.get("tag")),
        "title": readme.title,
        "purpose": purpose,
        "tags": "".join(f",{tag}" for tag in readme.tags) + ("," if readme.tags else ""),
        "notes": "\n".join(readme.notes),
        "status": status,
        "reason": reason,
        "host": _text(info.get("host")),
        "pid": _whole(info.get("pid")),
        "pid_started": _whole(info.get("pid_started")),
        "heartbeat": beat,
        "started": started if started is not None else _time_in_name(folder.name),
        "ended": ended,
        "seconds": None if started is None or last is None else max(0.0, last - started),
        "kind": _text(info.get("kind")) or _KINDS.get(str(found.get("runner", "")).rpartition(".")[2], "train"),
        "parent": _text(info.get("parent"))[:LONGEST_NAME],
        "variant": _text(info.get("variant")),
        "seed": _text(seed),
        "seed_number": _number(seed),
        "gen": _whole(info.get("gen")) or 0,
        "cmd": " ".join(map(str, info["cmd"])) if isinstance(info.get("cmd"), list) else "",
        "cfg_hash": _text(info.get("cfg_hash")),
        "fold_hash": _text(info.get("fold_hash")) or _fold_key(config, info),
        "code_hash": _text(info.get("code_hash")),
        "git": _text(_part(info, "git", "commit")),
        "best_metric": _text(best.get("metric")),
        "best_value": _number(best.get("value")),
        "best_update": _whole(best.get("update")),
        "updates": metrics.updates,
        "metrics_bytes": metrics.size,
        "metrics_lines": metrics.lines,
        "mark_bytes": metrics.mark.size,
        "mark_lines": metrics.mark.lines,
        "cause": _text(cause.text),
        "signature": cause.signature,
        "problem": problem or trouble,
    }
    for name in ("title", "purpose", "tags", "notes", "cmd", "signature"):
        fields[name] = _text(fields[name])
    entry = Entry(fields, config, metrics.summaries, metrics.pack_levels())
    entry.words = split_words(_searchable(fields, config, f"{text}\n{trace}"))
    return entry


def unreadable(folder: Path, site: str, error: Exception) -> Entry:
    """Return the entry of a record that cannot be read for an unexpected reason."""
    problem = _text(f"{folder} cannot be read: {type(error).__name__}: {error}")
    fields = {"site": site, "path": str(folder), "name": folder.name, "stamp": stamp_of(str(folder))}
    return Entry({**fields, "status": "unknown", "kind": "train", "problem": problem})


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of a config. Tables in a list are named by their type, or by position.

    A type that occurs again gets its position as well, as in `alchemy config diff`: `pipes.Encode`, `pipes.Encode:2`.

    >>> dict(flatten({"a": {"b": 1}, "plugins": [{"type": "x.Seeding", "seed": 3}], "c": [1, 2]}))
    {'a.b': 1, 'plugins.Seeding.type': 'x.Seeding', 'plugins.Seeding.seed': 3, 'c': [1, 2]}
    """
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flatten(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            taken: set[str] = set()
            for place, item in enumerate(value):
                kind = str(item.get("type", place)).rpartition(".")[2]
                kind = kind if kind not in taken else f"{kind}:{place}"
                taken.add(kind)
                yield from flatten(item, f"{name}.{kind}.")
        else:
            yield name, value


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config of a record as plain values, or an empty table if it cannot be read."""
    try:
        return tomllib.loads(read_bytes(folder / "cfg.toml", LARGEST_CONFIG).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _read_config(folder: Path) -> tuple[dict[str, tuple[float | None, str]], dict[str, Any]]:
    found = read_config(folder)
    values: dict[str, tuple[float | None, str]] = {}
    try:
        for key, value in flatten(found):
            number = float(value) if isinstance(value, int | float) and abs(value) < 1e308 else None
            text = str(value).lower() if isinstance(value, bool) else str(value)
            values[make_storable(key[:LONGEST_NAME])] = (number, make_storable(text[:LONGEST_VALUE]))
            if len(values) >= MAX_KEYS:
                break
    except RecursionError:
        pass
    return values, found


def _read_metrics(folder: Path, best_update: int | None, known: MetricEntries | None) -> tuple[MetricEntries, str]:
    path = folder / "metrics.jsonl"
    try:
        return read_metric_entries(path, best_update, known), ""
    except FileNotFoundError:
        return MetricEntries(), ""
    except OSError as error:
        return MetricEntries(), f"{path} cannot be read: {error.strerror or error}"


def _old_info(folder: Path) -> dict[str, Any]:
    """Return the fields of a record from alchemy 0.x, which has no `record.json`."""
    return {"status": "unknown", "reason": ""}


def _fold_key(config: Mapping[str, tuple[float | None, str]], info: Mapping[str, Any]) -> str:
    """Return a key that is equal for runs that differ only in their seed, for records without a `fold_hash`."""
    from alchemy.files import hash_text

    if not config:
        return _text(info.get("cfg_hash"))
    rows = [f"{key}={text}" for key, (_, text) in config.items() if key.rpartition(".")[2] != "seed"]
    return hash_text("\n".join(rows))


def _searchable(fields: Mapping[str, Any], config: Mapping[str, tuple[float | None, str]], more: str) -> str:
    texts = [str(fields[name]) for name in ("tag", "purpose", "reason", "variant", "cmd")]
    texts += [text for number, text in config.values() if number is None]
    return "\n".join([*texts, more])


def _part(info: Mapping[str, Any], table: str, key: str) -> object:
    found = info.get(table)
    return found.get(key) if isinstance(found, dict) else None


def _text(value: object) -> str:
    if isinstance(value, str):
        return make_storable(value[:LONGEST_TEXT])
    return "" if value is None else make_storable(str(value)[:LONGEST_VALUE])


def _whole(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 2**62 else None


def _number(value: object) -> float | None:
    return to_finite(float(value)) if isinstance(value, int | float) and abs(value) < LARGEST else None


def _time_in_name(name: str) -> float | None:
    match = _NAME_TIME.match(name)
    try:
        return datetime.datetime(*map(int, match.groups())).timestamp() if match else None  # type: ignore[arg-type]
    except (ValueError, OverflowError, OSError):
        return None
