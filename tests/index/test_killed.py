"""Indexers that are killed, interrupted, or run at the same time leave an index that is equal to a new one."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alchemy.records.readme import set_purpose
from tests.analysis.fake_runs import write_run
from tests.index.contents import read_contents

ROOT = Path(__file__).parents[2]


def start(*words: str) -> subprocess.Popen[str]:
    """Start an indexer that waits for `go`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.index.indexer", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def write_records(project: Path, count: int) -> list[Path]:
    return [project / write_run(project, number, {"dev/f1": number / count}, {"lr": number}) for number in range(count)]


def kill_at_random(project: Path, kills: int, seed: int, count: int = 150) -> None:
    draw, folders = random.Random(seed), write_records(project, count)
    for number in range(kills):
        for folder in draw.sample(folders, count // 3):
            set_purpose(folder, f"focal {number}")
        process = start(*draw.choice([(), ("rebuild",), ("fork",)]))
        go(process)
        time.sleep(draw.uniform(0, 0.4))
        process.kill()
        process.communicate()
    found = read_contents()
    assert len(found["records"]) == count
    assert found == read_contents(rebuild=True)


def test_killed_at_random(project: Path) -> None:
    kill_at_random(project, 3, seed=0, count=40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_killed_often(project: Path, seed: int) -> None:
    kill_at_random(project, 20, seed)


def test_several_indexers_at_once(project: Path) -> None:
    write_records(project, 40)
    processes = [start(), start("fork"), start("rebuild")]
    for process in processes:
        go(process)
    ends = [(*process.communicate(timeout=120), process.returncode) for process in processes]
    for output, errors, code in ends:
        assert (code, errors) == (0, "")
        assert 0 <= int(output) <= 40  # another process may have just cleared the index to rebuild it
    found = read_contents()
    assert len(found["records"]) == 40
    assert found == read_contents(rebuild=True)


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            found += [int(path.parent.name)] if int(words[1]) == pid and words[0] != "Z" else []
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_reading_processes_end_with_the_indexer(local_project: Path, number: int) -> None:
    write_records(local_project, 400)
    process = start("fork")
    go(process)
    readers: list[int] = []
    while not readers and process.poll() is None:
        readers = children(process.pid)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert readers and "BrokenPipe" not in errors
    end = time.monotonic() + 60
    while any(Path(f"/proc/{reader}").exists() and reader in children(1) for reader in readers):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ctrl_c_leaves_one_line_at_most(local_project: Path) -> None:
    write_records(local_project, 400)
    words = [sys.executable, "-m", "alchemy", "index"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    while not (local_project / ".alchemy" / "index.db").exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode in (0, 130), output
    assert len(output.splitlines()) <= 1
    assert len(read_contents()["records"]) == 400
