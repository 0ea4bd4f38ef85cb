"""The GAN that `alchemy new --kind gan` writes resumes exactly: two networks, an average, pictures."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.resume.compare import differences
from tests.resume.conftest import Lab, text_of
from tests.resume.gan_project import RUN, record_in, write

KILL = signal.SIGKILL
SAMPLES = "media/images/dev/samples"


@pytest.fixture(scope="session")
def baseline(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of an uninterrupted run without workers."""
    folder = write(tmp_path_factory.mktemp("gan") / "project")
    assert lab.command(folder, *RUN) == 0, text_of(folder)
    return record_in(folder)


@pytest.mark.parametrize("place", [("row", 3), pytest.param(("disk", 30), marks=pytest.mark.slow)])
@pytest.mark.parametrize("workers", [0, 2])
def test_it_resumes_exactly(lab: Lab, baseline: Path, tmp_path: Path, place: tuple[str, int], workers: int) -> None:
    folder = write(tmp_path / "project")
    used = f"--set=task.datasets.train.num_workers={workers}"
    assert lab.command(folder, *RUN, used, bombs=[[*place, KILL]]) == -KILL, text_of(folder)
    assert lab.command(folder, "resume", str(record_in(folder)), "--device", "-1") == 0, text_of(folder)
    assert differences(baseline, record_in(folder)) == []
    names = [path.name for path in sorted((baseline / SAMPLES).iterdir())]
    assert names == ["u3.png", "u6.png", "u8.png"]
    for name in names:
        assert (baseline / SAMPLES / name).read_bytes() == (record_in(folder) / SAMPLES / name).read_bytes()
