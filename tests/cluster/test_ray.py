"""Runs and sweeps on a Ray cluster that is started on this machine."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alchemy.cluster.ray_cluster import check_cluster
from alchemy.errors import AlchemyError
from alchemy.queue import Queue
from alchemy.records.metrics_file import comparable
from alchemy.records.status import status_of
from tests.queue.commands import wait_until

pytest.importorskip("ray", reason="needs ray: pip install 'alchemy[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.dist]
CPU = ["--device", "-1"]
LONG = [*CPU, "--seeds", "1", "--set", "sched.epochs=150", "--set", "checkpoint.every=20"]
LOG_DIR = "plugins.FileLogger.log_dir="


def start(*words: str) -> subprocess.Popen[bytes]:
    with open("output.txt", "ab") as output:
        return subprocess.Popen([sys.executable, "-m", "alchemy", *words], stdout=output, stderr=output)


def has_checkpoint(queue: Queue) -> bool:
    records = queue.list_records(1) if queue.path(1).exists() else []
    return any(list(record.glob("state/u*/manifest.json")) for record in records)


def find_actor(word: str) -> int:
    """Return the process of Ray that keeps the command with a word."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if word in (path / "cmdline").read_text() and "NodeProcess" in Path("/proc", parent, "cmdline").read_text():
                return int(parent)
    raise AssertionError(f"no process of Ray runs {word}")


def test_a_sweep_of_six_points(demo, alchemy):
    grid = ["--grid", "optim.lr=1e-3,1e-2,1e-1", "--grid", "model.hidden=16,32", "--name", "lr"]
    output = alchemy("sweep", "train.toml", *grid, *CPU, "--on", "ray", "--slots", "2")
    assert output.count("point ") >= 6 and "best: point" in output
    entries = Queue().list()
    assert [(entry.state, entry.on) for entry in entries] == [("done", "ray")] * 6
    points = json.loads(alchemy("sweep", "show", "lr", "--json"))["points"]
    assert len({tuple(point["point"].items()) for point in points}) == 6
    alchemy("sweep", "train.toml", *grid, *CPU, "--on", "ray")  # finished: runs nothing
    assert [len(entry.attempts) for entry in Queue().list()] == [1] * 6


def test_a_plain_command(demo, alchemy):
    alchemy("queue", "add", "--on", "ray", "--", "sh", "-c", "echo hello from $0; exit 75")
    alchemy("queue", "start", "--on", "ray", "--until-empty", code=1)
    assert "hello from sh" in alchemy("queue", "logs", "1")
    assert [attempt.outcome for attempt in Queue().get(1).attempts] == ["failed"]


def test_one_training_over_two_workers(demo, alchemy):
    words = ["run", "train.toml", "--seeds", "1", *CPU, "--processes", "2"]
    alchemy(*words, "--set", f"{LOG_DIR}here")
    alchemy(*words, "--set", f"{LOG_DIR}ray", "--on", "ray")
    (here,), (there,) = demo.glob("here/*"), demo.glob("ray/*")
    assert comparable(there / "metrics.jsonl") == comparable(here / "metrics.jsonl")
    assert json.loads((there / "env.json").read_text())["processes"] == 2


@pytest.mark.parametrize("copied", [0, 1], ids=["shared", "copied"])
def test_a_lost_worker_is_replaced(demo, alchemy, copied):
    alchemy("run", "train.toml", *LONG, "--set", f"{LOG_DIR}whole")
    options = ["--set", f"{LOG_DIR}lost", "--desc", demo.name, "--on", "ray", "--ray", f"copy={copied}"]
    command = start("run", "train.toml", *LONG, *options)
    queue = Queue()
    wait_until(lambda: has_checkpoint(queue), 90)
    os.kill(find_actor(f"--desc={demo.name}"), signal.SIGKILL)
    assert command.wait(120) == 0, Path("output.txt").read_text()
    assert [attempt.outcome for attempt in queue.get(1).attempts] == ["lost", "done"]
    (record,), (whole,) = demo.glob("lost/*"), demo.glob("whole/*")
    assert queue.list_records(1) == [record] and "resume" in (record / "metrics.jsonl").read_text()
    assert comparable(record / "metrics.jsonl") == comparable(whole / "metrics.jsonl")


