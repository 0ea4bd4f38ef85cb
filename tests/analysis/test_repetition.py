"""The comparison of a run with its repetition, in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alchemy.analysis.repetition import compare_repetition
from alchemy.records.ledger import Ledger


def write(folder: Path, losses: list[float], updates: int | None = None, first: int = 0) -> Path:
    """Write a record with one row of metrics and one update per loss."""
    folder.mkdir()
    rows = [
        {"update": i, "step": i, "epoch": 0, "t": id(folder), "gen": 0, "values": {"train/loss": loss, "time/step": i}}
        for i, loss in enumerate(losses, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ledger = Ledger(folder / "ledger.jsonl")
    for update in range(1, 1 + (len(losses) if updates is None else updates)):
        ledger.add_step([first + update])
        ledger.close_update(update, 0)
    ledger.flush()
    ledger.close()
    return folder


def test_identical_runs_are_called_so(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, [0.3, 0.2]) for name in ("a", "b"))
    assert compare_repetition(one, other) == (True, "identical metrics and ledger (2 rows, 2 updates)")
    for folder in (one, other):
        (folder / "ledger.jsonl").unlink()
    assert compare_repetition(one, other) == (True, "identical metrics (2 rows)")


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a", [0.3, 0.2]), write(tmp_path / "b", [0.3, 0.1])
    same, text = compare_repetition(one, other)
    assert not same
    lines = ["metrics: first logged difference at update 2: train/loss 0.2 vs. 0.1", "ledger: equal for all 2 updates"]
    assert text.splitlines() == lines
    third = write(tmp_path / "c", [0.3, 0.2], first=1)
    same, text = compare_repetition(one, third)
    assert not same and text.startswith("metrics: identical (2 rows)\nledger: the runs diverge at update 1 (epoch 1)")


@pytest.mark.parametrize(("status", "same"), [("killed", True), ("stopped", True), ("finished", False)])
def test_a_run_that_did_not_finish_may_be_shorter(status: str, same: bool, tmp_path: Path) -> None:
    one, other = write(tmp_path / "a", [0.3], updates=1), write(tmp_path / "b", [0.3, 0.2])
    assert compare_repetition(one, other, status).identical is same
    assert not compare_repetition(other, one, status).identical
    assert not compare_repetition(one, write(tmp_path / "c", [0.4, 0.2]), status).identical


def test_what_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    one, other, empty = write(tmp_path / "a", [0.3]), write(tmp_path / "b", [0.3]), tmp_path / "c"
    empty.mkdir()
    assert compare_repetition(one, empty) == (False, "the rerun has no metrics.jsonl")
    assert compare_repetition(empty, one).text == "the record has no metrics.jsonl"
    assert compare_repetition(empty, empty).text.startswith("there is nothing to compare")
    (other / "ledger.jsonl").write_text('{"update": "x"}\n')
    assert compare_repetition(one, other).text.startswith("cannot be compared: ")
