"""`alchemy queue`: from a config to its results, and everything that changes an entry."""

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from alchemy.cli import main
from alchemy.queue import Attempt, Queue, Worker
from alchemy.queue.locked_file import read_status
from alchemy.records.status import now
from tests.cli.run_command import run
from tests.queue.commands import add, wait_until

TORCHRUN = "torchrun --standalone --nproc-per-node 2"
SLEEP = "import time; print('he' + 're', flush=True); time.sleep(60)"  # the log has the command, too


@pytest.fixture
def queue(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Queue()


@pytest.fixture
def worker(queue):
    """A worker in its own process, with one entry that is running."""
    add(queue, SLEEP)
    words = [sys.executable, "-m", "alchemy", "queue", "start"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        wait_until(lambda: queue.path(1, "log").exists() and "here" in queue.path(1, "log").read_text())
        yield process
        process.terminate()
        process.communicate(timeout=20)


def test_one_entry_per_config_variant_and_seed(project, capsys):
    options = ["--seeds", "1,2", "--set", "optim.lr=1", "--test"]
    assert run(capsys, "queue", "add", "train.toml", "train.toml#tiny", *options).splitlines() == [
        "added 1: train.toml --seeds=1 --set=optim.lr=1 --test",
        "added 2: train.toml --seeds=2 --set=optim.lr=1 --test",
        "added 3: 'train.toml#tiny' --seeds=1 --set=optim.lr=1 --test",
        "added 4: 'train.toml#tiny' --seeds=2 --set=optim.lr=1 --test",
        "no worker is running; `alchemy queue start` starts one",
    ]
    assert Queue().get(1).argv[:5] == (sys.executable, "-m", "alchemy", "run", "train.toml")


def test_options_of_the_run_are_kept(project, capsys):
    words = ["--desc", "-a b", "--no-file", "--strict", "--processes", "2", "--overfit", "3"]
    assert "added 1" in run(capsys, "run", "train.toml", "--queue", *words)
    expected = {"train.toml", "--desc=-a b", "--no-file", "--strict", "--processes=2", "--overfit=3"}
    assert set(Queue().get(1).argv[4:]) == expected
    assert Queue().get(1).needs.devices == 2


def test_nothing_is_queued_if_a_config_is_wrong(project, capsys):
    Path("wrong.toml").write_text(Path("train.toml").read_text().replace("lr =", "lr_ ="))
    assert "lr_" in run(capsys, "queue", "add", "train.toml", "wrong.toml", code=2)
    assert Queue().list() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "0"], "a run in the queue has no --device: the worker chooses a free one"),
        (["--pdb"], "--pdb has no effect on runs in the queue or on a cluster; leave out --pdb"),
        (["--background"], "--background has no effect"),
        (["--resume", "auto"], "--resume has no effect"),
        (["--after", "9"], "cannot wait for entry 9: there is none"),
        (["--env", "NO_SUCH"], "--env NO_SUCH: there is no such environment variable"),
        (["--devices", "0"], "--devices must be at least 1"),
        (["--minutes", "-1"], "--minutes must be at least 0"),
        (["--minutes", "nan"], "--minutes must be a finite number, got nan"),
        (["--minutes", "inf"], "--minutes must be a finite number, got inf"),
    ],
)
def test_options_that_an_entry_cannot_have(project, capsys, words, message):
    assert message in run(capsys, "queue", "add", "train.toml", *words, code=2)
    assert Queue().list() == []


def test_any_command_with_its_needs(queue, capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "x")
    needs = ["--cpu", "--memory", "100", "--minutes", "1.5", "--retries", "2", "--priority", "3", "--env", "MY_KEY"]
    assert "added 1: echo --seeds '中 文'" in run(
        capsys, "queue", "add", *needs, "--hold", "--", "echo", "--seeds", "中 文"
    )
    entry = queue.get(1)
    assert (entry.argv, entry.state, entry.retries, entry.priority) == (("echo", "--seeds", "中 文"), "held", 2, 3)
    assert (entry.needs.devices, entry.needs.memory_mb, entry.needs.seconds, entry.env["MY_KEY"]) == (0, 100, 90, "x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.toml", "--", "true"], "expected configs or a command after --, got both"),
        (["--set", "a=1", "--", "true"], "--set=a=1 is an option of `alchemy run`, not of a command"),
        (["--", "alchemy", "run", "a.toml", "--strict"], "write: alchemy queue add a.toml --strict"),
        (["--"], "alchemy queue add: a command is missing after --; see 'alchemy queue add --help'"),
        (["--hold"], "alchemy queue add: expected configs, or a command after --"),
    ],
)
def test_a_command_is_not_mixed_up_with_a_run(queue, capsys, words, message):
    assert message in run(capsys, "queue", "add", *words, code=2)
    assert queue.list() == []


