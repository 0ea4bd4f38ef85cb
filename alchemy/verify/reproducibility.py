"""Check that short runs of a config are bit-identical when resumed, repeated, or run with different worker counts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.launch.worker_pool import LostJob
from alchemy.records.jsonl_writer import read_lines
from alchemy.verify.compare_records import Comparison, compare, is_stream, last_update
from alchemy.verify.trial_runs import MAX_UPDATES, Tell, Trial, check_finished, find_only_record, run_jobs

WORKERS = 2
SWITCH = "use_deterministic_algorithms = true in the Seeding plugin makes torch reject nondeterministic operations"
ON_CPU = f"a CPU run does not test cuDNN algorithm choice or the order of GPU additions (atomics); on a GPU, {SWITCH}"
STREAM = "the data is a stream: its order may depend on num_workers, so only the configured number was tested"


@dataclass
class _TrialRun:
    """The comparison of a trial run with the uninterrupted run."""

    what: str
    found: Comparison
    facts: dict[str, int | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what}:\n{self.found}"

    def plain(self) -> dict[str, Any]:
        return {"what": self.what} | self.facts | self.found.plain()


@dataclass
class TrialReport:
    """The results of all comparisons, and notes on what was not tested."""

    head: str
    updates: int
    left_out: list[str]
    runs: list[_TrialRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(run.found.equal for run in self.runs)

    def plain(self) -> dict[str, Any]:
        head = {"equal": self.equal, "updates": self.updates, "left_out": self.left_out, "notes": self.notes}
        return head | {"runs": [run.plain() for run in self.runs]}

    def __str__(self) -> str:
        left_out = f", without {', '.join(self.left_out)}" if self.left_out else ""
        return "\n".join([f"{self.updates} updates {self.head}{left_out}", *map(str, self.runs), *self.notes])


# -- resume
def verify_resume(
    doc: Document,
    *,
    updates: int | None = None,
    kill_at: int | None = None,
    workers: Sequence[int | None] = (None,),
    device: int = -1,
    user_dir: str = "src",
    tell: Tell = lambda text: None,
) -> TrialReport:
    """Train without interruption, then kill (-9) and resume a run for each value in `workers`, and compare."""
    trial = Trial.of(doc, updates=updates, device=device, user_dir=user_dir)
    _validate_options(updates, kill_at, workers)
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name:
        whole = Path(name) / "whole"
        tell(f"training without interruption{f', {updates} updates' if updates else ''}")
        check_finished(run_jobs([trial.train(whole, workers=workers[0])]))
        report = TrialReport("without interruption", last_update(find_only_record(whole)), trial.left_out)
        moment = kill_at or max(2, (report.updates + 1) // 2)
        if moment >= report.updates:
            hint = f"use --kill-at below {report.updates}" if kill_at else "train longer, or set --updates"
            text = f"the run has only {report.updates} updates: it cannot be killed at update {moment} and resumed"
            raise AlchemyError(text, hint=hint)
        for number in workers:
            killed = Path(name) / f"killed-{number}"
            _kill(trial, killed, number, moment, tell)
            tell("resuming it")
            check_finished(run_jobs([trial.resume(killed)]))
            report.runs.append(_compare_resumed(find_only_record(whole), find_only_record(killed), number, moment))
    return report


def _validate_options(updates: int | None, kill_at: int | None, workers: Sequence[int | None]) -> None:
    """Raise an error if the options are invalid, before training starts."""
    for number in workers:
        if number is not None and number < 0:
            raise AlchemyError(
                f"--workers must be at least 0, got {number}", hint="0 loads data in the training process"
            )
    if kill_at is not None and kill_at < 1:
        raise AlchemyError(f"--kill-at must be at least 1, got {kill_at}")
    if kill_at is not None and kill_at >= (updates or MAX_UPDATES):
        trained = f"--updates is {updates}" if updates else f"without --updates there are at most {MAX_UPDATES} updates"
        text = f"--kill-at is {kill_at} and {trained}: the run must be killed before its last update"
        raise AlchemyError(text, hint=f"use --kill-at below {updates or MAX_UPDATES}, or --updates above {kill_at}")


def _kill(trial: Trial, folder: Path, workers: int | None, moment: int, tell: Tell) -> None:
    tell(f"training again{'' if workers is None else f' with {workers} workers'}, with a kill -9 at update {moment}")
    answers = run_jobs([trial.train(folder, workers=workers, kill_at=moment)])
    if not isinstance(answers[0], LostJob):
        check_finished(answers)
        raise AlchemyError(f"training ended before update {moment}, where it should have been killed")


def _compare_resumed(whole: Path, killed: Path, workers: int | None, moment: int) -> _TrialRun:
    rows = [row for _, row in read_lines(killed / "metrics.jsonl") if row and row.get("event") == "resume"]
    begin = rows[-1]["from_update"]
    begun = f"from the state of update {begin}" if begin else "from the beginning"
    what = f"killed at update {moment}, resumed {begun}{'' if workers is None else f', {workers} workers'}"
    facts = {"workers": workers, "killed_at": moment, "resumed_from": begin}
    return _TrialRun(what, compare(whole, killed), facts)


# -- determinism
def verify_determinism(
    doc: Document,
    *,
    updates: int | None = None,
    device: int = -1,
    user_dir: str = "src",
    tell: Tell = lambda text: None,
) -> TrialReport:
    """Train twice with the same seed and once with a different number of workers, in new processes, and compare."""
    trial = Trial.of(doc, updates=updates, device=device, user_dir=user_dir)
    own = int(trial.document["task"]["datasets"]["train"].get("num_workers") or 0)
    other = 0 if own else WORKERS
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name:
        one, two, third = (Path(name) / word for word in ("one", "two", "other"))
        tell("training twice with the same seed")
        check_finished(run_jobs([trial.train(one), trial.train(two)]))
        first = find_only_record(one)
        report = TrialReport("each", last_update(first), trial.left_out)
        report.runs.append(_TrialRun("a second time", compare(first, find_only_record(two))))
        if is_stream(first):
            report.notes.append(STREAM)
        elif report.equal:  # otherwise the workers are not the cause
            what = f"with {other} workers instead of {own}"
            tell(f"training {what}")
            (answer,) = run_jobs([trial.train(third, workers=other)])
            if isinstance(answer, str) and answer:  # data that cannot be sent to a worker
                report.notes.append(f"not compared {what}: {answer}")
            else:
                check_finished([answer])
                report.runs.append(_TrialRun(what, compare(first, find_only_record(third))))
    report.notes.append(ON_CPU if device < 0 else f"on this device; {SWITCH}")
    return report
