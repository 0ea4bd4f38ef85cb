"""Run a sweep over the queue: ask for points, wait for their runs, read their values, and prune."""

from __future__ import annotations

import contextlib
import functools
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from alchemy.checkpoint.manifest import checkpoints
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.index.metric_entries import read_metric_entries
from alchemy.index.read_curves import CurveFollower
from alchemy.index.value_format import format_count, format_names
from alchemy.queue import Entry, NewEntry, Queue, Worker, stop_entry
from alchemy.queue import entry as states
from alchemy.queue.attempts import find_code_changes, find_training, release_entry
from alchemy.queue.worker import find_worker
from alchemy.records.create_folder import SWEEP_POINT
from alchemy.records.status import explain_stop, status_of, try_read_info
from alchemy.sweep import study as outcomes
from alchemy.sweep.optuna_storage import OptunaCopy
from alchemy.sweep.proposers import propose
from alchemy.sweep.pruning import should_prune
from alchemy.sweep.settings import Settings
from alchemy.sweep.space import Point
from alchemy.sweep.study import End, Study, Trial, find_folder, lock_study, name_group

OPEN = (states.WAITING, states.RUNNING)
POLL = 0.5  # seconds
MakeEntry = Callable[[Point, int], NewEntry]  # point, seed -> the run
Runs = dict[str, Entry]  # seed -> entry