def test_secrets_are_hidden_in_listings(queue, capsys):
    words = ["--set", "hub.token=abc123", "--api-key", "def456", "https://me:ghi789@host/"]
    shown = run(capsys, "queue", "add", "--", "train", *words)
    shown += run(capsys, "queue", "ls") + run(capsys, "queue", "ls", "--json")
    assert "abc123" not in shown and "def456" not in shown and "ghi789" not in shown
    assert queue.get(1).argv[2] == "hub.token=abc123"


def test_the_queue_runs_and_says_why_something_failed(queue, capsys):
    add(queue, "pass")
    add(queue, "import sys; sys.exit('no such word')", "pass")
    run(capsys, "queue", "add", "--after", "2", "--", "true")
    out = run(capsys, "queue", "start", "--until-empty", "--device", "-1", code=1)
    assert "1 started on cpu: " in out and "1 done" in out
    assert "2 failed: exit code 1: no such word (log: .alchemy/queue/000002.log)" in out
    listed = run(capsys, "queue", "ls")
    assert "exit code 1: no such word" in listed and "waits for 2, which has failed" in listed
    assert "2 done; --all lists them" in listed and "no worker is running" in listed
    assert [row["id"] for row in json.loads(run(capsys, "queue", "ls", "--all", "--json"))] == [1, 2, 3, 4]
    assert run(capsys, "queue", "logs", "2").splitlines()[1:] == ["no such word"]


def test_entries_are_held_released_moved_and_removed(queue, capsys):
    add(queue, *["pass"] * 4)
    run(capsys, "queue", "hold", "1", "2")
    run(capsys, "queue", "release", "2")
    run(capsys, "queue", "move", "4", "--first")
    run(capsys, "queue", "move", "3", "--before", "2")
    assert [(entry.id, entry.state) for entry in queue.list()] == [
        (4, "waiting"), (1, "held"), (3, "waiting"), (2, "waiting")
    ]  # fmt: skip
    run(capsys, "queue", "move", "2", "--priority", "1")
    run(capsys, "queue", "move", "1", "--first")
    run(capsys, "queue", "rm", "4")
    assert [(entry.id, entry.priority) for entry in queue.list()] == [(1, 1), (2, 1), (3, 0)]


def test_an_entry_that_is_named_twice_is_removed_once(queue, capsys):
    add(queue, "pass", "pass", "pass")
    run(capsys, "queue", "start", "--until-empty")
    assert run(capsys, "queue", "rm", "2", "2", "--done") == "removed 2, 1, 3\n"


def test_entries_can_be_moved_any_number_of_times(queue, capsys):
    add(queue, "pass", "pass", "pass")
    for _ in range(40):
        for id, other in ((1, 3), (2, 3)):
            run(capsys, "queue", "move", str(id), "--before", str(other))
            assert [entry.id for entry in queue.list()] == [other - id, id, other]
    assert [entry.id for entry in add(queue, "pass")] == [queue.list()[-1].id]


def test_an_entry_that_is_done_cannot_be_moved(queue, capsys):
    add(queue, "pass")
    run(capsys, "queue", "start", "--until-empty")
    assert "entry 1 is done: there is nothing to move" in run(capsys, "queue", "move", "1", "--first", code=2)


