"""Real trainings in the queue: killed, resumed, and equal to one that was never interrupted."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alchemy.queue import Queue
from alchemy.records.metrics_file import comparable
from alchemy.records.status import status_of
from tests.demo_project import open_demo
from tests.queue.commands import wait_until
from tests.queue.worker_process import WorkerProcess

LONG = ["--seeds", "1", "--device", "-1", "--set", "sched.epochs=60", "--set", "checkpoint.every=20"]


def alchemy(*words):
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "alchemy", *words]
    return subprocess.run(command, check=True, env=env, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture
def demo(tmp_path, monkeypatch):
    return open_demo(tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_killed_training_is_resumed_exactly(demo):
    alchemy("run", "train.toml", *LONG, "--set", "plugins.FileLogger.log_dir=whole")
    alchemy("queue", "add", "train.toml", *LONG, "--test", "--set", "plugins.FileLogger.log_dir=killed")
    queue = Queue()
    worker = WorkerProcess(queue)
    worker.start()
    wait_until(lambda: list(demo.glob("killed/*/state/u*/manifest.json")), 60)
    time.sleep(0.2)
    worker.kill("all")
    (record,) = queue.list_records(1)
    wait_until(lambda: status_of(record) == "killed")
    (entry,) = worker.finish(60)
    assert [attempt.outcome for attempt in entry.attempts] == ["lost", "done"]
    (whole,) = demo.glob("whole/*")
    assert queue.list_records(1)[0] == record and len(queue.list_records(1)) == 2  # the second is that of the test
    rows = comparable(record / "metrics.jsonl")
    assert any("resume" in line for line in (record / "metrics.jsonl").read_text().splitlines())
    assert rows == comparable(whole / "metrics.jsonl") and rows
