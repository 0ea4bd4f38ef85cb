"""Whether short trainings of one config end the same to the bit: killed and resumed, repeated, with other workers."""

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
from alchemy.verify.trial_runs import MOST, Tell, Trial, check_finished, go, record_in

WORKERS = 2
SWITCH = "use_deterministic_algorithms = true of the plugin Seeding makes torch refuse what gives other bits each time"
ON_CPU = f"not shown on a CPU: what cuDNN chooses and the order in which a GPU adds (atomics); there {SWITCH}"
STREAM = "the data is a stream: its order may depend on num_workers, so only the number of the config was tried"


@dataclass
class _TrialRun:
    """A training, compared with the one that was left alone."""

    what: str
    found: Comparison
    facts: dict[str, int | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what}:\n{self.found}"

    def plain(self) -> dict[str, Any]:
        return {"what": self.what} | self.facts | self.found.plain()


@dataclass
class TrialReport:
    """All that was compared, and what could not be shown."""

    head: str
    updates: int
    left_out: list[str]
    runs: list[_TrialRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(run.found.equal for run in self.runs)

    def plain(self) -> dict[str, Any]:
        told = {"equal": self.equal, "updates": self.updates, "left_out": self.left_out, "notes": self.notes}
        return told | {"runs": [run.plain() for run in self.runs]}

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
    """Trains once without interruption, then once for each of `workers` with a kill -9 and a resume, and compares."""
    trial = Trial.of(doc, updates=updates, device=device, user_dir=user_dir)
    _refuse(updates, kill_at, workers)
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name:
        whole = Path(name) / "whole"
        tell(f"training without interruption{f', {updates} updates' if updates else ''}")
        check_finished(go([trial.train(whole, workers=workers[0])]))
        report = TrialReport("without interruption", last_update(record_in(whole)), trial.left_out)
        moment = kill_at or max(2, (report.updates + 1) // 2)
        if moment >= report.updates:
            hint = f"give --kill-at below {report.updates}" if kill_at else "train longer, or set --updates"
            text = f"the training has {report.updates} updates: it cannot be killed at update {moment} and go on"
            raise AlchemyError(text, hint=hint)
        for number in workers:
            killed = Path(name) / f"killed-{number}"
            _kill(trial, killed, number, moment, tell)
            tell("resuming it")
            check_finished(go([trial.resume(killed)]))
            report.runs.append(_resumed(record_in(whole), record_in(killed), number, moment))
    return report


def _refuse(updates: int | None, kill_at: int | None, workers: Sequence[int | None]) -> None:
    """An error for what cannot be, before minutes of training are spent on it."""
    for number in workers:
        if number is not None and number < 0:
            raise AlchemyError(f"--workers has {number}", hint="give 0 or more; 0 loads in the process of the training")
    if kill_at is not None and kill_at < 1:
        raise AlchemyError(f"--kill-at is {kill_at}", hint="give 1 or more")
    if kill_at is not None and kill_at >= (updates or MOST):
        trained = f"--updates is {updates}" if updates else f"without --updates there are {MOST} updates at most"
        text = f"--kill-at is {kill_at} and {trained}: after the kill there must be something left to train"
        raise AlchemyError(text, hint=f"give a --kill-at below {updates or MOST}, or --updates above {kill_at}")


def _kill(trial: Trial, folder: Path, workers: int | None, moment: int, tell: Tell) -> None:
    tell(f"training again{'' if workers is None else f' with {workers} workers'}, with a kill -9 at update {moment}")
    answers = go([trial.train(folder, workers=workers, kill_at=moment)])
    if not isinstance(answers[0], LostJob):
        check_finished(answers)
        raise AlchemyError(f"the training ended before update {moment}, where it was to be killed")


def _resumed(whole: Path, killed: Path, workers: int | None, moment: int) -> _TrialRun:
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
    """Trains twice with the same seed, and once with another number of workers, in fresh processes; compares."""
    trial = Trial.of(doc, updates=updates, device=device, user_dir=user_dir)
    own = int(trial.document["task"]["datasets"]["train"].get("num_workers") or 0)
    other = 0 if own else WORKERS
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name:
        one, two, third = (Path(name) / word for word in ("one", "two", "other"))
        tell("training twice with the same seed")
        check_finished(go([trial.train(one), trial.train(two)]))
        first = record_in(one)
        report = TrialReport("each", last_update(first), trial.left_out)
        report.runs.append(_TrialRun("a second time", compare(first, record_in(two))))
        if is_stream(first):
            report.notes.append(STREAM)
        elif report.equal:  # else it says nothing about the workers
            what = f"with {other} workers in place of {own}"
            tell(f"training {what}")
            (answer,) = go([trial.train(third, workers=other)])
            if isinstance(answer, str) and answer:  # data that cannot be sent to a worker
                report.notes.append(f"not compared {what}: {answer}")
            else:
                check_finished([answer])
                report.runs.append(_TrialRun(what, compare(first, record_in(third))))
    report.notes.append(ON_CPU if device < 0 else f"on this device; {SWITCH}")
    return report
