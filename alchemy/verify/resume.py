"""Whether a training that is killed and resumed ends as one that was left alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.launch.workers import Lost
from alchemy.verify.equal import Comparison, compare, last_update
from alchemy.verify.trial import MOST, Tell, Trial, finished, go, record_in


@dataclass
class Resumed:
    """One training that was killed and resumed, against the one that was not."""

    workers: int | None
    killed_at: int
    resumed_from: int
    found: Comparison

    def __str__(self) -> str:
        return f"{self._how()}\n{self.found}"

    def _how(self) -> str:
        workers = "" if self.workers is None else f", {self.workers} workers"
        begun = f"from the state of update {self.resumed_from}" if self.resumed_from else "from the beginning"
        return f"killed at update {self.killed_at}, resumed {begun}{workers}:"

    def plain(self) -> dict[str, Any]:
        told = {"workers": self.workers, "killed_at": self.killed_at, "resumed_from": self.resumed_from}
        return told | self.found.plain()


@dataclass
class Report:
    """What `verify resume` found."""

    updates: int
    left_out: list[str] = field(default_factory=list)
    runs: list[Resumed] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(run.found.equal for run in self.runs)

    def plain(self) -> dict[str, Any]:
        runs = [run.plain() for run in self.runs]
        return {"equal": self.equal, "updates": self.updates, "left_out": self.left_out, "runs": runs}

    def __str__(self) -> str:
        left_out = f", without {', '.join(self.left_out)}" if self.left_out else ""
        return "\n".join([f"{self.updates} updates without interruption{left_out}", *map(str, self.runs)])


def check(
    doc: Document,
    *,
    updates: int | None = None,
    kill_at: int | None = None,
    workers: Sequence[int | None] = (None,),
    device: int = -1,
    user_dir: str = "src",
    tell: Tell = lambda text: None,
) -> Report:
    """Trains once without interruption, then once for each of `workers` with a kill -9 and a resume, and compares."""
    trial = Trial.of(doc, updates=updates, device=device, user_dir=user_dir)
    _refuse(updates, kill_at, workers)
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name:
        whole = Path(name) / "whole"
        tell(f"training without interruption{f', {updates} updates' if updates else ''}")
        finished(go([trial.train(whole, workers=workers[0])]))
        report = Report(last_update(record_in(whole)), trial.left_out)
        moment = kill_at or max(2, (report.updates + 1) // 2)
        if moment >= report.updates:
            hint = f"give --kill-at below {report.updates}" if kill_at else "train longer, or set --updates"
            text = f"the training has {report.updates} updates: it cannot be killed at update {moment} and go on"
            raise AlchemyError(text, hint=hint)
        for number in workers:
            killed = Path(name) / f"killed-{number}"
            _kill(trial, killed, number, moment, tell)
            tell("resuming it")
            finished(go([trial.resume(killed)]))
            found = compare(record_in(whole), record_in(killed))
            report.runs.append(Resumed(number, moment, _resumed_from(record_in(killed)), found))
    return report


def _refuse(updates: int | None, kill_at: int | None, workers: Sequence[int | None]) -> None:
    """An error for what cannot be, before minutes of training are spent on it."""
    for number in workers:
        if number is not None and number < 0:
            raise AlchemyError(f"--workers has {number}", hint="give 0 or more; 0 loads in the process of the training")
    if kill_at is None:
        return
    if kill_at < 1:
        raise AlchemyError(f"--kill-at is {kill_at}", hint="give 1 or more")
    if kill_at >= (updates or MOST):
        trained = f"--updates is {updates}" if updates else f"without --updates there are {MOST} updates at most"
        text = f"--kill-at is {kill_at} and {trained}: after the kill there must be something left to train"
        raise AlchemyError(text, hint=f"give a --kill-at below {updates or MOST}, or --updates above {kill_at}")


def _kill(trial: Trial, folder: Path, workers: int | None, moment: int, tell: Tell) -> None:
    tell(f"training again{'' if workers is None else f' with {workers} workers'}, with a kill -9 at update {moment}")
    answers = go([trial.train(folder, workers=workers, kill_at=moment)])
    if not isinstance(answers[0], Lost):
        finished(answers)
        raise AlchemyError(f"the training ended before update {moment}, where it was to be killed")


def _resumed_from(record: Path) -> int:
    """The update that the last resume went on from."""
    rows = [
        json.loads(line) for line in (record / "metrics.jsonl").read_text("utf-8").splitlines() if '"event"' in line
    ]
    return max((row["gen"], row["from_update"]) for row in rows)[1]
