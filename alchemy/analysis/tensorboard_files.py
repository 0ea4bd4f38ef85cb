"""Write the metrics of a record as TensorBoard event files, and create records from event files."""

from __future__ import annotations

import datetime
import json
import math
import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.config.secrets import hide_words
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError, printable
from alchemy.files import hash_text, open_to_replace, read_table, write_atomic, write_json
from alchemy.index.row import Row
from alchemy.optional_packages import import_package
from alchemy.records.create_folder import make_folder, write_error
from alchemy.records.folder import FIELDS
from alchemy.records.metrics_file import read_metrics
from alchemy.records.record_config import flatten_config, read_config
from alchemy.records.record_json import FORMAT
from alchemy.records.status import INFO

SCALARS, HPARAMS = "scalars", "hparams"  # plugins of TensorBoard
LONGEST = 500  # characters of a text among the hyperparameters


def export_record(row: Row, folder: Path) -> int:
    """Write the metrics and the config of a record to an event file in `folder`; return the number of rows."""
    import_package("tensorboard", "alchemy export-tb")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    started = row.started or 0.0
    path = folder / f"events.out.tfevents.{int(started)}.{row.name}"  # exporting again replaces the file
    count = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_to_replace(path) as file:
            out = RecordWriter(file)
            out.write(Event(wall_time=started, file_version="brain.Event:2").SerializeToString())
            settings = hparams_pb(_hyperparameters(row.folder), trial_id=row.name, start_time_secs=started)
            out.write(Event(wall_time=started, summary=settings).SerializeToString())
            for update, seconds, values in _read_rows(row.folder):
                summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values])
                out.write(Event(wall_time=started + seconds, step=update, summary=summary).SerializeToString())
                count += 1
    except OSError as error:
        raise AlchemyError(f"cannot write {path}: {error.strerror or error}") from error
    return count


def _hyperparameters(record: Path) -> dict[str, bool | float | str]:
    found: dict[str, bool | float | str] = {}
    for key, value in flatten_config(read_config(record)):
        text = str(value)[:LONGEST].encode("utf-8", "replace").decode("utf-8")
        is_number = isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < 1e308)
        found[key] = value if is_number else text
    return found


def _read_rows(record: Path) -> Iterator[tuple[int, float, list[tuple[str, float]]]]:
    path = record / "metrics.jsonl"
    if not path.is_file():
        return
    for row in read_metrics(path):
        values, time = [], row.get("t")
        for name, value in row.get("values", {}).items():
            try:
                values.append((name.encode("utf-8", "replace").decode("utf-8"), float(value)))
            except (TypeError, ValueError, OverflowError):
                continue
        seconds = float(time) if isinstance(time, int | float) and abs(time) < 1e12 else 0.0
        if values and abs(row["update"]) < 2**62:
            yield row["update"], seconds, values


@dataclass
class EventRun:
    """A run in event files: values by step, with the time of each step, and the hyperparameters.

    `root` is the name of the folder that was imported, which usually contains several runs. `started` is the time of
    the earliest event, which is usually the creation of the file.
    """

    folder: Path
    root: str
    size: int = 0
    started: float = math.inf
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    _plugins: dict[str, str] = field(default_factory=dict)

    @property
    def tag(self) -> str:
        """The tag of the run among its hyperparameters, where `export_record` writes it, or the name of the root."""
        tag = self.settings.get("tag")
        return tag if isinstance(tag, str) and tag else self.root

    def add(self, event: Any) -> None:
        """Add the scalars and hyperparameters of an event; a later value of the same step wins."""
        self.started = min(self.started, event.wall_time or math.inf)
        for value in event.summary.value:
            plugin = self._plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            kind = value.WhichOneof("value")
            number = value.simple_value if kind == "simple_value" else None
            if kind == "tensor" and plugin == SCALARS:
                number = _read_tensor(value.tensor)
            if number is not None:
                self.steps.setdefault(event.step, {})[value.tag] = number
                self.times[event.step] = event.wall_time
            elif plugin == HPARAMS:
                self.settings |= _read_settings(value.metadata.plugin_data.content)


def _read_tensor(tensor: Any) -> float | None:
    from tensorboard.util.tensor_util import make_ndarray

    try:
        return float(make_ndarray(tensor).item())
    except (TypeError, ValueError):
        return None


