"""If one of two processes requests the end, or has unused parameters, all processes end the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alchemy.records.status import read_info
from tests.dist.alone import STEP
from tests.dist.parts import read
from tests.dist.start import torchrun
from tests.dist.work import record


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs, in one launch of two processes."""
    folder = tmp_path_factory.mktemp("alone")
    torchrun(2, "tests.dist.alone", folder)
    return folder


def told(folder: Path, name: str) -> list[dict[str, Any]]:
    return [next(row for row in read(folder, "told", rank) if row["name"] == name) for rank in (0, 1)]


# a request after the synchronization of an update takes effect in the next one
ENDS = {
    "pipe": (STEP + 1, "rank 1 has seen enough"),
    "listener": (STEP + 1, "the listener has heard enough"),
    "score": (4, "a score of rank 1"),
    "epoch": (4, "an epoch of rank 1"),
    "own rule": (STEP + 1, "a rule of rank 1"),
    "rule": (STEP, f"reached {STEP} updates"),
}


@pytest.mark.parametrize("name", ENDS)
def test_all_ranks_stop_at_the_same_update_and_know_the_reason(made: Path, name: str) -> None:
    last, reason = ENDS[name]
    assert [read(made / name, "updates", rank)[-1] for rank in (0, 1)] == [last, last]
    assert [(row["status"], row["reason"]) for row in told(made, name)] == [("finished", reason)] * 2
    assert read_info(record(made, name))["reason"] == reason


@pytest.mark.parametrize("name", ["all used, found", "unused, found", "all used, not looked for"])
def test_a_model_trains_whether_its_unused_parameters_are_looked_for_or_not(made: Path, name: str) -> None:
    assert [row["status"] for row in told(made, name)] == ["finished"] * 2


def test_unused_parameters_that_nobody_looks_for_are_an_error_that_names_the_setting(made: Path) -> None:
    rows = told(made, "unused, not looked for")
    assert [row["status"] for row in rows] == ["failed"] * 2
    reason = read_info(record(made, "unused, not looked for"))["reason"]
    assert "set find_unused_parameters = true in [ddp]" in reason