class Controller:
    """Runs a sweep until every point has ended; each run is an entry of the queue, in the group of the sweep.

    All it knows is in the study and the queue, so that a killed sweep continues where it was.
    """

    def __init__(
        self,
        study: Study,
        settings: Settings,
        worker: Worker,  # of the group of the study
        make_entry: MakeEntry,
        report: Callable[[str, Trial], object] = lambda kind, trial: None,
    ) -> None:
        self._study, self._settings, self._worker, self._make_entry = study, settings, worker, make_entry
        self._queue, self._report = worker.queue, report
        self._copy = OptunaCopy(study)
        self._curves = _Curves(self._queue, settings)
        self.is_exhausted = self.is_stopped = False
        self._missing: MetricMissing | None = None
        self._explained: set[int] = set()  # entries of pruned points whose records say so

    def run(self) -> bool:
        """Run the sweep; return whether it is complete, which it is not after `stop`, or if runs are held."""
        self._adopt_entries()
        with self._worker as worker:
            try:
                while self.advance() and not worker.has_ended():
                    worker.step(POLL)
            except AlchemyError:  # a full disk, for example
                self.stop()
                while not worker.has_ended():
                    worker.step(POLL)
                raise
            self._prune(self._collect_runs())  # runs may have ended since the last time
            self.is_stopped = worker.stopping or worker.is_draining
        return not self.is_stopped and not self._list_open()

    def _adopt_entries(self) -> None:
        """Take over the entries of an earlier process.

        Those of points that the study does not have, because an earlier sweep of this name was deleted, are removed.
        Those that wait for another cluster, because the sweep was started there before, are moved.
        """
        points = {trial.number: trial.point for trial in self._study.trials}
        for entry in self._list_entries():
            is_own = entry.note.get("study") == self._study.plan.created
            point = points.get(entry.note.get("point", -1)) if is_own else None
            if point is None:
                stop_entry(self._queue, entry.id, then=states.REMOVED)
            elif entry.state == states.WAITING and entry.on != self._worker.on:
                made = self._make_entry(point, int(entry.note["seed"]))
                move = functools.partial(_move, on=made.on, options=made.options)
                self._queue.update(entry.id, move)

    def _list_entries(self) -> list[Entry]:
        return self._queue.list(self._study.group)

    def stop(self) -> None:
        """Start nothing new and stop what is running; a signal handler may call it."""
        self._worker.stop()

    def advance(self) -> bool:
        """Settle points whose runs have ended, prune, and ask for new points; return whether anything is left."""
        runs = self._collect_runs()
        for trial in self._list_open():
            self._settle(trial, runs.get(trial.number, {}))
        self._prune(runs)
        if not self._worker.stopping and not self._worker.is_draining:
            self._fill(runs)
        return any(entry.state in OPEN for entry in self._list_entries())

    def retry(self) -> None:
        """Run the failed runs of failed points again.

        A run that has finished without a valid value starts from the beginning. So does one that cannot be resumed.
        """
        runs = self._collect_runs()
        for trial in [trial for trial in self._study.trials if trial.state == outcomes.FAILED]:
            valid = set(trial.values)
            self._study.settle(trial, outcomes.RUNNING)
            for seed, entry in runs.get(trial.number, {}).items():
                if entry.state == states.FAILED:
                    record = find_training(self._queue.list_records(entry.id))
                    can_resume = record and checkpoints(record / "state") and not find_code_changes(entry, record)
                    release_entry(self._queue, entry.id, restart=not can_resume)
                elif entry.state == states.DONE and seed not in valid:
                    stop_entry(self._queue, entry.id, then=states.REMOVED)
        self._copy = OptunaCopy(self._study)

    def _list_open(self) -> list[Trial]:
        return [trial for trial in self._study.trials if trial.state == outcomes.RUNNING]

    def _collect_runs(self) -> dict[int, Runs]:
        found: dict[int, Runs] = {}
        for entry in [entry for entry in self._list_entries() if entry.then != states.REMOVED]:
            found.setdefault(entry.note["point"], {})[entry.note["seed"]] = entry
        return found

    def _fill(self, runs: dict[int, Runs]) -> None:
        """Add the runs of points that have none yet, and of as many new points as there are free slots."""
        for trial in self._list_open():
            self._add_runs(trial, runs.get(trial.number, {}))
        slots = self._worker.slots
        room = find_worker(self._queue, self._worker.on).get("slots", slots.count) * max(len(slots.gpus), 1)
        busy = sum(entry.state in OPEN for entry in self._list_entries())
        while busy < room and (new := self._ask()) is not None:
            self._add_runs(new, {})
            busy += len(self._settings.seeds)

    def _ask(self) -> Trial | None:
        study, settings = self._study, self._settings
        if self.is_exhausted or (settings.trials is not None and len(study.trials) >= settings.trials):
            return None
        most = settings.trials or len(study.trials) + 1
        point = propose(settings.method, settings.space, settings.seed, study.history, most)
        self.is_exhausted = point is None
        return None if point is None else study.ask(point)

    def _add_runs(self, trial: Trial, known: Runs) -> None:
        """Add the runs of a point that are not in the queue, and have not ended before."""
        note = {"study": self._study.plan.created, "point": trial.number}
        seeds = [seed for seed in self._settings.seeds if str(seed) not in {*known, *trial.ends}]
        env = {SWEEP_POINT: f"{self._study.name}/{trial.number}"}
        specs = []
        for seed in seeds:
            spec = self._make_entry(trial.point, seed)
            own = {**spec.note, **note, "seed": str(seed)}
            specs.append(replace(spec, group=self._study.group, note=own, env={**spec.env, **env}))
        if specs:
            self._queue.add(specs)

    def _settle(self, trial: Trial, runs: Runs) -> None:
        """Write the ends of the runs of a point, and its result if all of them have ended."""
        ends, seeds = dict(trial.ends), [str(seed) for seed in self._settings.seeds]
        for seed, entry in runs.items():
            if entry.state in (states.DONE, states.FAILED) and seed not in ends:
                ends[seed] = self._read_end(entry)
                if len(seeds) > 1:  # the entry may be removed from the queue before the other seeds have ended
                    self._study.end_run(trial, seed, ends[seed])
        if len(ends) < len(seeds):
            return
        values = {seed: value for seed in seeds if (value := ends[seed].value) is not None}
        records = [ends[seed].record for seed in seeds if ends[seed].record]
        reasons = [ends[seed].reason for seed in seeds if ends[seed].reason]
        if reasons:
            self._study.settle(trial, outcomes.FAILED, values=values, records=records, reason=reasons[0])
        else:
            value = fmean(values.values())
            self._study.settle(trial, outcomes.DONE, value=value, values=values, records=records)
        self._finish(trial)
        if self._missing and not any(trial.values for trial in self._study.trials):
            raise self._missing  # no other point will have it

    def _read_end(self, entry: Entry) -> End:
        """Return the value of a run that has ended, or why it has none."""
        paths = self._queue.list_records(entry.id)
        record = str(paths[-1]) if paths else ""
        if entry.state == states.FAILED:
            return End(record, reason=f"{entry.reason or 'unknown cause'} (alchemy queue logs {entry.id})")
        if paths and is_other_config(paths[-1], entry.note.get("cfg_hash")):
            return End(record, reason=f"{paths[-1].name} was run with another config; --retry-failed runs it again")
        try:
            value = read_value(paths[-1] if paths else None, self._settings.metric)
        except MetricMissing as error:
            self._missing = error
            return End(record, reason=str(error))
        if not math.isfinite(value):
            return End(record, reason=f"{self._settings.metric} is not finite")
        return End(record, value)

    def _finish(self, trial: Trial) -> None:
        self._copy.add(trial)
        self._report(trial.state, trial)

    def _prune(self, runs: dict[int, Runs]) -> None:
        for trial in self._study.trials if self._settings.prune else ():
            own = runs.get(trial.number, {})
            if trial.state == outcomes.PRUNED:  # also after the sweep was killed between the two steps
                for entry in own.values():
                    if entry.state in OPEN and not entry.then:
                        stop_entry(self._queue, entry.id, then=states.DONE)
                    elif entry.state == states.DONE and entry.id not in self._explained:
                        self._explained.add(entry.id)
                        for record in self._queue.list_records(entry.id)[-1:]:
                            explain_stop(record, f"pruned {trial.reason}")
            elif trial.state == outcomes.RUNNING and (evaluations := self._curves.find_pruned(own, runs)):
                reason = f"after {format_count(evaluations, 'evaluation')} ({self._settings.prune})"
                records = [str(path) for entry in own.values() for path in self._queue.list_records(entry.id)[-1:]]
                self._study.settle(trial, outcomes.PRUNED, records=records, reason=reason)
                self._finish(trial)
                for entry in own.values():
                    stop_entry(self._queue, entry.id, then=states.DONE)


