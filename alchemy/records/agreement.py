"""Find where two records part: the first update with other samples, and the first row with other metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from alchemy.records.ledger import iterate_ledger
from alchemy.records.metrics_file import iterate_comparable

SHOWN = 5  # metrics of a row that are shown


@dataclass(frozen=True)
class LedgerAgreement:
    """The number of leading updates in which two records saw the same samples, and a description.

    `update` is the first update that differs, or None.
    """

    equal: bool
    updates: int
    text: str
    update: int | None = None


def compare_ledger_files(
    one: Path, other: Path, names: tuple[object, object] = ("the first", "the second")
) -> LedgerAgreement:
    """Compare two `ledger.jsonl` files, up to the first difference."""
    counts = [0, 0]
    for a, b in zip_longest(_updates(one), _updates(other)):
        if a is not None and b is not None and a.get("hash") != b.get("hash"):
            place = f"update {a['update']} (epoch {a['epoch'] + 1})"
            seen = f"{names[0]} saw {_describe(a)}; {names[1]} saw {_describe(b)}"
            return LedgerAgreement(False, counts[0], f"the runs diverge at {place}: {seen}", a["update"])
        counts = [count + (row is not None) for count, row in zip(counts, (a, b), strict=True)]
    if counts[0] == counts[1]:
        return LedgerAgreement(True, counts[0], f"equal for all {counts[0]:,} updates")
    ends = f"{names[0]} has {counts[0]:,}, {names[1]} has {counts[1]:,}"
    text = f"equal for the first {min(counts):,} updates; {ends}"
    return LedgerAgreement(False, min(counts), text, min(counts) + 1)


def _updates(path: Path) -> Iterator[dict[str, Any]]:
    return (row for _, row in iterate_ledger(path) if "event" not in row)


def _describe(row: Mapping[str, Any]) -> str:
    return f"n={row.get('n')} ids={row.get('ids', '')[:12]}"


def find_metric_difference(one: Path, other: Path) -> tuple[int, str]:
    """Return the number of equal leading rows of two `metrics.jsonl` files, and a description of the first difference.

    The description is empty if all rows are equal. Time and system metrics are not compared.
    """
    count = 0
    for a, b in zip_longest(iterate_comparable(one), iterate_comparable(other)):
        if a is None or b is None:
            row, name = (b, "second") if a is None else (a, "first")
            return count, f"first logged difference at update {row['update']}, which only the {name} has"
        if a != b:
            return count, f"first logged difference at update {min(a['update'], b['update'])}: {_describe_rows(a, b)}"
        count += 1
    return count, ""


def _describe_rows(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    ours, others = a["values"], b["values"]
    if [a[key] for key in ("update", "step", "epoch")] != [b[key] for key in ("update", "step", "epoch")]:
        return f"update {a['update']}, step {a['step']} vs. update {b['update']}, step {b['step']}"
    names = [name for name in {**ours, **others} if ours.get(name) != others.get(name)]
    texts = [f"{name} {' vs. '.join(format_pair(ours.get(name), others.get(name)))}" for name in names]
    return ", ".join(texts[:SHOWN])


def format_pair(one: object, other: object) -> tuple[str, str]:
    """Format two numbers with enough digits to show their difference, if there is one; one of them may be missing.

    >>> format_pair(0.51, 0.52), format_pair(0.123456789, 0.123456780), format_pair(0.123456789, None)
    (('0.51', '0.52'), ('0.12345679', '0.12345678'), ('0.1235', 'None'))
    >>> format_pair(1 / 3, 1 / 3)
    ('0.3333', '0.3333')
    """
    if not isinstance(one, int | float) or not isinstance(other, int | float) or one == other:
        return _format(one), _format(other)
    for digits in range(4, 18):
        texts = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
