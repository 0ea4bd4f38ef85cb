"""Verify that a run saw every sample exactly once, and compare the samples of two runs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.checkpoint.manifest import newest_valid, read_parts
from alchemy.errors import AlchemyError
from alchemy.records import find
from alchemy.records.agreement import LedgerAgreement, compare_ledger_files
from alchemy.records.jsonl_writer import count_lines
from alchemy.records.ledger import NAME, START, extend_chain, read_ledger, sum_ids, sum_range
from alchemy.records.status import status_of
from alchemy.records.symlinks import refuse_links

_sum_range = functools.cache(sum_range)  # all epochs usually have the same size
MAX_MISSING = 2**24  # if `samples` exceeds twice the row count by more than this, no sum is computed
WHOLE, SHORT, ENDED, UNKNOWN, WRONG = "each once", "cut short", "ended in", "not counted", "wrong"


@dataclass
class _Epoch:
    """The ledger rows of an epoch (counted from 0); `verdict` is one of the constants above."""

    epoch: int
    updates: int = 0
    n: int = 0
    unit: str = "samples"
    verdict: str = SHORT
    text: str = ""
    sets: list[str | None] = field(default_factory=list, repr=False)

    def take(self, row: dict[str, Any]) -> None:
        self.verdict, self.text = SHORT, "incomplete: the run was stopped during this epoch"
        self.updates += 1
        self.n += row["n"]
        self.sets.append(row["set"])
        self.unit = "samples" if row["set"] is not None else "batches"

    def close(self, row: dict[str, Any]) -> None:
        """Check a completed epoch, in which each sample must occur exactly once."""
        samples, left_out = row["samples"], row.get("left_out", [])
        if samples is None or None in self.sets:
            self.verdict, self.text = UNKNOWN, "complete; whether each was seen once is unknown"
        elif samples > 2 * self.n + MAX_MISSING or self._total(left_out) != _sum_range(samples):
            self.verdict, self.text = WRONG, self._describe_error(samples - len(left_out))
        elif self.n != samples - len(left_out):
            what = f"each of the {samples - len(left_out):,} samples was seen once, but the rows add up to {self.n:,}"
            self.verdict, self.text = WRONG, f"{what}: a value was edited"
        else:
            self.verdict = WHOLE
            self.text = f"each once, {len(left_out)} left out on purpose" if left_out else "each once"

    def end(self) -> None:
        """Mark the epoch in which the run finished; if the data is a stream, it may have had more samples."""
        if self.verdict == SHORT:
            self.verdict, self.text = ENDED, "the run ended in this epoch; whether there was more data is unknown"

    def _total(self, left_out: Sequence[int]) -> int:
        import numpy as np

        seen = sum(int(total, 16) for total in self.sets if total)
        return (seen + sum_ids(np.array(left_out, dtype=np.int64))) % 2**64

    def _describe_error(self, samples: int) -> str:
        if self.n == samples:
            return "some of them more than once, others never"
        return f"but there are {samples}: " + ("some were never seen" if self.n < samples else "some were seen again")

    def __str__(self) -> str:
        head = f"epoch {self.epoch + 1}: {self.n:,} {self.unit} in {self.updates:,} update{'s' * (self.updates != 1)}"
        return f"{head}, {self.text}"

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "sets"}


@dataclass
class LedgerReport:
    """The result of verifying a ledger; `broken` describes where the hash chain is broken."""

    record: str
    epochs: list[_Epoch]
    broken: str = ""

    @property
    def holds(self) -> bool:
        return not self.broken and all(epoch.verdict != WRONG for epoch in self.epochs)

    def plain(self) -> dict[str, Any]:
        epochs = [epoch.plain() for epoch in self.epochs]
        return {"record": self.record, "holds": self.holds, "broken": self.broken, "epochs": epochs}

    def __str__(self) -> str:
        updates = sum(epoch.updates for epoch in self.epochs)
        chain = self.broken or f"the chain of {updates:,} updates is intact"
        return "\n".join([*map(str, self.epochs), chain])


def verify_ledger(record: str | Path) -> LedgerReport:
    """Verify the ledger of a record: the chain row by row, the samples epoch by epoch."""
    path = _find_ledger(record)
    known = _read_saved_ledger(path.parent)  # read first, since the ledger of a live run is never behind its states
    epochs: dict[int, _Epoch] = {}
    before, broken = START, ""
    links = {0: [START.hex()]}  # an update that spans two epochs has a row in both
    for line, row in read_ledger(path):
        epoch = epochs.setdefault(row["epoch"], _Epoch(row["epoch"]))
        try:
            if row.get("event") == "epoch":
                epoch.close(row)
                continue
            epoch.take(row)
            link = extend_chain(before, bytes.fromhex(row["ids"]))
            before = bytes.fromhex(row["hash"])
            links.setdefault(row["update"], []).append(row["hash"])
        except (KeyError, TypeError, ValueError) as error:
            raise AlchemyError(f"invalid ledger row: {error}", where=f"{path}:{line}") from error
        if link != before and not broken:
            what = f"the chain is broken before update {row['update']}: rows are missing or were changed"
            broken = f"{path}:{line} {what}"
    if epochs and status_of(path.parent) == "finished":
        next(reversed(epochs.values())).end()
    return LedgerReport(str(record), list(epochs.values()), broken or _missing_end(path, known, links))


def _read_saved_ledger(folder: Path) -> dict[str, Any]:
    """Return the ledger state in the latest complete checkpoint, or an empty dict."""
    state, _ = newest_valid(folder / "state")
    if state is None:
        return {}
    known = read_parts(state).get("ledger")
    if not isinstance(known, dict) or not all(type(known.get(key)) is int for key in ("update", "lines")):
        return {}
    return {**known, "state": state.name}


def _missing_end(path: Path, known: dict[str, Any], links: dict[int, list[str]]) -> str:
    """Describe rows that a checkpoint counts but the ledger lacks; the chain alone cannot detect truncation."""
    if not known:
        return ""
    if known["update"] not in links:
        return f"the record has a checkpoint of update {known['update']}, but the ledger ends at update {max(links)}"
    if known.get("hash") not in links[known["update"]]:
        return f"update {known['update']} of the ledger does not match the checkpoint {known['state']}"
    lines, _ = count_lines(path)
    if lines < known["lines"]:
        what = (
            f"the checkpoint {known['state']} counts {known['lines']:,} ledger lines, but the file has only {lines:,}"
        )
        return f"{what}: its end is missing"
    return ""


def compare_ledgers(one: str | Path, other: str | Path) -> LedgerAgreement:
    """Compare the ledgers of two records."""
    return compare_ledger_files(_find_ledger(one), _find_ledger(other), (one, other))


def _find_ledger(record: str | Path) -> Path:
    """Return the path of a record's ledger; raise an error if it is missing."""
    folder = refuse_links(find(record))
    path = folder / NAME
    if not path.is_file():
        hint = "runs with the FileLogger plugin write one; records from older versions have none"
        raise AlchemyError(f"the record {folder} has no {NAME}", hint=hint)
    return path
