"""Entries are run in order, with the devices and the environment that they need."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.queue import (
    Attempt,
    Event,
    Needs,
    NewEntry,
    Queue,
    Slots,
    Worker,
    WorkerExists,
    attempts,
    stop_entry,
    supervisor,
)
from alchemy.queue.attempts import settle
from alchemy.queue.locked_file import SIZE
from alchemy.records.status import now
from tests.queue.commands import add, python, states, wait_until, work

PRINT = "import os; print(os.environ.get({!r}))"


def note(text):
    return f"open('out', 'a').write({text!r})"


def log_of(queue, id=1):
    """Return the output of an entry without the headers of its attempts."""
    lines = queue.path(id, "log").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("=== attempt"))


def test_entries_are_run_in_order(queue):
    add(queue, *(note(number) for number in "012"))
    events = work(queue)
    assert Path("out").read_text() == "012"
    assert states(queue) == ["done"] * 3
    assert [event.kind for event in events] == ["started", "ended"] * 3


def test_a_higher_priority_starts_first(queue):
    add(queue, note("a"), note("b"))
    add(queue, note("c"), priority=1)
    work(queue)
    assert Path("out").read_text() == "cab"


def test_slots_run_side_by_side(queue):
    # each one waits for the other
    code = "import os, time; open({!r}, 'w')\nwhile not os.path.exists({!r}): time.sleep(0.01)"
    add(queue, code.format("a", "b"), code.format("b", "a"))
    work(queue, slots=2)
    assert states(queue) == ["done", "done"]


def test_entries_added_while_the_worker_runs_are_found(queue):
    add(queue, "import time; time.sleep(0.2)")
    with Worker(queue) as worker:
        worker.step()
        add(queue, note("later"))
        while worker.list_remaining():
            worker.step(0.02)
    assert Path("out").read_text() == "later"


def test_words_folder_and_environment_arrive_unchanged(queue, tmp_path, monkeypatch):
    words = ["a b", "中文", "", "'\"$HOME*", "-x", "new\nline"]
    folder = tmp_path / "中 文"
    folder.mkdir()
    monkeypatch.setenv("ALCHEMY_TEST", "kept")
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ['ALCHEMY_TEST']]))"
    queue.add([NewEntry(argv=python(code, *words), cwd=str(folder))])
    monkeypatch.delenv("ALCHEMY_TEST")
    work(queue)
    assert eval(log_of(queue).rpartition("\n")[2]) == [words, str(folder), "kept"]


def test_chosen_variables_of_the_worker_do_not_leak_into_a_run(queue, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    add(queue, PRINT.format("PYTHONPATH"))
    monkeypatch.setenv("PYTHONPATH", "of the worker")
    work(queue)
    assert log_of(queue) == "None"


def test_threads_are_shared_and_stay_the_same(queue, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8))
    monkeypatch.setattr(attempts, "SHORTEST_PAUSE", 0.0)
    code = f"{PRINT.format('OMP_NUM_THREADS')}; raise SystemExit(not os.path.exists('again'))"
    add(queue, code, retries=1)
    with Worker(queue, Slots(2)) as worker:
        while queue.get(1).failures == 0:
            worker.step(0.02)
    Path("again").touch()
    work(queue, slots=4)
    assert log_of(queue) == "4\n4"


def test_a_run_that_has_the_cpu_for_itself_uses_as_many_threads_as_without_a_queue(queue, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    add(queue, "import os; print(os.environ.get('OMP_NUM_THREADS'))")
    work(queue)
    assert log_of(queue) == "None"


def test_an_entry_waits_for_those_it_names(queue):
    add(queue, note("a"), priority=-1)
    add(queue, note("b"), after=(1,))
    add(queue, "raise SystemExit(1)")
    add(queue, note("never"), after=(3,))
    work(queue)
    assert Path("out").read_text() == "ab"
    assert [queue.get(id).state for id in (1, 2, 3, 4)] == ["done", "done", "failed", "waiting"]


@pytest.mark.parametrize("after", [(7,), (1,)])
def test_an_unknown_entry_cannot_be_waited_for(queue, after):
    """So there are no cycles: an entry can name only those that exist."""
    with pytest.raises(AlchemyError, match=f"cannot wait for entry {after[0]}: there is none; see"):
        add(queue, "pass", after=after)
    assert queue.list() == []


def test_a_failure_is_retried_after_growing_pauses(queue, monkeypatch):
    monkeypatch.setattr(attempts, "SHORTEST_PAUSE", 0.05)
    add(queue, "import sys; sys.exit('no such word')", retries=2)
    ended = [event.entry for event in work(queue) if event.kind == "ended"]
    assert [(entry.state, entry.failures) for entry in ended] == [("waiting", 1), ("waiting", 2), ("failed", 3)]
    starts = [time.mktime(time.strptime(a.started[:19], "%Y-%m-%dT%H:%M:%S")) for a in ended[-1].attempts]
    assert starts == sorted(starts)
    assert ended[-1].reason == "exit code 1: no such word"
    assert "=== attempt 3" in queue.path(1, "log").read_text()


def test_a_usage_error_is_not_retried(queue):
    add(queue, "raise SystemExit(2)", retries=5)
    work(queue)
    assert len(queue.get(1).attempts) == 1


@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (("no-such-program",), "", "cannot start 'no-such-program' in .*: .*No such file"),
        (("true",), "gone", "cannot start 'true' in .*gone: .*No such file"),
        (("true", "a\0b"), "", "cannot start 'true' in .*: embedded null byte"),
    ],
)
def test_a_command_that_cannot_be_started_has_failed(queue, tmp_path, argv, cwd, reason):
    queue.add([NewEntry(argv=argv, cwd=str(tmp_path / cwd), retries=3)])
    work(queue)
    (entry,) = queue.list()
    assert (entry.state, entry.attempts[-1].exit_code) == ("failed", 127)
    assert re.match(reason, entry.reason), entry.reason


def test_a_time_limit_stops_a_run_for_good(queue, monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.1)
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    add(queue, stubborn, "import time; time.sleep(60)", retries=3, needs=Needs(seconds=0.2))
    work(queue, slots=2)
    first, second = queue.list()
    assert (first.state, first.attempts[-1].exit_code) == ("failed", -signal.SIGKILL)
    assert (second.state, second.attempts[-1].exit_code) == ("failed", -signal.SIGTERM)
    assert second.reason == "exceeded its time limit of 0.2 s"


def test_processes_that_a_command_leaves_behind_are_stopped(queue):
    add(queue, f"import subprocess; print(subprocess.Popen([{sys.executable!r}, '-c', 'input()'], stdin=-1).pid)")
    work(queue)
    wait_until(lambda: not Path(f"/proc/{log_of(queue)}/cmdline").exists() or _is_zombie(log_of(queue)))


def _is_zombie(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_second_worker_refuses(queue):
    with Worker(queue):
        message = f"already has a worker, process {os.getpid()}; wait until it has ended, or stop it with `alchemy"
        with pytest.raises(WorkerExists, match=message), Worker(Queue()):
            pass
    with Worker(queue):
        pass


def test_a_worker_ends_if_its_queue_is_deleted(queue):
    with Worker(queue) as worker:
        shutil.rmtree(queue.folder)
        with pytest.raises(AlchemyError, match=r"the queue .* was deleted; start the worker again"):
            worker.step()


def test_a_worker_of_a_group_leaves_the_others_alone(queue):
    add(queue, note("a"))
    add(queue, note("b"), group="mine")
    work(queue, group="mine")
    assert Path("out").read_text() == "b"
    assert [entry.group for entry in queue.list("mine")] == ["mine"]


def test_a_stopped_worker_puts_its_runs_back(queue):
    add(queue, "import time; print('here', flush=True); time.sleep(60)", note("a"))
    with Worker(queue) as worker:
        worker.step()
        wait_until(lambda: "here" in log_of(queue))
        worker.stop()
        while not worker.has_ended():
            worker.step(0.02)
    first, second = queue.list()
    assert (first.state, first.attempts[-1].outcome, first.then) == ("waiting", "stopped", "")
    assert (second.state, second.attempts) == ("waiting", ())


def test_an_ignored_interrupt_is_not_passed_on(queue):
    """A shell without job control starts its background jobs with SIGINT ignored."""
    add(queue, "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)")
    words = [sys.executable, "-m", "alchemy", "queue", "start", "--until-empty"]
    ignore = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    subprocess.run([sys.executable, "-c", ignore, *words], check=True, timeout=60, capture_output=True)
    assert log_of(queue) == "True"


def test_a_worker_without_input_and_output(queue):
    """Its locks and pipes must not get the numbers of the standard streams, which are those of the command."""
    add(queue, "import time; time.sleep(0.1); print('done')")
    words = [sys.executable, "-m", "alchemy", "queue", "start", "--until-empty"]
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words], check=False, timeout=60)
    assert (states(queue), log_of(queue)) == (["done"], "done")


def test_a_damaged_entry_is_reported_once_and_the_others_go_on(queue):
    add(queue, note("a"), note("b"), note("c"))
    queue.path(2).write_text("{")
    problems = [event.text for event in work(queue) if event.kind == "problem"]
    assert len(problems) == 1 and "ignoring the damaged entry" in problems[0] and "000002.json" in problems[0]
    assert Path("out").read_text() == "ac"


def test_a_long_error_does_not_spoil_the_next_status(queue):
    """Its file keeps its size, even if an earlier status was longer."""
    queue.add([NewEntry(argv=("\U0001f600\1" * 2000, "a\0b"))])
    work(queue)
    assert queue.get(1).reason.startswith("cannot start '\U0001f600")
    with open(queue.path(1, "attempt"), "a") as file:
        file.write("tail")
    queue.update(1, lambda entry: replace(entry, argv=("true",), state="waiting"))
    work(queue)
    assert [attempt.outcome for attempt in queue.get(1).attempts] == ["failed", "done"]
    assert queue.path(1, "attempt").stat().st_size == SIZE


@pytest.mark.parametrize("suffix", ["attempt", "log", "records"])
def test_an_entry_whose_files_cannot_be_used_is_passed_over(queue, suffix):
    add(queue, note("a"), note("b"), note("c"))
    queue.path(2, suffix).mkdir()
    problems = [event for event in work(queue) if event.kind == "problem"]
    assert Path("out").read_text() == "ac"
    assert [(event.entry.id, event.text) for event in problems] == [(2, queue.get(2).reason)]
    assert re.match(f"its files cannot be used: .*000002.{suffix}", queue.get(2).reason)
    queue.path(2, suffix).rmdir()
    work(queue)
    assert (Path("out").read_text(), queue.get(2).reason) == ("acb", "")


def test_a_running_entry_whose_files_cannot_be_used_does_not_stop_the_others(queue):
    add(queue, note("a"), note("b"))
    attempt = Attempt(number=1, started="", device=("cpu",))
    queue.update(1, lambda entry: replace(entry, state="running", attempts=(attempt,)))
    queue.path(1, "attempt").mkdir()
    work(queue, slots=2)
    assert (Path("out").read_text(), states(queue)) == ("b", ["running", "done"])
    assert stop_entry(queue, 1).then == "held"


def test_a_clock_that_was_set_back_delays_a_retry_no_longer_than_the_longest_pause(queue, monkeypatch):
    add(queue, note("a"))
    queue.update(1, lambda entry: replace(entry, not_before=time.time() + 1e6))
    with Worker(queue) as worker:
        worker.step(0)
    assert 0 < queue.get(1).not_before - time.time() <= attempts.LONGEST_PAUSE
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.0)
    work(queue)
    assert Path("out").read_text() == "a"


def test_a_worker_that_waits_takes_over_when_the_other_one_has_ended(queue):
    add(queue, note("a"), group="mine")
    events: list[Event] = []
    with Worker(queue, Slots(), "mine", events.append) as waiting:
        with Worker(queue, Slots(), "other") as other:
            other.step(0)
            assert not waiting.step(0) and not waiting.step(0)
            other.step(0)
        assert [event.text for event in events] == [f"waiting for the worker of the queue, process {os.getpid()}"]
        while waiting.list_remaining():
            waiting.step(0.02)
    assert Path("out").read_text() == "a"


def test_the_worker_of_a_group_says_who_runs_it(queue):
    events: list[Event] = []
    with Worker(queue), Worker(queue, Slots(), "mine", events.append) as waiting:
        assert not waiting.step(0)
    assert events[0].text == f"the runs are started by the worker of the queue, process {os.getpid()}"


def test_a_worker_leaves_the_entries_of_clusters_alone(queue):
    elsewhere, own = add(queue, "pass", on="slurm"), add(queue, "pass")
    attempt = Attempt(number=1, started=now(), device=("slurm",))
    queue.update(elsewhere[0].id, lambda entry: replace(entry, state="running", attempts=(attempt,)))
    events = work(queue)  # it would ask squeue
    assert {event.entry.id for event in events} == {own[0].id}
    assert states(queue) == ["running", "done"]


def test_a_worker_can_be_stopped_on_a_full_disk(queue, monkeypatch):
    add(queue, "import time; open('out', 'w').close(); time.sleep(60)")
    events: list[Event] = []
    with Worker(queue, on_event=events.append) as worker:
        worker.step(0)
        wait_until(Path("out").exists)
        with monkeypatch.context() as patch:
            patch.setattr(queue, "update", fail)
            worker.stop()
            wait_until(lambda: worker.step(0.02) or worker.has_ended())
    assert [event.text for event in events if event.text] == ["the disk is full"]
    with Worker(queue) as worker:  # the next worker reads how it ended
        worker.step(0)
    assert queue.get(1).attempts[0].outcome == "stopped"


def fail(id, change):
    raise AlchemyError("the disk is full")


def test_a_second_signal_right_after_the_first_one_leaves_no_run_behind(queue):
    add(queue, "import time; open('out', 'w').close(); time.sleep(60)")
    command = [sys.executable, "-m", "alchemy", "queue", "start"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        wait_until(Path("out").exists)
        for _ in range(2):
            worker.send_signal(signal.SIGINT)
            time.sleep(0.01)
        assert worker.wait(20) in (130, -signal.SIGINT)  # the latter if it has just closed the queue
    wait_until(lambda: queue.get(1).state == "waiting" or settle(queue, queue.get(1)))
    assert queue.get(1).attempts[0].outcome == "stopped"
