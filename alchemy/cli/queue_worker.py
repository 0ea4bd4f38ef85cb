"""The worker of the queue as a command: its devices, its signals, and what it prints."""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from alchemy.cli.queue_entries import describe, first_line
from alchemy.errors import AlchemyError, printable
from alchemy.files import shorten_path
from alchemy.index.value_format import format_duration, format_number
from alchemy.launch.signals import handle_signals
from alchemy.queue import Entry, Event, Queue, Slots, Worker
from alchemy.queue.devices import find_gpus
from alchemy.queue.entry import DONE, FAILED, HELD, LOCAL, WAITING
from alchemy.records.status import try_read_info


def choose_slots(count: int, devices: Sequence[int] | None) -> Slots:
    """Return the slots of this machine, or of the given devices; raise an error if one is missing."""
    if not devices:
        return Slots(count, find_gpus())
    gpus = find_gpus()
    for number in (number for number in devices if number >= len(gpus)):
        raise AlchemyError(f"no device {number}: found {len(gpus)} GPUs", hint="use --device -1 for the CPU")
    return Slots(count, [gpus[number] for number in dict.fromkeys(devices) if number >= 0])


def run_worker(queue: Queue, slots: Slots, *, until_empty: bool, on: str = LOCAL, group: str | None = None) -> int:
    """Run entries until a signal, `alchemy queue stop` or the end of the queue; return the exit code."""
    before = {entry.id for entry in queue.list() if entry.state == FAILED}
    report = functools.partial(print_event, queue)
    with Worker(queue, slots, group, report, on) as worker:
        devices = ", ".join(f"GPU {gpu}" for gpu in slots.gpus) or ("the CPU" if on == LOCAL else on)
        print(f"running the queue {shorten_path(queue.folder)} on {devices}, slots: {slots.count}", flush=True)
        signals = run_until(worker, until_empty=until_empty)
    if signals:
        if worker.list_remaining():
            start = "alchemy queue start" + (f" --on {on}" if on != LOCAL else "")
            print(f"stopped; `{start}` continues", file=sys.stderr)
        return 128 + signals[0]
    left = Counter(entry.state for entry in queue.list(group) if entry.on == on and entry.state in (WAITING, HELD))
    if until_empty and left:
        states = ", ".join(f"{count} {state}" for state, count in left.items())
        print(f"left in the queue: {states}; `alchemy queue ls` says why")
    failed = {entry.id for entry in queue.list(group) if entry.state == FAILED and entry.on == on} - before
    return 1 if failed and until_empty else 0


def run_until(worker: Worker, *, until_empty: bool, after_step: Callable[[], object] = lambda: None) -> list[int]:
    """Step a worker until a signal, `alchemy queue stop` or the end of its entries; return the signals."""
    signals: list[int] = []

    def stop(number: int) -> bool:
        signals.append(number)
        worker.stop()
        return True

    with handle_signals(stop):
        while not worker.has_ended(until_empty=until_empty):
            worker.step()
            after_step()
    return signals


def print_event(queue: Queue, event: Event) -> None:
    clock, entry = time.strftime("%H:%M:%S"), event.entry
    if entry is None:
        print(f"{clock} warning: {printable(event.text)}", file=sys.stderr, flush=True)
        return
    if event.kind == "started":
        text = f"started on {','.join(entry.attempts[-1].device)}: {describe(entry)}"
    else:
        text = describe_end(entry) if event.kind == "ended" else f"skipped: {event.text}"
        if entry.state == DONE:
            text += _describe_result(queue.list_records(entry.id))
        if event.kind == "ended" and entry.attempts[-1].outcome == "failed":
            text += f" (log: {shorten_path(queue.path(entry.id, 'log'))})"
    print(printable(f"{clock} {entry.id} {text}"), flush=True)


def _describe_result(records: Sequence[Path]) -> str:
    """Return the best value of a run, and its record."""
    if not records:
        return ""
    best = try_read_info(records[-1]).get("best")
    value = f"{best['metric']} {format_number(best['value'])}, " if best else ""
    return f": {value}{shorten_path(records[-1])}"


def describe_end(entry: Entry) -> str:
    """Return what has become of an entry; the cause of a failure, at once."""
    outcome = entry.attempts[-1].outcome
    if entry.state == DONE:
        return "done"
    text = outcome if entry.reason == f"was {outcome}" else f"{outcome}: {first_line(entry.reason)}"
    pause = entry.not_before - time.time()
    following = {
        "failed": "",
        "waiting": f"; starts again in {format_duration(pause)}" if pause > 0 else "; starts again",
        "held": "; held until it is released",
        "removed": "; removed",
    }
    return f"{text}{following[entry.state]}"
