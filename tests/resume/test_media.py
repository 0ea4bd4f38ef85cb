"""Captured values and other media are the same after a kill and a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy.records.read_media import read_media
from tests.resume.conftest import Lab, kill_and_resume, record_of
from tests.resume.parts import config

SLOW = pytest.mark.slow
PIPES = [
    *config("")["sched"]["pipes"],
    {"type": "alchemy.pipeline.log_media.LogWeights", "every": 2},
    {"type": "alchemy.pipeline.log_media.LogGradients", "every": 3},
]
CHANGES = {"capture": {"modules": ["*"], "every": 2, "examples": 2}, "sched__pipes": PIPES}


@pytest.mark.parametrize(
    "place",
    [
        ("end_step", 7),
        pytest.param(("begin_epoch", 2), marks=SLOW),
        pytest.param(("end_step", 4), marks=SLOW),
        pytest.param(("end_epoch", 1), marks=SLOW),
    ],
)
def test_media_are_those_of_an_uninterrupted_run(lab: Lab, tmp_path: Path, place: tuple[str, int]) -> None:
    assert kill_and_resume(lab, tmp_path, place, CHANGES, CHANGES) == []
    names = {row["name"].partition("/")[0] for row in read_media(record_of(tmp_path))}
    assert names == {"capture", "weights", "gradients"}