def _read_settings(content: bytes) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    try:
        found = HParamsPluginData.FromString(content).session_start_info.hparams
    except _decode_error():
        return {}
    values = {name: getattr(value, value.WhichOneof("kind") or "string_value") for name, value in found.items()}
    return {name: value for name, value in values.items() if isinstance(value, bool | float | str)}


def _decode_error() -> type[Exception]:
    """Return the error of protobuf for damaged messages; the package comes with tensorboard, without types."""
    found: type[Exception] = import_package("google.protobuf.message", "alchemy import-tb").DecodeError
    return found


def find_event_runs(root: Path) -> list[tuple[Path, list[Path]]]:
    """Return the folders below `root` that contain event files, with these files; records are left out."""
    found = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        if INFO in names:
            folders.clear()
            continue
        paths = [Path(folder, name) for name in sorted(names) if "tfevents" in name and not name.startswith(".")]
        paths = [path for path in paths if stat.S_ISREG(path.lstat().st_mode)]
        found += [(Path(folder), paths)] if paths else []
    return found


def read_event_run(root: Path, folder: Path, files: Iterable[Path]) -> EventRun:
    """Read the event files of a run; the rest of a damaged file is skipped."""
    import_package("tensorboard", "alchemy import-tb")
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    run = EventRun(folder, root.resolve().name)
    for path in files:
        if (shown := _decode(os.path.abspath(path))) != os.path.abspath(path):
            raise AlchemyError(f"{shown}: TensorBoard cannot read names that are not UTF-8", hint="rename it")
        try:
            run.size += path.stat().st_size
            for data in RawEventFileLoader(str(path)).Load():
                run.add(Event.FromString(data))
        except _decode_error():
            continue
        except OSError as error:
            raise AlchemyError(f"cannot read {path}: {error.strerror or error}") from error
    return run


def find_imported(run: EventRun, folder: Path) -> Path | None:
    """Return the record in `folder` that was created from the same files, or None."""
    for path in folder.glob(f"*/{INFO}"):
        try:
            if read_table(path).get("source") == _source(run):
                return path.parent
        except (OSError, ValueError):
            continue
    return None


def _source(run: EventRun) -> dict[str, Any]:
    return {"path": os.path.abspath(run.folder), "bytes": run.size}


def _decode(path: str) -> str:
    """Return a path as text that can be printed, even if its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def create_record(run: EventRun, folder: Path) -> Path:
    """Create a record of kind `import`; `record.json` is written last, so that it is complete or not a record."""
    started = run.started if math.isfinite(run.started) else 0.0
    first, last = _moment(started), _moment(max(run.times.values()))
    record = make_folder(folder, first.strftime("%Y-%m-%d_%H-%M-%S.%f"))
    config = dumps({"tag": run.tag} | ({HPARAMS: run.settings} if run.settings else {}))
    purpose = f"imported from {_source(run)['path']}"
    info = FIELDS | {
        "format": FORMAT,
        "id": record.name,
        "kind": "import",
        "tag": run.tag,
        "purpose": purpose,
        "status": "finished",
        "reason": "",
        "pid": os.getpid(),
        "pid_started": None,
        "host": socket.gethostname(),
        "started": first.isoformat(timespec="milliseconds"),
        "ended": last.isoformat(timespec="milliseconds"),
        "heartbeat": last.isoformat(timespec="milliseconds"),
        "cmd": hide_words(sys.argv),
        "cfg_hash": hash_text(config),
        "source": _source(run),
    }
    try:
        with open(record / "metrics.jsonl", "w", encoding="utf-8") as file:
            for step in sorted(run.steps):
                row = {"update": step, "step": step, "epoch": 0, "t": round(run.times[step] - started, 3), "gen": 0}
                values = {name: _plain(value) for name, value in run.steps[step].items()}
                file.write(json.dumps(row | {"values": values}) + "\n")
        write_atomic(record / "cfg.toml", config)
        write_atomic(record / "README.md", f"# {printable(run.tag)}\n\n{printable(purpose)}\n")
        write_json(record / INFO, info)
    except OSError as error:
        raise write_error(record, error) from error
    return record


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _moment(seconds: float) -> datetime.datetime:
    """Return a time; a clock that was wrong must not prevent the import."""
    try:
        return datetime.datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return datetime.datetime.fromtimestamp(0).astimezone()
