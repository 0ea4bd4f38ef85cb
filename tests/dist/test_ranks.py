"""One, two or three ranks: the same updates, the same record, every sample once."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.checkpoint.files import read as read_checkpoint
from alchemy.checkpoint.manifest import newest_valid, read_manifest
from alchemy.records.ledger import read_ledger
from alchemy.records.metrics_file import comparable
from alchemy.records.status import read_info
from alchemy.verify.ledger import verify_ledger
from tests.dist.parts import farthest, read
from tests.dist.start import torchrun
from tests.dist.work import KINDS, TRAININGS, places, record, streams, tell, uneven, work
from tests.resume.compare import differences

RANKS = (2, 3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The folder of all runs by number of ranks, made once for all workers of pytest."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folders = {ranks: shared / "trained" / f"ranks{ranks}" for ranks in (1, *RANKS)}
    with open(shared / "trained.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "trained.done").exists():
            shutil.rmtree(shared / "trained", ignore_errors=True)  # left by a worker that failed
            train_all(folders)
            (shared / "trained.done").touch()
    return folders


def train_all(folders: dict[int, Path]) -> None:
    """Launch each number of ranks once."""
    for folder in folders.values():
        folder.mkdir(parents=True)
    work(folders[1])
    for ranks in RANKS:  # each resumes the run of the previous one
        torchrun(ranks, "tests.dist.work", folders[ranks], begun_by(folders, ranks - 1, ranks))
    begun = begun_by(folders, 2, 1)
    for kind in KINDS:
        tell(folders[1], f"{kind} taken over", begun / kind, allow=["threads"])


def begun_by(folders: dict[int, Path], before: int, ranks: int) -> Path:
    """Copy records, for another number of ranks to resume."""
    copies = folders[ranks] / "taken over"
    for kind in KINDS:
        shutil.copytree(record(folders[before], f"{kind} begun"), copies / kind)
    return copies


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def weights(folder: Path, file: str = "model.safetensors") -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = read_checkpoint(folder / "state" / "last")[file]
    return found


def curve(path: Path) -> Iterator[tuple[int, str, float]]:
    """Return all metrics of a run, except times and those of the machine."""
    for row in rows(path):
        for name, value in row.get("values", {}).items():
            if not name.startswith(("time/", "system/")):
                yield row["update"], name, value


def told(folder: Path, ranks: int, name: str) -> list[dict[str, Any]]:
    """Return the results of every rank of a run."""
    return [next(row for row in read(folder, "told", rank) if row["name"] == name) for rank in range(ranks)]


NAMES = [*TRAININGS, *streams()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranks", RANKS)
def test_updates_do_not_depend_on_the_number_of_ranks(trained: dict[int, Path], name: str, ranks: int) -> None:
    alone = read(trained[1] / name, "gradients")
    assert len(alone) == 4
    for rank in range(ranks):
        assert farthest(alone, read(trained[ranks] / name, "gradients", rank)) < 1e-12


@pytest.mark.parametrize("name", [*NAMES, *uneven()])
@pytest.mark.parametrize("ranks", [1, *RANKS])
def test_every_sample_is_seen_once_an_epoch(trained: dict[int, Path], name: str, ranks: int) -> None:
    seen = [row for rank in range(ranks) for row in read(trained[ranks] / name, "seen", rank)]
    for epoch in (0, 1):
        assert sorted(text for row in seen for text in row["texts"] if row["epoch"] == epoch) == list(range(13))


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("ranks", RANKS)
def test_rank_0_alone_keeps_the_record_and_it_is_that_of_one_process(
    trained: dict[int, Path], name: str, ranks: int
) -> None:
    alone, several = record(trained[1], name), record(trained[ranks], name)
    ledger = rows(alone / "ledger.jsonl")
    assert sum(row.get("n", 0) for row in ledger) == 26
    assert rows(several / "ledger.jsonl") == ledger
    report = verify_ledger(several)
    assert report.holds and [epoch.verdict for epoch in report.epochs] == ["each once"] * 2, str(report)
    ours, theirs = list(curve(alone / "metrics.jsonl")), list(curve(several / "metrics.jsonl"))
    assert [row[:2] for row in theirs] == [row[:2] for row in ours]
    assert [row[2] for row in theirs] == pytest.approx([row[2] for row in ours], rel=1e-9)
    assert {"train/loss", "train/loss_epoch", "dev/loss"} <= {name for _, name, _ in ours}


@pytest.mark.parametrize("name", streams())
@pytest.mark.parametrize("ranks", RANKS)
def test_a_stream_gives_the_numbers_of_one_process(trained: dict[int, Path], name: str, ranks: int) -> None:
    ours, theirs = (list(curve(record(trained[n], name) / "metrics.jsonl")) for n in (1, ranks))
    assert [row[:2] for row in theirs] == [row[:2] for row in ours]
    assert [row[2] for row in theirs] == pytest.approx([row[2] for row in ours], rel=1e-9)


@pytest.mark.parametrize("ranks", RANKS)
def test_the_batches_of_a_stream_that_no_pipe_splits_are_dealt_in_turn(trained: dict[int, Path], ranks: int) -> None:
    alone, several = (record(trained[n], "stream_unsplit") for n in (1, ranks))
    assert rows(several / "ledger.jsonl") == rows(alone / "ledger.jsonl")
    log = (several / "run.log").read_text()
    assert log.count(f"no pipe splits the stream: each of {ranks} processes reads all of it") == 1


@pytest.mark.parametrize("ranks", RANKS)
def test_an_average_is_that_of_one_process(trained: dict[int, Path], ranks: int) -> None:
    ours, theirs = (weights(record(trained[n], "averaged"), "ema.safetensors") for n in (1, ranks))
    assert ours.keys() == theirs.keys() and "criterion:gamma" in ours  # parameters of a loss are averaged too
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("ranks", "place"), [(ranks, place) for ranks in RANKS for place in places(ranks)])
def test_a_signal_to_one_rank_ends_all_and_they_go_on_as_if_nothing_had_been(
    trained: dict[int, Path], ranks: int, place: str
) -> None:
    folder = trained[ranks]
    assert [(row["status"], row["signal"]) for row in told(folder, ranks, place)] == [("stopped", 15)] * ranks
    stopped = folder / "stopped" / place
    assert read_info(stopped)["status"] == "stopped"
    newest, passed = newest_valid(stopped / "state")
    assert newest is not None and not passed
    # only the first of several ranks could save a partial window, so they resume from before it
    assert (read_manifest(newest).why[-1] == "signal") == ("evaluation in" not in place)
    assert [row["status"] for row in told(folder, ranks, f"{place}: resumed")] == ["finished"] * ranks
    assert differences(record(folder, f"{place}: whole"), record(folder, place)) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, *RANKS])
def test_another_number_of_ranks_goes_on_with_the_same_samples(trained: dict[int, Path], ranks: int, kind: str) -> None:
    assert [row.get("status", row) for row in told(trained[ranks], ranks, f"{kind} taken over")] == ["finished"] * ranks
    whole, taken = record(trained[1], f"{kind} alone"), trained[ranks] / "taken over" / kind
    assert [row for _, row in read_ledger(taken / "ledger.jsonl")] == [
        row for _, row in read_ledger(whole / "ledger.jsonl")
    ]
    ours, theirs = weights(whole), weights(taken)
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=0, atol=1e-9)
    numbers = [
        [value for row in comparable(r / "metrics.jsonl") for value in row["values"].values()] for r in (whole, taken)
    ]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-6)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_rank_that_fails_fails_the_run_and_the_record_says_where(trained: dict[int, Path], ranks: int) -> None:
    rows = told(trained[ranks], ranks, "failing")
    assert [row["status"] for row in rows] == ["failed"] * ranks
    assert all(row["seconds"] < 60 for row in rows)
    info = read_info(record(trained[ranks], "failing"))
    failed = rf"rank {ranks - 1}: ValueError: no such word; in epoch 1/\d, update 3, step 2"
    assert info["status"] == "failed"
    assert re.search(rf"{failed}, rank {ranks - 1}, samples \d+", info["reason"])


@pytest.mark.parametrize("ranks", [1, *RANKS])
def test_a_window_that_cannot_be_shared_is_refused(trained: dict[int, Path], ranks: int) -> None:
    window = told(trained[ranks], ranks, "odd window")[0]
    if ranks == 1:
        assert window["status"] == "finished"
    else:
        assert f"window = 7 cannot be divided among {ranks} processes; use a multiple of {ranks}" in window["reason"]


@pytest.mark.parametrize("ranks", [1, *RANKS])
def test_batch_norm_is_trained_and_evaluated(trained: dict[int, Path], ranks: int) -> None:
    assert [row["status"] for row in told(trained[ranks], ranks, "normed")] == ["finished"] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_gradients_are_sent_once_an_update(trained: dict[int, Path], ranks: int) -> None:
    for rank in range(ranks):
        rows = read(trained[ranks], "sent", rank)
        # five steps per epoch, three per update; the last one of an epoch is counted after the pipes
        assert [row["gradients"] for row in rows] == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4]
        assert [row["others"] for row in rows] == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("ranks", RANKS)
def test_only_the_first_rank_writes(trained: dict[int, Path], ranks: int) -> None:
    folders = [folder for folder in (trained[ranks] / "records").iterdir() if len(list(folder.iterdir())) != 1]
    assert folders == []
    notes = rows(record(trained[ranks], "global alone") / "notes.jsonl")
    assert [note["epoch"] for note in notes] == [0, 1, 2]
