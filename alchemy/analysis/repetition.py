"""Compare a run with its repetition, in words."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from alchemy.errors import AlchemyError
from alchemy.index.value_format import format_count
from alchemy.records.agreement import compare_ledger_files, find_metric_difference
from alchemy.records.ledger import NAME as LEDGER
from alchemy.records.ledger import iterate_ledger
from alchemy.records.metrics_file import iterate_comparable

METRICS = "metrics.jsonl"
NAMES = ("the record", "the rerun")


class Repetition(NamedTuple):
    """Whether a repetition has the same results, and a description."""

    identical: bool
    text: str


def compare_repetition(record: Path, rerun: Path, status: str = "finished") -> Repetition:
    """Compare the metrics and samples of a record with those of its repetition.

    If the recorded run did not finish, as `status` says, the repetition may continue where it ended.
    """
    try:
        return _compare(record, rerun, status)
    except (AlchemyError, OSError) as error:
        return Repetition(False, f"cannot be compared: {error}")


def _compare(record: Path, rerun: Path, status: str) -> Repetition:
    names = [name for name in (METRICS, LEDGER) if any((folder / name).is_file() for folder in (record, rerun))]
    for name in names:
        for folder, who in zip((record, rerun), NAMES, strict=True):
            if not (folder / name).is_file():
                return Repetition(False, f"{who} has no {name}")
    if not names:
        return Repetition(False, "there is nothing to compare: the runs have logged no metrics and seen no samples")
    rows, difference = find_metric_difference(record / METRICS, rerun / METRICS) if METRICS in names else (0, "")
    ledger = compare_ledger_files(record / LEDGER, rerun / LEDGER, NAMES) if LEDGER in names else None
    counts = format_count(rows, "row") + (f", {format_count(ledger.updates, 'update')}" if ledger else "")
    what = "metrics and ledger" if ledger else "metrics"
    if not difference and (ledger is None or ledger.equal):
        return Repetition(True, f"identical {what} ({counts})")
    if status != "finished" and (rows, ledger.updates if ledger else 0) == _measure(record, names):
        return Repetition(True, f"identical {what} up to the end of the record, which was {status} ({counts})")
    texts = [f"metrics: {difference or f'identical ({rows} rows)'}"]
    texts += [f"ledger: {ledger.text}"] if ledger else []
    return Repetition(False, "\n".join(texts))


def _measure(record: Path, names: list[str]) -> tuple[int, int]:
    """Return the number of metrics rows and of updates in a record."""
    rows = sum(1 for _ in iterate_comparable(record / METRICS)) if METRICS in names else 0
    updates = sum("event" not in row for _, row in iterate_ledger(record / LEDGER)) if LEDGER in names else 0
    return rows, updates
