"""Run all children of these tests from one process, and compare interrupted runs with uninterrupted ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from tests.resume.compare import differences
from tests.resume.parts import config

ROOT = Path(__file__).parents[2]


class Lab:
    """Runs in children of one process; a baseline is made once for each config."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder = process, folder
        self.seen: dict[str, int] = {}  # places that the last child passed
        self._made = 0
        self._baselines: dict[str, tuple[Path, dict[str, int]]] = {}

    def ask(self, log: Path, **job: Any) -> int:
        """Return the exit code of a child, or minus the signal that ended it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({**job, "log": str(log)}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.seen = answer["seen"]
        return int(answer["code"])

    def start(self, folder: Path, bombs: list[Any] = [], faults: list[str] = [], **changes: Any) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        return self.ask(
            folder / "log.txt", cfg=config(str(folder / "runs"), **changes), bombs=list(bombs), faults=list(faults)
        )

    def resume(self, folder: Path, bombs: list[Any] = [], faults: list[str] = [], **options: Any) -> int:
        return self.ask(
            folder / "log.txt", record=str(record_of(folder)), bombs=list(bombs), faults=list(faults), options=options
        )

    def command(self, folder: Path, *words: str, bombs: list[Any] = [], cwd: Path | None = None, **job: Any) -> int:
        """Return the exit code of `alchemy WORDS`, with the output in log.txt."""
        return self.ask(folder / "log.txt", argv=list(words), bombs=list(bombs), cwd=str(cwd or folder), **job)

    def write(self, folder: Path, **changes: Any) -> str:
        """Write a config file, for commands."""
        path = folder / "cfg.toml"
        path.write_text(dumps(prepare_cfg(config(str(folder / "runs"), **changes))))
        return str(path)

    def baseline(self, **changes: Any) -> tuple[Path, dict[str, int]]:
        """Return the record of an uninterrupted run, and how often it passed each place."""
        key = json.dumps(changes, sort_keys=True)
        if key not in self._baselines:
            self._made += 1
            folder = self.folder / f"baseline-{self._made}"
            assert self.start(folder, **changes) == 0, text_of(folder)
            self._baselines[key] = record_of(folder), dict(self.seen)
        return self._baselines[key]


def kill_and_resume(
    lab: Lab, folder: Path, place: tuple[str, int], changes: dict[str, Any], reference: dict[str, Any]
) -> list[str]:
    """Kill a run at a place, resume it, and return how it differs from an uninterrupted run of another config."""
    baseline, seen = lab.baseline(**reference)
    assert seen[place[0]] >= place[1]
    bombs = [[*place, signal.SIGKILL]]
    assert lab.start(folder, bombs, **changes, checkpoint__asynchronous=False) == -signal.SIGKILL
    assert lab.resume(folder) == 0, text_of(folder)
    return differences(baseline, record_of(folder))


def record_of(folder: Path) -> Path:
    (record,) = (folder / "runs").iterdir()
    return record


def text_of(folder: Path) -> str:
    return (folder / "log.txt").read_text()[-4000:]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    command = [sys.executable, "-m", "tests.resume.zygote"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder = tmp_path_factory.mktemp("resume")
    with (
        open(folder / "zygote.txt", "w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=env
        ) as process,
    ):
        assert process.stdout is not None and json.loads(process.stdout.readline())["ready"]
        yield Lab(process, folder)
        assert process.stdin is not None
        process.stdin.close()
