"""Runs as entries of the queue, and entries as lines of a listing."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import build_parser
from alchemy.config.secrets import hide_words
from alchemy.errors import AlchemyError, printable
from alchemy.files import open_to_read
from alchemy.index.value_format import format_duration
from alchemy.queue import Entry, NewEntry, Queue
from alchemy.queue.attempts import LONGEST_PAUSE, settle
from alchemy.queue.entry import LOCAL, RUNNING, WAITING, split_command
from alchemy.queue.executor import find_executor
from alchemy.queue.worker import find_obstacle, find_worker

if TYPE_CHECKING:
    from pathlib import Path

    from alchemy.config.tree import Document

# options of `alchemy run` that select several runs, which become one entry each
SELECTING = ("help", "cfgs", "seeds", "all", "queue", "device", "on", "slurm", "ray")
# options that an entry cannot have
REFUSED = ("background", "force_mp", "pdb", "print_command", "resume", "task_per_device")
PLACING = ("device", "force_mp", "task_per_device")
COLUMNS = ("id", "state", "priority", "on", "run", "device", "time", "cause")
DEFAULTS = {"priority": "0", "on": LOCAL}
LONGEST_RUN = 120  # characters of a command in a listing
NO_WORKER = "no worker is running; `alchemy queue start` starts one"


def list_runs(
    documents: Sequence[Document], args: argparse.Namespace, *, placed: bool = False
) -> list[tuple[str, ...]]:
    """Return the command of each run that `alchemy run` would start, one per config, variant and seed.

    `placed` leaves out the options that say where they run, because the caller has read them.
    """
    options = format_options(args, PLACING if placed else ())
    seeds = [[f"--seeds={seed}"] for seed in args.seeds] or [[]]
    program = (sys.executable, "-m", "alchemy", "run")
    return [
        (*program, document.label, *seeds[place % len(seeds)], *options) for place, document in enumerate(documents)
    ]


def format_options(args: argparse.Namespace, left_out: Sequence[str] = ()) -> list[str]:
    """Return the options of `alchemy run` as they were given; raise an error for those that the queue decides."""
    if args.device and args.device != [-1] and "device" not in left_out:
        hint = "`alchemy queue start --device N` restricts the worker to some GPUs; --device -1 runs on the CPU"
        raise AlchemyError("a run in the queue has no --device: the worker chooses a free one", hint=hint)
    words = ["--device=-1"] if args.device == [-1] else []
    for action in build_parser("run").actions():
        value = action.default if action.dest in (*SELECTING, *left_out) else vars(args)[action.dest]
        if value == action.default:
            continue
        if action.dest in REFUSED:
            name = action.option_strings[0]
            raise AlchemyError(f"{name} has no effect on runs in the queue or on a cluster", hint=f"leave out {name}")
        if isinstance(value, bool):  # of --file and --no-file, the last one means False
            words.append(action.option_strings[0 if value else -1])
        else:
            words += [f"{action.option_strings[0]}={one}" for one in (value if isinstance(value, list) else [value])]
    return words


def add_entries(queue: Queue, specs: Sequence[NewEntry]) -> int:
    """Add checked entries to the queue and print their numbers."""
    for entry in queue.add(specs):
        print(printable(f"added {entry.id}: {describe(entry)}"))
    print_missing_workers(queue, specs)
    return 0


def print_missing_workers(queue: Queue, entries: Iterable[NewEntry]) -> None:
    """Say how to start the workers that entries wait for. A Slurm job that is running needs none."""
    entries = [one for one in entries if one.state == WAITING or (one.state == RUNNING and one.on != "slurm")]
    waiting = {entry.on for entry in entries}
    for on in sorted(waiting):
        status, start = find_worker(queue, on), "alchemy queue start" + (f" --on {on}" if on != LOCAL else "")
        if not status:
            print(NO_WORKER if on == LOCAL else f"no worker submits runs; `{start}` starts one")
        elif (group := status.get("group")) and any(entry.on == on and entry.group != group for entry in entries):
            print(f"the worker, process {status['pid']}, runs only {group}; `{start}` starts another when it ends")


def settle_ended(queue: Queue) -> None:
    """Update entries whose runs have ended if there is no worker that would do it; a Slurm job needs none."""
    for entry in queue.list():
        if entry.state == RUNNING and (entry.on == "slurm" or not find_worker(queue, entry.on)):
            with contextlib.suppress(AlchemyError, OSError):  # the folder may not be writable
                settle(queue, entry)


def describe(entry: NewEntry) -> str:
    """Return the command of an entry on one line, without secrets: for a run, what comes after `alchemy run`."""
    words = split_command(entry.argv)[1]
    command = shlex.join(hide_words(words[1:] if words[:1] == ("run",) else entry.argv))
    return " ".join(command.split())


def to_row(queue: Queue, entry: Entry, entries: Mapping[int, Entry]) -> dict[str, Any]:
    """Return an entry for a listing: the stored fields without the environment, and what follows from them."""
    row = {**vars(entry), "needs": vars(entry.needs), "attempts": [vars(attempt) for attempt in entry.attempts]}
    del row["env"]  # may contain secrets
    cause, records = entry.reason, []
    try:
        records = [str(record) for record in queue.list_records(entry.id)]
        if entry.state == WAITING:
            cause = find_obstacle(entry, entries) or cause
        elif entry.state == RUNNING:
            cause = find_executor(entry.on).describe(queue, entry) or cause
    except OSError as error:
        cause = f"its files cannot be used: {error}"
    more = {"records": records, "seconds": _seconds_of(entry)}
    return {**row, **more, "argv": hide_words(entry.argv), "run": describe(entry), "cause": cause}


def build_table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and cells of a listing, without columns in which all rows have the default.

    Options that all runs of a config have in common are left out.
    """
    words = [_words_of(row) for row in rows]
    common: dict[str, set[str]] = {}
    for own in words:
        common.setdefault(own[0], {*own}).intersection_update(own)
    counts = Counter(own[0] for own in words)
    left_out = {config: found if counts[config] > 1 else set() for config, found in common.items()}
    runs = [[word for word in own if word not in left_out[own[0]] or not word.startswith("--")] for own in words]
    cells = [_to_cells(row, shlex.join(run) if run[0] else row["run"]) for row, run in zip(rows, runs, strict=True)]
    used = [any(row[place] not in ("", DEFAULTS.get(name)) for row in cells) for place, name in enumerate(COLUMNS)]
    return list(compress(COLUMNS, used)), [list(compress(row, used)) for row in cells]


