"""The worker of the queue as a command: its devices, its signals, and what it prints."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from alchemy.cli.queue_entries import describe, first_line
from alchemy.errors import AlchemyError, printable
from alchemy.files import shorten_path
from alchemy.index.value_format import format_duration
from alchemy.launch.signals import handle_signals
from alchemy.queue import Entry, Event, Queue, Slots, Worker
from alchemy.queue.attempts import STOPPED
from alchemy.queue.devices import find_gpus
from alchemy.queue.entry import DONE, FAILED, LOCAL


def choose_slots(count: int, devices: Sequence[int] | None) -> Slots:
    """Return the slots of this machine, or of the given devices; raise an error if one is missing."""
    if count < 1:
        raise AlchemyError("--slots must be at least 1")
    if not devices:
        return Slots(count, find_gpus())
    gpus = find_gpus()
    for number in (number for number in devices if number >= len(gpus)):
        raise AlchemyError(f"no device {number}: found {len(gpus)} GPUs", hint="use --device -1 for the CPU")
    return Slots(count, [gpus[number] for number in dict.fromkeys(devices) if number >= 0])


def run_worker(queue: Queue, slots: Slots, *, until_empty: bool, on: str = LOCAL, group: str | None = None) -> int:
    """Run entries until a signal, `alchemy queue stop` or the end of the queue; return the exit code."""
    signals: list[int] = []
    failed: set[int] = set()

    def report(event: Event) -> None:
        if event.kind == "ended" and event.entry is not None and event.entry.state == FAILED:
            failed.add(event.entry.id)
        print_event(queue, event)

    with Worker(queue, slots, group, report, on) as worker:

        def ask(number: int) -> bool:
            signals.append(number)
            worker.stop()
            return True

        with handle_signals(ask):
            devices = ", ".join(f"GPU {gpu}" for gpu in slots.gpus) or ("the CPU" if on == LOCAL else on)
            print(f"running the queue {shorten_path(queue.folder)} on {devices}, slots: {slots.count}", flush=True)
            while not worker.has_ended(until_empty=until_empty):
                worker.step()
    if signals:
        return 128 + signals[0]
    return 1 if failed and until_empty else 0


def print_event(queue: Queue, event: Event) -> None:
    clock, entry = time.strftime("%H:%M:%S"), event.entry
    if entry is None:
        print(f"{clock} warning: {printable(event.text)}", file=sys.stderr, flush=True)
        return
    if event.kind == "started":
        text = f"started on {','.join(entry.attempts[-1].device)}: {describe(entry)}"
    else:
        text = _describe_end(queue, entry) if event.kind == "ended" else f"is passed over: it {event.text}"
    print(printable(f"{clock} {entry.id} {text}"), flush=True)


def _describe_end(queue: Queue, entry: Entry) -> str:
    """Return what has become of an entry; the cause of a failure, at once."""
    outcome = entry.attempts[-1].outcome
    if entry.state == DONE:
        return "done"
    text = f"{outcome}: {first_line(entry.reason)}" if outcome != STOPPED else outcome
    pause = entry.not_before - time.time()
    following = {
        "failed": "",
        "waiting": f"; starts again in {format_duration(pause)}" if pause > 0 else "; starts again",
        "held": "; held until it is released",
        "removed": "; removed",
    }
    log = f" (log: {shorten_path(queue.path(entry.id, 'log'))})" if outcome == "failed" else ""
    return f"{text}{following[entry.state]}{log}"