def remove_sweep(queue: Queue, name: str) -> None:
    """Remove the files of a sweep, and its entries from the queue; those that are running are stopped."""
    folder = find_folder(name)
    with lock_study(folder, "stop it first"):
        for entry in queue.list(name_group(name)):
            stop_entry(queue, entry.id, then=states.REMOVED)
        shutil.rmtree(folder)


def _move(entry: Entry, *, on: str, options: dict[str, Any]) -> Entry:
    return replace(entry, on=on, options=options) if entry.state == states.WAITING else entry


class MetricMissing(AlchemyError):
    """Raised if runs finish without the metric of the sweep."""


class _Curves:
    """The curves of the metric of all runs of a sweep, such that lower values are better."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue, self._settings = queue, settings
        self._followers: dict[Path, CurveFollower] = {}
        self._judged: dict[int, int] = {}  # entry -> evaluations, so that each one is judged once

    def find_pruned(self, own: Runs, runs: dict[int, Runs]) -> int:
        """Return the number of evaluations after which a run of a point turns out to be hopeless; otherwise 0."""
        for entry in own.values():
            records = self._queue.list_records(entry.id) if entry.state == states.RUNNING else []
            is_ending = records and status_of(records[-1]) == "finished"
            curve = self._read(entry) if records and not is_ending else []
            since = self._judged.get(entry.id, 0)
            if len(curve) <= since:
                continue
            self._judged[entry.id] = len(curve)
            others = [self._read(other) for group in runs.values() if group is not own for other in group.values()]
            if should_prune(self._settings.prune, curve, others, after=self._settings.prune_after, since=since):
                return len(curve)
        return 0

    def _read(self, entry: Entry) -> Sequence[float]:
        for record in reversed(self._queue.list_records(entry.id)):
            follower = self._followers.setdefault(record, CurveFollower(record / "metrics.jsonl"))
            with contextlib.suppress(OSError):
                curve = follower.read().metrics.get(self._settings.metric)
                sign = 1 if self._settings.is_minimized else -1
                return [sign * value for value in curve.values] if curve is not None else []
        return []


def is_other_config(record: Path, expected: str | None) -> bool:
    """Return whether a record says that it was run with another config: it was edited while the run was waiting."""
    found = try_read_info(record).get("cfg_hash")
    return bool(expected and found) and found != expected


def read_value(record: Path | None, metric: str) -> float:
    """Return the value of a metric at the best checkpoint, as `alchemy ls` shows it; NaN if it is not finite."""
    if record is None:
        hint = "a sweep needs the plugin FileLogger, and another --name to start again"
        raise MetricMissing("a run has finished without a record", hint=hint)
    best = try_read_info(record).get("best")
    update = best.get("update") if isinstance(best, dict) else None
    try:
        found = read_metric_entries(record / "metrics.jsonl", update if isinstance(update, int) else None).summaries
    except OSError:
        found = {}
    if metric not in found:
        hint = did_you_mean(metric, found) or f"it has {format_names(sorted(found), 8) or 'no metrics'}"
        raise MetricMissing(f"{record.name} has not logged {metric}", hint=hint)
    value = found[metric].at_best
    return math.nan if value is None else value
