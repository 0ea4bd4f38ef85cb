"""Read everything that the index stores about a record."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError
from alchemy.files import hash_text, open_to_read
from alchemy.index.metric_entries import MetricEntries, Summary, read_metric_entries
from alchemy.index.read_curves import parse_lines
from alchemy.index.schema import LONGEST_NAME, make_storable
from alchemy.index.value_format import LARGEST, parse_iso, to_finite
from alchemy.index.words import split_words
from alchemy.records.failure import Cause, find_cause, read_traceback
from alchemy.records.readme import parse, read_text
from alchemy.records.record_config import flatten_config, read_config
from alchemy.records.status import INFO, read_info, repair

FILES = (INFO, "cfg.toml", "README.md", "metrics.jsonl")  # files whose changes are noticed
EARLY = ("failed", "killed", "lost", "stopped")  # runs that ended before they were complete
LONGEST_END = 2**16  # bytes that are read to find the last row of the metrics
MAX_KEYS = 5_000  # per record: one hostile record must not fill the index
LONGEST_VALUE, LONGEST_TEXT = 500, 100_000  # characters of a config value, and of any other text
_NAME_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)_(\d\d)-(\d\d)-(\d\d)")
# the kind of a record without a `kind` field, by its runner
_KINDS = {"Tester": "test", "ALchemyTester": "test", "InferenceRunner": "predict"}

ConfigValue = tuple[float | None, str]  # a config value: as a number, if it is one, and as text


@dataclass
class Entry:
    """What the index stores about one record."""

    fields: dict[str, Any]
    config: dict[str, ConfigValue] = field(default_factory=dict)
    metrics: dict[str, Summary] = field(default_factory=dict)
    levels: list[tuple[str, int, int, bytes]] = field(default_factory=list)  # (metric, level, points, packed buckets)
    words: list[str] = field(default_factory=list)


class Known(NamedTuple):
    """What the index knows about a running record: the process that writes to it (pid, start, gen), and its metrics."""

    process: tuple[int | None, int | None, int]
    metrics: MetricEntries


def stamp_of(folder: str) -> str:
    """Return a text that changes whenever a file of the record changes: its times and sizes; empty if it is gone."""
    parts = []
    for name in FILES:
        try:
            found = os.stat(f"{folder}/{name}")
            parts.append(f"{found.st_mtime_ns}.{found.st_size}")
        except OSError:
            parts.append("")
    return ",".join(parts) if any(parts) else ""


def read_record(folder: Path, site: str = "", known: Known | None = None) -> Entry:
    """Read a record; a record that cannot be read becomes an entry with a `problem`.

    If the same process still writes to the record, only the new lines of its metrics are read.
    """
    stamp, info, problem = _read_info(folder)
    table = read_config(folder)
    config = _store_config(table)
    readme_text = read_text(folder)
    readme = parse(readme_text)
    best = _table(info, "best")
    same = known is not None and known.process == (info.get("pid"), info.get("pid_started"), info.get("gen"))
    metrics, trouble = _read_metrics(folder, _whole(best.get("update")), known.metrics if known and same else None)
    trace = read_traceback(folder) if info["status"] == "failed" else ""
    fields = {
        "site": site,
        "path": str(folder),
        "stamp": stamp,
        "name": folder.name,
        "tag": _text(info.get("tag")) or _text(readme.title) or _text(table.get("tag")),
        "title": _text(readme.title),
        "purpose": _text(readme.purpose) or _text(info.get("purpose")),
        "tags": _text("".join(f",{tag}" for tag in readme.tags) + ("," if readme.tags else "")),
        "notes": _text("\n".join(readme.notes)),
        "kind": _text(info.get("kind")) or _KINDS.get(str(table.get("runner", "")).rpartition(".")[2], "train"),
        "fold_hash": _text(info.get("fold_hash")) or _fold_key(config, info),
        **_info_fields(info),
        **_seed_fields(table.get("seed") if info.get("seed") is None else info["seed"]),
        **_time_fields(folder, info),
        **_cause_fields(info, trace),
        "best_metric": _text(best.get("metric")),
        "best_value": _number(best.get("value")),
        "best_update": _whole(best.get("update")),
        "updates": metrics.updates,
        "metrics_bytes": metrics.size,
        "metrics_lines": metrics.lines,
        "mark_bytes": metrics.mark.size,
        "mark_lines": metrics.mark.lines,
        "problem": problem or trouble,
    }
    words = split_words(_searchable(fields, config, f"{readme_text}\n{trace}"))
    return Entry(fields, config, metrics.summaries, metrics.pack_levels(), words)


def _read_info(folder: Path) -> tuple[str, dict[str, Any], str]:
    """Return the stamp of a record, its `record.json`, and why that cannot be read; repair the record of a killed run.

    The stamp is taken first, so that changes while the record is read are noticed the next time.
    """
    stamp, unknown = stamp_of(str(folder)), {"status": "unknown", "reason": ""}
    try:
        if not (folder / INFO).exists():  # a record from alchemy 0.x
            return stamp, unknown, ""
        info = read_info(folder)
        if info["status"] == "killed" and info.get("ended") is None and repair(folder):
            stamp, info = stamp_of(str(folder)), read_info(folder)
        return stamp, info, ""
    except AlchemyError as error:
        return stamp, unknown, str(error)


def _info_fields(info: Mapping[str, Any]) -> dict[str, Any]:
    command = info.get("cmd")
    return {
        "status": _text(info["status"]),
        "reason": _text(info["reason"]),
        "host": _text(info.get("host")),
        "pid": _whole(info.get("pid")),
        "pid_started": _whole(info.get("pid_started")),
        "parent": _text(info.get("parent"))[:LONGEST_NAME],
        "variant": _text(info.get("variant")),
        "sweep": _text(_table(info, "sweep").get("name")),
        "point": _whole(_table(info, "sweep").get("point")),
        "gen": _whole(info.get("gen")) or 0,
        "cmd": _text(" ".join(map(str, command))) if isinstance(command, list) else "",
        "cfg_hash": _text(info.get("cfg_hash")),
        "code_hash": _text(info.get("code_hash")),
        "git": _text(_table(info, "git").get("commit")),
    }


def _seed_fields(seed: object) -> dict[str, Any]:
    return {"seed": _text(seed), "seed_number": _number(seed)}


def _time_fields(folder: Path, info: Mapping[str, Any]) -> dict[str, float | None]:
    started, ended, beat = (parse_iso(info.get(key)) for key in ("started", "ended", "heartbeat"))
    last, active = ended if ended is not None else beat, _number(info.get("seconds"))
    if active is None and started is not None and last is not None:  # a record that does not know its pauses
        active = last - started
    # the metrics also know the time between the last heartbeat and a kill, of this and of earlier generations
    if info["status"] != "running" and (logged := _read_run_time(folder)) is not None:
        active = max(active or 0.0, logged)
    return {
        "heartbeat": beat,
        "started": started if started is not None else _time_in_name(folder.name),
        "ended": ended,
        "seconds": None if active is None else max(0.0, active),
    }


def _read_run_time(folder: Path) -> float | None:
    """Return the run time in the last row of the metrics, in seconds."""
    try:
        with open_to_read(folder / "metrics.jsonl") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_END))
            block = file.read(LONGEST_END)
    except OSError:
        return None
    rows = parse_lines(block[: block.rfind(b"\n") + 1])
    return next((_number(row["t"]) for row in reversed(rows) if row is not None and "t" in row), None)


def _cause_fields(info: Mapping[str, Any], trace: str) -> dict[str, str]:
    status = _text(info["status"])
    cause = find_cause(status, _text(info["reason"]), trace) if status in EARLY else Cause()
    return {"cause": _text(cause.text), "signature": cause.signature}


def unreadable(folder: Path, site: str, error: Exception) -> Entry:
    """Return the entry of a record that cannot be read for an unexpected reason."""
    problem = _text(f"{folder} cannot be read: {type(error).__name__}: {error}")
    fields = {"site": site, "path": str(folder), "name": folder.name, "stamp": stamp_of(str(folder))}
    return Entry({**fields, "status": "unknown", "kind": "train", "problem": problem})


def _store_config(table: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return the values of a config by dotted key, as far as they can be stored."""
    values: dict[str, ConfigValue] = {}
    table = {key: value for key, value in table.items() if key != "sweep"}  # what others may try, not this run
    try:
        for key, value in flatten_config(table):
            number = float(value) if isinstance(value, int | float) and abs(value) < 1e308 else None
            text = str(value).lower() if isinstance(value, bool) else str(value)
            values[make_storable(key[:LONGEST_NAME])] = (number, make_storable(text[:LONGEST_VALUE]))
            if len(values) >= MAX_KEYS:
                break
    except RecursionError:
        pass
    return values


def _read_metrics(folder: Path, best_update: int | None, known: MetricEntries | None) -> tuple[MetricEntries, str]:
    path = folder / "metrics.jsonl"
    try:
        return read_metric_entries(path, best_update, known), ""
    except FileNotFoundError:
        return MetricEntries(), ""
    except OSError as error:
        return MetricEntries(), f"{path} cannot be read: {error.strerror or error}"


def _fold_key(config: Mapping[str, ConfigValue], info: Mapping[str, Any]) -> str:
    """Return a key that is equal for runs that differ only in their seed, for records without a `fold_hash`."""
    if not config:
        return _text(info.get("cfg_hash"))
    rows = [f"{key}={text}" for key, (_, text) in config.items() if key.rpartition(".")[2] != "seed"]
    return hash_text("\n".join(rows))


def _searchable(fields: Mapping[str, Any], config: Mapping[str, ConfigValue], more: str) -> str:
    texts = [str(fields[name]) for name in ("tag", "purpose", "reason", "variant", "cmd")]
    texts += [text for number, text in config.values() if number is None]
    return "\n".join([*texts, more])


def _table(info: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = info.get(key)
    return found if isinstance(found, dict) else {}


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
