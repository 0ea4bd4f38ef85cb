"""Runs and sweeps as Slurm jobs: submitit's local executor, and a stand-in for sbatch and squeue."""

import json
import os
import signal

import pytest

from alchemy.queue import Queue
from alchemy.queue.locked_file import read_status
from alchemy.records.metrics_file import comparable
from tests.queue.commands import wait_until

pytest.importorskip("submitit", reason="needs submitit: pip install 'alchemy[slurm]'")
LONG = ["--device", "-1", "--set", "sched.epochs=100", "--set", "checkpoint.every=20"]
LOCAL = {"ALCHEMY_SLURM": "local"}


def preempt(queue: Queue, id: int) -> None:
    """Send the signal that Slurm sends before it takes the node away."""
    os.kill(read_status(queue.path(id, "attempt"))["keeper"], signal.SIGUSR2)


def has_checkpoint(queue: Queue, id: int) -> bool:
    return any(list(record.glob("state/u*/manifest.json")) for record in queue.records_of(id))


@pytest.mark.slow
def test_preempted_runs_resume_exactly(demo, alchemy):
    log_dir = "plugins.FileLogger.log_dir="
    alchemy("run", "train.toml", "--seeds", "1,2", *LONG, "--set", f"{log_dir}whole")
    words = ["run", "train.toml", "--seeds", "1,2", *LONG, "--on", "slurm", "--slurm", "time=10"]
    assert "submitted 2 as job local-" in alchemy(*words, "--set", f"{log_dir}preempted", **LOCAL)
    queue = Queue()
    wait_until(lambda: has_checkpoint(queue, 1), 60)
    preempt(queue, 1)
    wait_until(lambda: queue.path(1, "log").read_text().count("=== attempt 1") == 3, 60)  # submitted, started, resumed
    wait_until(lambda: "running" not in alchemy("queue", "ls", **LOCAL), 90)
    assert [(entry.state, len(entry.attempts)) for entry in queue.list()] == [("done", 1)] * 2
    assert [len(queue.records_of(id)) for id in (1, 2)] == [1, 1]
    rows = {str(record): comparable(record / "metrics.jsonl") for record in demo.glob("*/2*")}
    first = queue.records_of(1)[0]
    assert "resume" in (first / "metrics.jsonl").read_text() and len(rows) == 4
    for id, seed in ((1, 1), (2, 2)):
        record = queue.records_of(id)[0]
        (whole,) = (path for path in demo.glob("whole/*") if f"seed = {seed}\n" in (path / "cfg.toml").read_text())
        assert rows[str(record)] == rows[str(whole)] and rows[str(record)]


@pytest.mark.slow
def test_a_running_job_is_held_and_released(demo, alchemy):
    alchemy("run", "train.toml", *LONG, "--on", "slurm", **LOCAL)
    queue = Queue()
    wait_until(lambda: has_checkpoint(queue, 1), 60)
    alchemy("queue", "hold", "1", **LOCAL)
    wait_until(lambda: "held" in alchemy("queue", "ls", **LOCAL), 60)
    assert queue.get(1).attempts[-1].outcome == "stopped"
    alchemy("queue", "release", "1")
    assert "no worker submits runs; `alchemy queue start --on slurm`" in alchemy("queue", "ls")
    output = alchemy("queue", "start", "--on", "slurm", "--until-empty", **LOCAL)
    assert "1 done" in output and len(queue.records_of(1)) == 1


@pytest.mark.slow
def test_a_sweep_runs_as_jobs(demo, alchemy):
    words = ["--grid", "optim.lr=1e-3,1e-2", "--set", "sched.epochs=2", "--device", "-1", "--slots", "2"]
    assert "best: point" in alchemy("sweep", "train.toml", *words, "--on", "slurm", **LOCAL)
    entries = Queue().list()
    assert [(entry.state, entry.on, len(entry.attempts)) for entry in entries] == [("done", "slurm", 1)] * 2


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put commands on the path that behave like Slurm's: sbatch keeps the script, squeue prints a file."""
    folder = tmp_path / "slurm-bin"
    folder.mkdir()
    scripts = {
        "sbatch": f'cp "$1" {folder}/script; echo "Submitted batch job 4711"',
        "squeue": f"cat {folder}/jobs",
        "srun": "exit 0",
        "scancel": f'echo "$@" >> {folder}/cancelled',
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("ALCHEMY_SLURM", raising=False)
    return folder


@pytest.mark.slow
def test_several_runs_are_one_job_array(demo, alchemy, slurm):
    (demo / ".alchemy").mkdir(exist_ok=True)
    (demo / ".alchemy" / "config.toml").write_text('[slurm]\npartition = "cpu"\naccount = "lab"\n')
    options = ["--slurm", "partition=gpu", "--slurm", "gres=gpu:a100:1", "--slurm", "time=90"]
    output = alchemy("run", "train.toml", "--seeds", "1,2,3", "--on", "slurm", *options)
    assert "submitted 3 as job 4711_2" in output
    script = (slurm / "script").read_text().splitlines()
    for line in ("array=0-2%3", "partition=gpu", "account=lab", "gres=gpu:a100:1", "time=90", "signal=USR2@90"):
        assert f"#SBATCH --{line}" in script
    (slurm / "jobs").write_text("4711_0|RUNNING|None\n4711_1|PENDING|Priority\n4711_2|PENDING|Priority\n")
    listing = alchemy("queue", "ls")
    assert "job 4711_0: RUNNING" in listing and "job 4711_1: PENDING (Priority)" in listing
    alchemy("queue", "rm", "2", "--stop")
    assert (slurm / "cancelled").read_text() == "--state=PENDING 4711_1\n"


@pytest.mark.slow
def test_the_message_of_sbatch_is_shown(demo, alchemy, slurm):
    (slurm / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpux' >&2\nexit 1\n")
    output = alchemy("run", "train.toml", "--on", "slurm", "--slurm", "partition=gpux", code=1)
    assert "failed: Slurm has refused the job: invalid partition specified: gpux" in output
    assert json.loads(alchemy("queue", "ls", "--json"))[0]["state"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["partitoin=gpu"], "unknown option; did you mean 'partition'?"),
        (["time=1-00:00"], "--slurm time=1-00:00: expected minutes"),
        (["gpu"], "--slurm gpu: expected KEY=VALUE"),
        (["partition=gpu"], "there is no Slurm here: sbatch was not found"),
    ],
)
def test_mistakes_in_options_are_found_before_anything_is_submitted(demo, alchemy, options, message):
    output = alchemy("run", "train.toml", "--on", "slurm", "--slurm", *options, code=2, PATH="/usr/bin:/bin")
    assert message in output and not Queue().list()
