"""Several runs of one command: a queue of their own, which ends with the command."""

from __future__ import annotations

import argparse
import contextlib
import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from alchemy.cli.queue_entries import list_runs, read_log
from alchemy.cli.queue_worker import choose_slots, run_until
from alchemy.cli.summary import label_runs
from alchemy.errors import printable
from alchemy.files import shorten_path, write_atomic
from alchemy.queue import Entry, Event, Needs, NewEntry, Queue, Worker, choose_environment
from alchemy.queue.attempts import HEADER
from alchemy.queue.entry import DONE, FAILED
from alchemy.records.status import try_read_info

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult

RESULT_FILE = "ALCHEMY_RESULT_FILE"  # names the file to which a run writes its results, instead of printing a table


class Outcome(NamedTuple):
    """The results of runs, the results of their tests by index, and the exit code of whatever else has failed."""

    results: list[RunResult]
    tests: dict[int, RunResult]
    exit_code: int


def run_several(documents: Sequence[Document], args: argparse.Namespace) -> Outcome:
    """Run each config in a process of its own, at most `--task-per-device` at a time on a device; print their output.

    On the first signal, the runs save their state and no other is started. They end with this process, even if it is
    killed.
    """
    slots, needs = choose_slots(args.task_per_device, args.device), Needs(devices=0 if args.device == [-1] else 1)
    with tempfile.TemporaryDirectory(prefix="alchemy-", ignore_cleanup_errors=True) as name:
        queue = Queue(Path(name))
        files = [queue.folder / f"result-{place}" for place, _ in enumerate(documents)]
        env = choose_environment()
        specs = [
            NewEntry(argv=argv, env={**env, RESULT_FILE: str(file)}, needs=needs)
            for argv, file in zip(list_runs(documents, args, placed=True), files, strict=True)
        ]
        entries = queue.add(specs)
        output = _Output(queue, {entry.id: label for entry, label in zip(entries, label_runs(documents), strict=True)})
        with Worker(queue, slots, on_event=output.report, detached=False) as worker:
            signals = run_until(worker, until_empty=True, after_step=output.print_new)
        output.print_new(last=True)
        entries = [queue.get(entry.id) for entry in entries]
        rows = zip(files, documents, entries, strict=True)
        found = [_read_results(*row, queue.list_records(row[2].id), signals) for row in rows]
    failed = any(entry.state == FAILED for entry in entries)
    tests = {place: rows[1] for place, rows in enumerate(found) if len(rows) > 1}
    return Outcome([rows[0] for rows in found], tests, int(failed))


class _Output:
    """Prints what the runs print, each line with the name of its run."""

    def __init__(self, queue: Queue, labels: Mapping[int, str]) -> None:
        self._queue, self._labels, self._is_broken = queue, labels, False
        self._places = dict.fromkeys(labels, 0)

    def print_new(self, *, last: bool = False) -> None:
        """Print new lines; if that fails, the runs continue, as does a single one."""
        try:
            if not self._is_broken:
                self._print(last)
        except OSError:
            self._is_broken = True

    def _print(self, last: bool) -> None:
        for id, label in self._labels.items():
            with contextlib.suppress(FileNotFoundError):  # it has not been started
                text, self._places[id] = read_log(self._queue.path(id, "log"), self._places[id], last=last)
                lines = [line for line in text.splitlines() if not line.startswith(HEADER)]
                sys.stdout.writelines(f"[{label}] {line}\n" for line in lines)
        sys.stdout.flush()

    def report(self, event: Event) -> None:
        """Print what a run cannot say itself: that it was killed, or cannot be started."""
        if event.kind == "problem":
            print(printable(f"warning: {event.text}"), file=sys.stderr, flush=True)
        elif event.kind == "ended" and event.entry is not None and event.entry.state != DONE:
            code = event.entry.attempts[-1].exit_code
            if code is None or code < 0:
                self.print_new(last=True)
                attempt, reason = event.entry.attempts[-1], event.entry.reason
                text = attempt.outcome if attempt.outcome == "stopped" else f"{attempt.outcome}: {reason}"
                with contextlib.suppress(OSError):
                    print(printable(f"[{self._labels[event.entry.id]}] {text}"), flush=True)


def write_results(path: str, outcome: Outcome) -> int:
    """Write the results of a run and of its test; return the exit code."""
    from alchemy.cli.summary import exit_code

    rows = [*outcome.results, *outcome.tests.values()]
    if rows:  # none with --raise
        with contextlib.suppress(OSError):  # a full disk: the record says how it ended
            write_atomic(path, pickle.dumps([result.portable() for result in rows]))
    return max([outcome.exit_code, *map(exit_code, rows)]) if rows else 1


def _read_results(
    path: Path, document: Document, entry: Entry, records: Sequence[Path], signals: Sequence[int]
) -> list[RunResult]:
    """Return the results of a run and, if there is one, of its test; its process has died if it has written none."""
    from alchemy.launch.worker_pool import LostJob
    from alchemy.result import FailedRun, RunResult

    try:
        found: list[RunResult] = pickle.loads(path.read_bytes())
    except FileNotFoundError:
        code = entry.attempts[-1].exit_code if entry.attempts else None
        info = try_read_info(records[-1]) if records else {}
        is_finished = info.get("status") == "finished"
        result = RunResult() if is_finished else FailedRun.lost(document, LostJob(code, *signals[:1]))
        if info.get("status") == "failed":  # with --raise, its output says why
            result.reason = str(info["reason"])
        result.cfg, result.record_dir = document, Path(shorten_path(records[-1])) if records else None
        return [result]
    for result in found:
        if result.signal and signals:
            result.signal = signals[0]  # the runs got SIGTERM, whatever the user has sent
    return found