def test_an_interrupted_run_saves_its_state_and_continues(demo, alchemy):
    words = [*LONG, "--set", "sched.epochs=400"]  # time enough to be interrupted
    command = start("run", "train.toml", *words, "--on", "ray", "--ray", "copy=1")
    queue = Queue()
    wait_until(lambda: has_checkpoint(queue), 90)
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130, Path("output.txt").read_text()
    (record,) = queue.list_records(1)
    assert queue.get(1).state == "waiting" and status_of(record) == "stopped"
    assert "1 done" in alchemy("queue", "start", "--on", "ray", "--until-empty")
    assert queue.list_records(1) == [record] and status_of(record) == "finished"


def is_reachable(address: str) -> bool:
    with contextlib.suppress(AlchemyError):
        check_cluster(address)
        return True
    return False


@pytest.fixture
def client_server(monkeypatch, tmp_path):
    """Start a cluster and its server for clients; return its address."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"port": 0, "ray-client-server-port": port, "num-cpus": 2, "object-store-memory": 80_000_000}
    words = [f"--{name}={value}" for name, value in options.items()]
    head = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--include-dashboard=false"]
    cluster = subprocess.Popen([*head, *words, "--disable-usage-stats"], stdout=subprocess.DEVNULL, cwd=tmp_path)
    wait_until(lambda: is_reachable(f"ray://127.0.0.1:{port}"), 60)
    yield f"ray://127.0.0.1:{port}"
    cluster.terminate()  # it ends what it has started
    cluster.wait(60)


def test_runs_on_a_cluster_that_is_there(demo, alchemy, client_server):
    output = alchemy("run", "train.toml", *CPU, "--seeds", "1,2", "--on", client_server, "--ray", "copy=1")
    assert "2 done" in output and [status_of(record) for record in demo.glob("records/*/*")] == ["finished"] * 2


def test_needs_that_no_node_can_satisfy(demo, alchemy):
    output = alchemy("run", "train.toml", *CPU, "--on", "ray", "--ray", "gpus=1", code=1)
    assert "with 1 GPU each: it has at most 0 GPU on a node" in output
    assert Queue().get(1).state == "failed"


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, to mount a small disk without root")
def test_a_full_disk_on_the_worker(demo, alchemy):
    (demo / "disk").mkdir()
    (demo / "large").write_bytes(bytes(2**20))
    small = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=256k none disk && exec "$@"']
    if subprocess.run([*small, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    command = [sys.executable, "-m", "alchemy", "run", "train.toml", *CPU, "--on", "ray", "--ray", "copy=1"]
    env = {**os.environ, "TMPDIR": str(demo / "disk"), "RAY_TMPDIR": "/tmp"}
    with open("output.txt", "w+") as output:
        assert subprocess.run([*small, "sh", *command], stdout=output, stderr=output, env=env).returncode == 1
    text = Path("output.txt").read_text()
    assert "the Ray cluster cannot run it: " in text and "No space left on device" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ray://127.0.0.1:9"], "cannot reach the Ray cluster ray://127.0.0.1:9: [Errno 111] Connection refused"),
        (["ray://head"], "--on ray://head: expected ray://HOST:PORT"),
        (["rey"], "--on rey: unknown cluster; use slurm, ray, or ray://HOST:PORT"),
        (["ray", "--ray", "cpu=2"], "--ray cpu=2: unknown option 'cpu'; did you mean 'cpus'?"),
        (["ray", "--ray", "cpus=two"], "--ray cpus=two: expected a number"),
    ],
)
def test_mistakes_are_found_before_anything_is_added(demo, alchemy, words, message):
    began = time.monotonic()
    assert message in alchemy("run", "train.toml", "--on", *words, code=2)
    assert not Queue().list() and time.monotonic() - began < 10