def test_a_failed_entry_is_released_with_all_its_retries(queue, capsys):
    add(queue, "import os; os._exit(not os.path.exists('fixed'))")
    run(capsys, "queue", "start", "--until-empty", code=1)
    Path("fixed").touch()
    assert run(capsys, "queue", "release", "1") == "released 1\n"
    run(capsys, "queue", "start", "--until-empty")
    assert (queue.get(1).state, queue.get(1).failures) == ("done", 0)
    assert run(capsys, "queue", "rm", "--done") == "removed 1\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rm"], "nothing to remove; pass the numbers of entries, or --done"),
        (["rm", "2"], "there is no entry 2; see `alchemy queue ls --all`"),
        (["rm", "1", "2"], "there is no entry 2"),
        (["release", "2"], "there is no entry 2"),
        (["move", "1", "--before", "2"], "there is no entry 2"),
        (["move", "1", "--before", "1"], "entry 1 cannot start before itself; pass another entry to --before"),
        (["logs", "2"], "there is no entry 2"),
        (["stop"], "the queue has no worker; `alchemy queue start` starts one"),
        (["start", "--slots", "0"], "--slots must be at least 1"),
        (["add", "--minutes", "1e308", "--", "true"], "--minutes must be a finite number"),
        (["start", "--device", "7"], "no device 7: found 0 GPUs; use --device -1 for the CPU"),
    ],
)
def test_mistakes_are_one_line(queue, capsys, words, message):
    add(queue, "pass")
    out = run(capsys, "queue", *words, code=2)
    assert message in out and len(out.splitlines()) == 1
    assert [entry.state for entry in queue.list()] == ["waiting"]


def test_a_running_entry_is_held_and_resumed(queue, worker, capsys):
    assert "entry 1 is running; add --stop" in run(capsys, "queue", "rm", "1", code=2)
    assert "the queue already has a worker" in run(capsys, "queue", "start", code=2)
    run(capsys, "queue", "hold", "1")
    wait_until(lambda: queue.get(1).state == "held")
    run(capsys, "queue", "release", "1")
    wait_until(lambda: queue.get(1).state == "running")
    run(capsys, "queue", "rm", "1", "--stop")
    wait_until(lambda: queue.list() == [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_worker_and_its_runs(queue, worker, number):
    worker.send_signal(number)
    out, _ = worker.communicate(timeout=20)
    assert worker.returncode == 128 + number
    assert "1 stopped; starts again" in out
    assert queue.get(1).state == "waiting"


@pytest.mark.parametrize(("number", "state"), [(signal.SIGTERM, "held"), (signal.SIGKILL, "failed")])
def test_a_listing_shows_how_a_run_ended_after_its_worker_was_killed(queue, worker, capsys, number, state):
    worker.kill()
    worker.wait(20)
    assert json.loads(run(capsys, "queue", "ls", "--json"))[0]["state"] == "running"
    os.kill(read_status(queue.path(1, "attempt"))["pid"], number)
    wait_until(lambda: "exit_code" in read_status(queue.path(1, "attempt")))
    assert json.loads(run(capsys, "queue", "ls", "--json"))[0]["state"] == state


def test_stop_lets_runs_end_if_asked(queue, worker, capsys):
    add(queue, "pass")
    assert "ends when its runs have ended" in run(capsys, "queue", "stop", "--after-running")
    run(capsys, "queue", "hold", "1")
    assert worker.wait(20) == 0
    assert [entry.state for entry in queue.list()] == ["held", "waiting"]


def test_the_worker_can_be_detached_from_the_terminal(queue, capsys):
    out = run(capsys, "queue", "start", "--background")
    log = Path(out.splitlines()[1].removeprefix("log:").strip())
    wait_until(lambda: "running the queue" in log.read_text())
    run(capsys, "queue", "stop", "--wait", "20")
    os.waitpid(int(out.splitlines()[0].split()[-1]), 0)


def test_logs_follow_an_entry_until_it_ends(queue, worker, capsys):
    Path("hold.sh").write_text(f"sleep 0.3; {shlex.quote(sys.executable)} -m alchemy queue hold 1")
    with subprocess.Popen(["sh", "hold.sh"], stdout=subprocess.DEVNULL):
        assert run(capsys, "queue", "logs", "1", "-f").splitlines()[1:] == ["here"]


def test_a_damaged_entry_is_one_warning(queue, capsys):
    add(queue, "pass", "pass")
    queue.path(1).write_text("{")
    assert main(["queue", "ls"]) == 0
    out, err = capsys.readouterr()
    assert "000001.json" in err and len(err.splitlines()) == 1
    assert out.splitlines()[1].startswith("2 ")


def test_a_listing_shows_everything_an_entry_waits_for(queue, capsys):
    add(queue, "pass", "pass")
    run(capsys, "queue", "hold", "2")
    add(queue, "pass", after=(1, 2))
    assert "waits for 1; waits for 2, which is held" in run(capsys, "queue", "ls")


def test_a_long_command_is_shortened_in_a_listing(queue, capsys):
    add(queue, "pass  # " + "x" * 5000)
    line = run(capsys, "queue", "ls").splitlines()[1]
    assert len(line) < 200 and line.endswith("xxx…")
    assert len(json.loads(run(capsys, "queue", "ls", "--json"))[0]["run"]) > 5000


def test_the_help_of_add_shows_only_what_an_entry_can_have(capsys):
    out = run(capsys, "queue", "add", "--help")
    assert "alchemy queue add [options] -- COMMAND" in out and "--seeds" in out and "--retries" in out
    assert not any(name in out for name in ("--background", "--pdb", "--resume", "--print-command", "--queue"))


def test_a_deleted_working_directory_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for words in (["queue", "ls"], ["queue", "add", "--", "true"], ["run", "a.toml"], ["ls"]):
        out = run(capsys, *words, code=2)
        assert out == "error: the working directory was deleted; change to another folder\n"


def test_an_entry_whose_files_cannot_be_used_is_listed_and_removed(queue, capsys):
    add(queue, "pass")
    for suffix in ("attempt", "log", "records"):
        queue.path(1, suffix).mkdir()
    assert "its files cannot be used: [Errno 21] Is a directory" in run(capsys, "queue", "ls")
    assert "000001.log: it is not a regular file" in run(capsys, "queue", "logs", "1", code=2)
    assert run(capsys, "queue", "rm", "1") == "removed 1\n"
    assert run(capsys, "queue", "ls").startswith("the queue is empty")


def test_an_empty_queue(queue, capsys):
    assert run(capsys, "queue", "ls") == "the queue is empty; `alchemy queue add` adds runs\n"
    assert run(capsys, "queue", "start", "--until-empty").startswith("running the queue .alchemy/queue on the CPU")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--processes", "2", "--strict"], f"{TORCHRUN} -m alchemy run train.toml --strict"),
        (["--processes=2"], f"{TORCHRUN} -m alchemy run train.toml"),
        (["--desc", "a b"], "python -m alchemy run train.toml --desc 'a b'"),
    ],
)
def test_the_command_of_a_run_is_printed(project, capsys, words, command):
    assert run(capsys, "run", "train.toml", "--print-command", *words) == f"{command}\n"


