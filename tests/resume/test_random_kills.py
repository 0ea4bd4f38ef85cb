"""Runs killed repeatedly at random moments end like uninterrupted ones."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from alchemy.records.status import read_info
from tests.resume.compare import differences
from tests.resume.conftest import Lab, text_of
from tests.resume.projects import PROJECTS

CPU = ("--device", "-1")
REFERENCES: dict[str, tuple[Path, float]] = {}  # by project: the record of an uninterrupted run, and its seconds
MOST = 3  # kills per run


def write(folder: Path, project: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cfg.toml").write_text(dumps(prepare_cfg(PROJECTS[project](folder / "runs"), seed=5)))
    return str(folder / "cfg.toml")


def reference(lab: Lab, project: str) -> tuple[Path, float]:
    if project not in REFERENCES:
        folder = lab.folder / project
        cfg, begin = write(folder, project), time.monotonic()
        assert lab.command(folder, "run", cfg, *CPU) == 0, text_of(folder)
        (record,) = finished(folder)
        REFERENCES[project] = record, time.monotonic() - begin
    return REFERENCES[project]


def finished(folder: Path) -> list[Path]:
    records = [file.parent for file in (folder / "runs").glob("*/record.json")]  # a run killed early may have none
    return [path for path in records if read_info(path)["status"] == "finished"]


def words(folder: Path, cfg: str, *, auto: bool) -> tuple[str, ...]:
    """Return the command that resumes the latest record; without `auto`, a run without a checkpoint starts over."""
    begun = sorted((folder / "runs").glob("*/cfg.toml"))
    if auto or not begun:
        return ("run", cfg, *CPU, *(("--resume", "auto") if auto else ()))
    return ("resume", str(begun[-1].parent), *CPU)


def killed(lab: Lab, folder: Path, project: str, draw: random.Random, *, auto: bool) -> int:
    """Return how often a run was killed before it ended."""
    whole, seconds = reference(lab, project)
    cfg, kills, wanted = write(folder, project), 0, draw.randint(1, MOST)
    while not finished(folder):  # a kill after the record was closed is too late
        after = draw.uniform(0, seconds) if kills < wanted else None
        code = lab.ask(folder / "log.txt", argv=words(folder, cfg, auto=auto), cwd=str(folder), kill=after)
        assert code == -signal.SIGKILL or (code == 0 and finished(folder)), text_of(folder)
        kills += code != 0
    (record,) = finished(folder)
    assert differences(whole, record) == []
    return kills


SAMPLE = [("stream", True), ("everything", False), ("optimizers", True)]
CASES = [pytest.param(project, auto, 1, id=project) for project, auto in SAMPLE] + [
    pytest.param(project, auto, 20, id=f"{project}-{'auto' if auto else 'resume'}", marks=pytest.mark.slow)
    for project in PROJECTS
    for auto in (False, True)
]


@pytest.mark.parametrize(("project", "auto", "least"), CASES)
def test_killed_at_random(lab: Lab, tmp_path: Path, project: str, auto: bool, least: int) -> None:
    draw, kills, runs = random.Random(f"{project} {auto}"), 0, 0
    while kills < least and runs < 5 * least:
        runs += 1
        kills += killed(lab, tmp_path / str(runs), project, draw, auto=auto)
    print(f"{project}{' --resume auto' if auto else ''}: {kills} kills in {runs} runs, all equal")
    assert kills >= least
