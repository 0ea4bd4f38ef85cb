"""Runs and sweeps as Slurm jobs: submitit's local executor, and a stand-in for sbatch and squeue."""

import json
import os
import signal
from pathlib import Path

import pytest

from alchemy.cluster import slurm_executor
from alchemy.queue import Needs, Queue, Slots, Worker
from alchemy.queue.attempts import settle
from alchemy.queue.executor import find_executor
from alchemy.queue.locked_file import read_status
from alchemy.records.metrics_file import comparable
from tests.queue.commands import add, wait_until

pytest.importorskip("submitit", reason="needs submitit: pip install 'alchemy[slurm]'")
LONG = ["--device", "-1", "--set", "sched.epochs=100", "--set", "checkpoint.every=20"]
LOCAL = {"ALCHEMY_SLURM": "local"}


def preempt(queue: Queue, id: int) -> None:
    """Send the signal that Slurm sends before it takes the node away."""
    os.kill(read_status(queue.path(id, "attempt"))["supervisor"], signal.SIGUSR2)


def has_checkpoint(queue: Queue, id: int) -> bool:
    return any(list(record.glob("state/u*/manifest.json")) for record in queue.list_records(id))


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
    assert [len(queue.list_records(id)) for id in (1, 2)] == [1, 1]
    rows = {str(record): comparable(record / "metrics.jsonl") for record in demo.glob("*/2*")}
    first = queue.list_records(1)[0]
    assert "resume" in (first / "metrics.jsonl").read_text() and len(rows) == 4
    for id, seed in ((1, 1), (2, 2)):
        record = queue.list_records(id)[0]
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
    assert "1 done" in output and len(queue.list_records(1)) == 1