def test_a_command_is_either_printed_or_added(project, capsys):
    out = run(capsys, "run", "train.toml", "--queue", "--print-command", code=2)
    assert "--print-command has no effect on runs in the queue or on a cluster" in out
    assert Queue().list() == []


def test_a_worker_of_a_group_is_named_to_those_it_does_not_serve(queue, capsys):
    with Worker(queue, group="sweep:lr") as worker:
        worker.step(0)
        add(queue, "pass")
        line = f"the worker, process {os.getpid()}, runs only sweep:lr; `alchemy queue start` starts another"
        assert line in run(capsys, "queue", "ls")
        for words in ([], ["--background"]):
            error = run(capsys, "queue", "start", *words, code=2)
            assert f"already has a worker, process {os.getpid()}, which runs only sweep:lr; wait until it" in error
    assert "--on local: unknown cluster; use slurm, ray" in run(capsys, "queue", "start", "--on", "local", code=2)


def test_an_entry_that_is_being_stopped_can_be_released(queue, capsys):
    (entry,) = add(queue, "pass", on="slurm")
    attempt = Attempt(number=1, started=now(), device=("slurm",))
    queue.update(entry.id, lambda entry: replace(entry, state="running", attempts=(attempt,)))
    assert "entry 1 is running: there is nothing to release" in run(capsys, "queue", "release", "1", code=2)
    queue.update(entry.id, lambda entry: replace(entry, then="held"))
    assert "released 1" in run(capsys, "queue", "release", "1")
    assert queue.get(1).then == "waiting"


def test_a_listing_has_no_columns_without_news(queue, capsys):
    add(queue, "pass")
    assert run(capsys, "queue", "ls").splitlines()[0].split() == ["id", "state", "run"]
    add(queue, "pass", priority=1, on="ray", after=(1,))
    assert run(capsys, "queue", "ls").splitlines()[0].split() == ["id", "state", "priority", "on", "run", "cause"]
