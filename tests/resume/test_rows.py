"""A disk that accepts states but not all rows: a state counts only existing rows, with one warning."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from alchemy.checkpoint.files import read
from alchemy.checkpoint.manifest import checkpoints
from alchemy.records.jsonl_writer import JsonlWriter, count_lines
from alchemy.records.ledger import read_ledger
from alchemy.records.metrics_file import read_metrics
from alchemy.resuming import resume
from alchemy.runner import run
from tests.toy import config

ROWS = 3


@pytest.mark.parametrize(("name", "part"), [("metrics.jsonl", "rows"), ("ledger.jsonl", "ledger")])
def test_a_state_counts_only_the_rows_that_the_disk_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str], name: str, part: str
) -> None:
    taking = JsonlWriter._write

    def take_a_few(journal: JsonlWriter, rest: bytes, encoded: list[Callable[[], bytes]]) -> bytes:
        if journal.path.name != name:
            return taking(journal, rest, encoded)
        room = ROWS - count_lines(journal.path)[0]
        rows = b"".join([rest, *(row() for row in encoded)]).splitlines(keepends=True)
        taking(journal, b"".join(rows[:room]), [])
        journal.error = "no space left" if rows[room:] else journal.error
        return b"".join(rows[room:])

    with monkeypatch.context() as patched:
        patched.setattr(JsonlWriter, "_write", take_a_few)
        cfg = config(tmp_path / "runs", log_every=1, checkpoint={"every": 2, "last": 9}, sched__epochs=2)
        (result,) = run([cfg], device=[-1], raise_errors=True)
    record = result.record_dir
    assert record is not None
    claims = [read(folder)["state.json"]["parts"][part]["lines"] for folder in checkpoints(record / "state")]
    assert len(claims) >= 4 and max(claims) == claims[-1] == ROWS == count_lines(record / name)[0]
    (told,) = [line for line in warnings if "rows are on disk" in line]
    assert told.startswith(f"{name}: only {ROWS} of ") and "no space left" in told
    # rows written from here on are not part of the state, however often the run resumes
    before = {folder.name for folder in checkpoints(record / "state")}
    for epochs in (3, 4):
        for newer in [folder for folder in checkpoints(record / "state") if folder.name not in before]:
            shutil.rmtree(newer)
        resume(record, device=[-1], overrides=[f"sched.epochs={epochs}"], allow=["sched.epochs"], raise_errors=True)
    assert updates(record / name) == [*range(1, ROWS + 1), *range(9, 17)]


def updates(path: Path) -> list[int]:
    """Return the updates that have a valid row."""
    if path.name == "ledger.jsonl":
        return [row["update"] for _, row in read_ledger(path) if "n" in row]
    return [row["update"] for row in read_metrics(path) if "train/loss" in row["values"]]
