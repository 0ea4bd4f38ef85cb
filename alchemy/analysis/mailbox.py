"""The mailbox: a mail for every run that has ended and for every new best, derived from the index.

Mails are not stored. Only what the user does with them is: see `mail_marks`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from alchemy.analysis.mail_marks import MailMarks
from alchemy.errors import AlchemyError
from alchemy.files import read_table
from alchemy.index.listing import summarize_values
from alchemy.index.metric_direction import find_minimizing
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row, drop_repeats, fold_key
from alchemy.index.value_format import format_count, format_number
from alchemy.records.failure import LARGEST_MAIL, MAIL
from alchemy.records.metrics_file import MACHINE_PREFIXES
from alchemy.records.symlinks import path_inside

FINISHED, NEW_BEST = "finished", "new best"
ENDED = (FINISHED, "failed", "killed", "lost", "stopped")
BY_CAUSE = ("failed", "killed", "lost")  # grouped by cause, and sent as "failed"
RECORD_KINDS = ("train", "test")  # records that send mail


class Score(NamedTuple):
    """The best value of the metric that a run monitors, or the value of that metric in a test."""

    metric: str
    value: float

    def __str__(self) -> str:
        return f"{self.metric} {format_number(self.value)}"


@dataclass(frozen=True)
class Mail:
    """What happened to a record; `when` is in seconds since the epoch."""

    id: str  # record, generation and kind: stays the same when the index is rebuilt
    kind: str
    title: str  # kind and tag
    subject: str  # the title and the cause
    when: float
    row: Row
    cause: str  # why the run ended early, its score, or the new best value
    score: Score | None
    group: tuple[str, ...]  # equal for mails that are shown as one line


class MailGroup(NamedTuple):
    """Mails with the same cause, or of the same setting, newest first; `number` is its place in the mailbox."""

    number: int
    mails: list[Mail]

    @property
    def newest(self) -> Mail:
        return self.mails[0]

    @property
    def cause(self) -> str:
        """The cause of the newest mail; for finished runs, the mean and the standard deviation of their scores."""
        if self.newest.kind != FINISHED:
            return self.newest.cause
        counted = {row.id for row in drop_repeats([mail.row for mail in self.mails])}
        scores = [mail.score for mail in self.mails if mail.row.id in counted]
        metrics = {score.metric for score in scores if score is not None}
        values = [None if score is None else score.value for score in scores]
        return f"{metrics.pop()} {summarize_values(values)}" if len(metrics) == 1 else ""

    @property
    def subject(self) -> str:
        return _join_subject(self.newest.title, self.cause)


class Mailbox:
    """The mails of a project, grouped, newest first. Cleared mails are left out."""

    def __init__(self, index: RecordIndex) -> None:
        self._index = index
        self.marks = MailMarks(index.settings.home)
        self.all = sorted(derive_mails(index), key=lambda mail: (mail.when, mail.id), reverse=True)
        cleared = self.marks["cleared"]
        groups: dict[tuple[str, ...], list[Mail]] = {}
        for mail in self.all:
            if mail.id not in cleared:
                groups.setdefault(mail.group, []).append(mail)
        self.groups = [MailGroup(number, mails) for number, mails in enumerate(groups.values(), start=1)]

    def is_unread(self, mail: Mail) -> bool:
        return mail.id not in self.marks["read"]

    def select(self, *, unread: bool = False, since: float | None = None) -> list[MailGroup]:
        """Return the groups with the mails that match; groups keep their numbers."""
        found = []
        for number, mails in self.groups:
            kept = [
                mail for mail in mails if (not unread or self.is_unread(mail)) and (since is None or mail.when >= since)
            ]
            if kept:
                found.append(MailGroup(number, kept))
        return found

    def select_unsent(self, events: Collection[str], since: float | None) -> list[MailGroup]:
        """Return the groups with the mails about these events that neither `alchemy mail send` nor the run has sent."""
        found = []
        for number, mails in self.select(since=since):
            wanted = ("failed" if mails[0].kind in BY_CAUSE else mails[0].kind) in events
            kept = [mail for mail in mails if wanted and mail.id not in self.marks["sent"] and not is_sent(mail.row)]
            if kept:
                found.append(MailGroup(number, kept))
        return found

    def find(self, name: str) -> list[Mail]:
        """Return the mails that a name stands for, newest first: a mail id, a number in the mailbox, or a record."""
        found = [mail for mail in self.all if mail.id == name] or [mail for mail in self.all if mail.row.name == name]
        if not found and name.isdecimal() and len(name) < 4:  # longer ones are the start of a date
            if not 1 <= int(name) <= len(self.groups):
                lines = format_count(len(self.groups), "line")
                raise AlchemyError(f"there is no mail {name}", hint=f"the mailbox has {lines}")
            return self.groups[int(name) - 1].mails
        if not found:
            row = self._index.find(name)
            found = [mail for mail in self.all if mail.row.path == row.path]
            if not found:
                raise AlchemyError(f"there is no mail about {row.name}, which is {row.status or 'unknown'}")
        return found

    def numbers(self, mails: Sequence[Mail]) -> dict[str, dict[str, float]]:
        """Return the metrics of runs at their best checkpoint, by the id of the mail."""
        metrics = self._index.metrics({mail.row.id: mail.row for mail in mails}.values())
        return {mail.id: _results(metrics[mail.row.id]) for mail in mails}


def is_sent(row: Row) -> bool:
    """Return whether a run has sent its mail itself, as its `mail.json` says."""
    try:
        mail = read_table(path_inside(row.folder, MAIL), LARGEST_MAIL)
    except (OSError, ValueError, AlchemyError):
        return False
    return bool(mail.get("sent")) and mail.get("gen") == row.gen and mail.get("status") == row.status


def derive_mails(index: RecordIndex) -> Iterator[Mail]:
    """Yield the mails of all training and test records."""
    rows = [row for row in index.query() if row.kind in RECORD_KINDS and row.status in ENDED]
    scores = _find_scores(index, rows)
    for row in rows:
        score = scores.get(row.id)
        cause = row.cause if row.status != FINISHED else str(score or "")
        yield _write(row, row.status, cause, score, (row.status, *_find_group(row)))
    lower = find_minimizing(index, rows)
    for row, former in find_new_bests(rows, lower):
        score = scores[row.id]
        yield _write(
            row, NEW_BEST, f"{score}, before {format_number(former)}", score, (NEW_BEST, row.tag, row.best_metric)
        )


def _find_scores(index: RecordIndex, rows: Sequence[Row]) -> dict[int, Score]:
    """Return the scores of records; a test has the score that its training run monitors, if that is known."""
    scores = {row.id: Score(row.best_metric, row.best_value) for row in rows if row.best_value is not None}
    monitored = {row.name: row.best_metric.partition("/")[2] for row in rows if row.best_metric}
    tests = [row for row in rows if row.kind == "test" and row.parent in monitored]
    metrics = index.metrics(tests)
    for row in tests:
        results = _results(metrics[row.id])
        found = (name for name in results if name.partition("/")[2] == monitored[row.parent])
        if name := min(found, key=lambda name: (not name.startswith("test/"), name), default=""):
            scores[row.id] = Score(name, results[name])
    return scores


def _find_group(row: Row) -> tuple[str, ...]:
    """Return what runs on the same line have in common; finished runs may differ only in their seed."""
    if row.status in BY_CAUSE:
        return (row.signature,)
    if row.status == FINISHED:
        return fold_key(row.id, row.kind, row.fold_hash, row.code_hash)
    return row.kind, row.tag


def find_new_bests(rows: Iterable[Row], lower: Mapping[int, bool]) -> Iterator[tuple[Row, float]]:
    """Yield the finished training runs that beat all earlier runs with the same tag and metric, and the former best.

    `lower` says for which runs lower values are better. The first run of a tag has nothing to beat.
    """
    bests: dict[tuple[str, str], float] = {}
    for row in sorted((row for row in rows if row.kind == "train"), key=lambda row: (_when(row), row.name)):
        if row.best_value is None or not row.best_metric:
            continue
        key = row.tag, row.best_metric
        former = bests.get(key)
        if former is None or (row.best_value < former if lower[row.id] else row.best_value > former):
            bests[key] = row.best_value
            if former is not None and row.status == FINISHED:
                yield row, former


def find_former_best(index: RecordIndex, path: str, metric: str, value: float) -> float | None:
    """Return the best value of earlier runs if a run that is about to finish beats it with `value`; otherwise None."""
    found = {row.path: row for row in index.query()}
    if path not in found:
        return None
    own, rows = found.pop(path), [row for row in found.values() if row.status in ENDED]
    last = own._replace(status=FINISHED, best_metric=metric, best_value=value, ended=math.inf)
    lower = find_minimizing(index, [*rows, last])
    return next((former for row, former in find_new_bests([*rows, last], lower) if row.path == path), None)


def _write(row: Row, kind: str, cause: str, score: Score | None, group: tuple[str, ...]) -> Mail:
    title = f"{kind}: {row.tag}" + (f" ({row.kind})" if row.kind != "train" else "")
    mail_id = f"{row.name}:{row.gen}:{kind.replace(' ', '-')}"
    return Mail(mail_id, kind, title, _join_subject(title, cause), _when(row), row, cause, score, group)


def _join_subject(title: str, cause: str) -> str:
    return f"{title}: {cause}" if cause else title


def _when(row: Row) -> float:
    """Return when a run ended; for a killed run, its last sign of life."""
    return row.ended or row.heartbeat or row.started or 0.0


def _results(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    found = {name: values["at_best"] for name, values in metrics.items() if not name.startswith(MACHINE_PREFIXES)}
    return {name: value for name, value in sorted(found.items()) if value is not None}