@pytest.mark.slow
def test_a_sweep_runs_as_jobs(demo, alchemy):
    words = ["--grid", "optim.lr=1e-3,1e-2", "--set", "sched.epochs=2", "--device", "-1", "--slots", "2"]
    assert "best: point" in alchemy("sweep", "train.toml", *words, "--on", "slurm", **LOCAL)
    entries = Queue().list()
    assert [(entry.state, entry.on, len(entry.attempts)) for entry in entries] == [("done", "slurm", 1)] * 2


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put commands on the path that behave like Slurm's: sbatch keeps the script, squeue and sacct print files."""
    folder = tmp_path / "slurm-bin"
    folder.mkdir()
    scripts = {
        "sbatch": f'cp "$1" {folder}/script; echo "Submitted batch job 4711"',
        "squeue": f"cat {folder}/jobs",
        "sacct": f"cat {folder}/accounts",
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
    (slurm / "jobs").write_text("4711_0|CANCELLED|None\n4711_1|CANCELLED|None\n4711_2|PENDING|Priority\n")
    listing = alchemy("queue", "ls")
    assert "its Slurm job 4711_0 was cancelled" in listing and "4711_1" not in listing and listing.count("held") == 1


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


@pytest.fixture
def queue(slurm, tmp_path, monkeypatch):
    """A queue whose executor believes every answer of Slurm at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(slurm_executor, "FRESH_SECONDS", -1.0)
    monkeypatch.setattr(slurm_executor, "GONE_SECONDS", 0.0)
    find_executor.cache_clear()
    yield Queue()
    find_executor.cache_clear()


def submit(queue: Queue, *codes: str, **fields) -> None:
    add(queue, *codes, on="slurm", **fields)
    with Worker(queue, Slots(9, name="slurm"), on="slurm") as worker:
        worker.step()


def conclude(queue: Queue) -> tuple[str, str, str]:
    entry = settle(queue, queue.get(1)) or queue.get(1)
    return entry.attempts[-1].outcome, entry.state, entry.reason


CANCELLED = ("stopped", "held", "its Slurm job 4711 was cancelled")


@pytest.mark.parametrize(
    ("squeue", "sacct", "end"),
    [
        ("4711|CANCELLED|None", "", CANCELLED),
        ("", "JobID|State\n4711|CANCELLED by 1000", CANCELLED),
        ("4711|COMPLETING|None", "JobID|State\n4711|CANCELLED by 1000", ("", "running", "")),
        ("4711|PENDING|BeginTime", "JobID|State\n4711|PREEMPTED", ("", "running", "")),
        ("4711|PREEMPTED|None", "", ("lost", "waiting", "(PREEMPTED): no output")),
        ("", "JobID|State\n4711|NODE_FAIL", ("lost", "waiting", "(NODE_FAIL): no output")),
        ("", "JobID|State\n4711|RUNNING", ("lost", "waiting", "(gone): no output")),
        ("4711|FAILED|NonZeroExitCode", "", ("failed", "failed", "(FAILED): no output; do the compute nodes share")),
    ],
)
def test_what_becomes_of_a_job_that_has_not_started(queue, slurm, squeue, sacct, end):
    submit(queue, "pass")
    (slurm / "jobs").write_text(f"{squeue}\n")
    (slurm / "accounts").write_text(f"{sacct}\n")
    outcome, state, reason = conclude(queue)
    assert (outcome, state) == end[:2] and end[2] in reason


def test_what_a_job_has_written_about_its_end_stays(queue, slurm):
    submit(queue, "pass")
    (slurm / "jobs").write_text("4711|CANCELLED|None\n")
    queue.path(1, "attempt").write_text('{"attempt": 1, "exit_code": 0}')
    assert not find_executor("slurm").is_alive(queue, queue.get(1))
    assert conclude(queue) == ("done", "done", "")


def test_jobs_of_an_array_that_is_cancelled_before_it_starts(queue, slurm):
    submit(queue, "pass", "pass", "pass")
    (slurm / "jobs").write_text("4711_2|PENDING|Priority\n")
    (slurm / "accounts").write_text("JobID|State\n4711_[0-1%3]|CANCELLED by 1000\n4711_2|PREEMPTED\n")
    assert [(settle(queue, entry) or entry).state for entry in queue.list()] == ["held", "held", "running"]


@pytest.mark.parametrize(
    ("state", "outcome", "then"),
    [("CANCELLED", "stopped", "held"), ("PREEMPTED", "lost", "waiting"), ("PENDING", "", "running")],
)
def test_what_becomes_of_a_job_that_was_running(queue, slurm, state, outcome, then):
    run_jobs(slurm)
    (slurm / "jobs").write_text("4711|RUNNING|None\n")
    submit(queue, "import time; time.sleep(60)")
    path = queue.path(1, "attempt")
    wait_until(lambda: "pid" in read_status(path))
    os.kill(read_status(path)["supervisor"], signal.SIGTERM)  # as scancel and preemption do
    wait_until(lambda: "pid" not in read_status(path))
    (slurm / "jobs").write_text(f"4711|{state}|None\n")
    assert conclude(queue)[:2] == (outcome, then)


def test_the_time_limit_of_an_entry_ends_its_job(queue, slurm):
    run_jobs(slurm)
    submit(queue, "import time; time.sleep(60)", needs=Needs(seconds=0.1))
    wait_until(lambda: "exit_code" in read_status(queue.path(1, "attempt")))
    assert conclude(queue) == ("time limit", "failed", "exceeded its time limit of 0.1 s")


def run_jobs(slurm: Path, srun: str = 'exec "$@"') -> None:
    """Let sbatch run a job on this machine; `srun` is what srun does with a command."""
    start = f"SLURM_JOB_ID=4711 setsid sh {slurm}/script > /dev/null 2>&1 &"
    (slurm / "sbatch").write_text(f'#!/bin/sh\ncp "$1" {slurm}/script\n{start}\necho "Submitted batch job 4711"\n')
    output = 'out=$(echo "$3" | sed \'s/%j/4711/; s/%t/0/\'); exec >> "$out" 2>&1; shift 3'
    (slurm / "srun").write_text(f"#!/bin/sh\n{output}\n{srun}\n")


def test_the_output_of_a_job_that_cannot_start_is_the_cause(queue, slurm):
    message = "slurmstepd: error: execve(): /venv/bin/python: No such file or directory"
    run_jobs(slurm, f"echo '{message}'; echo 'srun: error: node1: task 0: Exited with exit code 2'; exit 2")
    submit(queue, "pass")
    output = queue.folder / "slurm" / "4711_0_log.out"
    wait_until(lambda: output.exists() and "srun" in output.read_text())
    (slurm / "jobs").write_text("4711|FAILED|NonZeroExitCode\n")
    cause = f"its Slurm job 4711 ended before the run started (FAILED): {message}"
    assert conclude(queue) == ("failed", "failed", cause)
    assert f"{message}\nsrun: error: node1" in queue.path(1, "log").read_text()


def test_files_of_ended_jobs_are_removed_when_others_are_submitted(queue, slurm, monkeypatch):
    monkeypatch.setattr(slurm_executor, "GONE_SECONDS", 60.0)
    folder = queue.folder / "slurm"
    folder.mkdir(parents=True)
    old = {"4600_submitted.pkl", "4600_0_log.out", "0a1b.pkl", ".submission_file_0a1b.sh"}
    for name in (*old, "4700_1_submitted.pkl"):
        (folder / name).touch()
    submit(queue, "pass")
    assert old < {path.name for path in folder.iterdir()}  # squeue does not answer
    (slurm / "jobs").write_text("4700_1|PENDING|Priority\n")
    (slurm / "sbatch").write_text("#!/bin/sh\necho 'Submitted batch job 4712'\n")
    submit(queue, "pass")  # entry 1 is still running, although its job is gone
    assert {path.name for path in folder.glob("*_submitted.pkl")} == {
        f"{job}_submitted.pkl" for job in ("4700_1", "4711", "4712")
    }
    assert not old & {path.name for path in folder.iterdir()}