def _words_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the config and the options of a run; a single empty word for any other command."""
    words = split_command(tuple(row["argv"]))[1]
    return words[1:] if words[:1] == ("run",) and len(words) > 1 else ("",)


def _to_cells(row: Mapping[str, Any], run: str) -> list[str]:
    pause = min(row["not_before"] - time.time(), LONGEST_PAUSE)
    moment = f"retry in {format_duration(pause)}" if pause > 0 else format_duration(row["seconds"])
    device = ",".join(row["attempts"][-1]["device"]) if row["state"] == RUNNING else ""
    first = [str(row["id"]), row["state"], str(row["priority"]), row["on"], _shorten(" ".join(run.split()))]
    return [*first, device, moment, first_line(row["cause"])]


def read_log(path: Path, place: int, *, last: bool = False) -> tuple[str, int]:
    """Return the new lines of a log after a place, and where they end; with `last`, also one that is incomplete."""
    with open_to_read(path) as file:
        file.seek(place)
        data = file.read()
    data = data if last else data[: data.rfind(b"\n") + 1]
    return data.decode("utf-8", "replace"), place + len(data)


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_RUN else f"{text[: LONGEST_RUN - 1]}…"


def first_line(text: str) -> str:
    return text.partition("\n")[0]


def _seconds_of(entry: Entry) -> float | None:
    """Return how long an entry has been running, over all attempts; None if it was never started."""
    parse = datetime.datetime.fromisoformat
    end = datetime.datetime.now().astimezone()
    try:
        spans = [(parse(one.ended) if one.ended else end) - parse(one.started) for one in entry.attempts]
    except (TypeError, ValueError):  # a damaged time, or one without a time zone
        return None
    return max(sum(span.total_seconds() for span in spans), 0.0) if spans else None
