"""Kill the worker, supervisors, commands or everything, at any moment, and look at the entries and the ledger."""

import sys
import time
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.queue import NewEntry, Queue
from alchemy.queue.locked_file import read_status
from alchemy.records.status import is_alive
from tests.queue.commands import wait_until
from tests.queue.worker_process import WorkerProcess, read_ledger, write_programs

VICTIMS = ("worker", "supervisor", "command", "all")


def check_history(folder, kills, slots):
    """Run six programs while processes are killed, and check that each was run as promised."""
    write_programs(folder)
    queue = Queue(folder / "queue")
    names = ["p1", "r1", "s1", "r2", "p2", "s2"]
    plain, run = str(folder / "bin" / "plain.py"), str(folder / "bin" / "alchemy")
    argv = {"p": (sys.executable, "-IS", plain), "s": (sys.executable, "-IS", plain), "r": (run, "run")}
    queue.add([NewEntry(argv=(*argv[name[0]], name, "0.03"), cwd=str(folder), retries=99) for name in names])
    worker = WorkerProcess(queue, slots)
    for seconds, victim in kills:
        worker.start()
        time.sleep(seconds)
        worker.kill(victim)
    entries, ledger = worker.finish(), read_ledger(folder)
    counts = Counter(ledger)
    # nothing is lost, and nothing ran twice at the same time
    assert [entry.state for entry in entries] == ["done"] * 6
    assert not {event for _, event in ledger} & {"twice", "again"}
    for name, entry in zip(names, entries):
        outcomes = [attempt.outcome for attempt in entry.attempts]
        assert [attempt.number for attempt in entry.attempts] == list(range(1, len(outcomes) + 1))
        assert counts[name, "start"] <= len(outcomes)
        # what was completed is never run again; a run says so in its record, even if it is killed right after that
        assert outcomes[-1] == "done" and set(outcomes[:-1]) <= {"lost", "failed"}, name
        if name.startswith("r"):
            assert counts[name, "end"] <= 1, name
            assert counts[name, "record"] <= 1, name  # a retry resumes the record
    if slots == 1:  # in order: each one is done before the next one starts
        assert list(dict.fromkeys(name for name, event in ledger if event == "start")) == names


def test_a_killed_worker_is_replaced(tmp_path):
    check_history(tmp_path, [(0.2, "worker"), (0.1, "worker")], slots=2)


def test_everything_is_killed(tmp_path):
    check_history(tmp_path, [(0.2, "all"), (0.15, "all")], slots=1)


@pytest.mark.parametrize("victim", ["supervisor", "command"])
def test_a_keeper_or_a_command_is_killed(victim, tmp_path):
    check_history(tmp_path, [(0.2, victim), (0.05, victim), (0.05, victim)], slots=2)


def run_until_started(folder, name, seconds):
    """Run one program, and return its worker once it has been started."""
    write_programs(folder)
    queue = Queue(folder / "queue")
    argv = (sys.executable, "-IS", str(folder / "bin" / "plain.py"), name, seconds)
    queue.add([NewEntry(argv=argv, cwd=str(folder))])
    worker = WorkerProcess(queue)
    worker.start()
    wait_until(lambda: (name, "start") in read_ledger(folder))
    return worker


def test_a_command_that_outlives_its_keeper_is_not_started_again_before_it_has_ended(tmp_path):
    worker = run_until_started(tmp_path, "s1", "0.3")
    worker.kill("supervisor")
    (entry,) = worker.finish()
    assert [attempt.outcome for attempt in entry.attempts] == ["lost", "done"]
    assert [event for _, event in read_ledger(tmp_path)] == ["start", "end", "start", "end"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_a_command_ends_with_its_keeper(tmp_path):
    worker = run_until_started(tmp_path, "p1", "60")
    command = read_status(worker.queue.path(1, "attempt"))
    worker.kill("supervisor")
    wait_until(lambda: not is_alive(command))
    worker.kill("all")


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    kills=st.lists(st.tuples(st.floats(0, 0.4), st.sampled_from(VICTIMS)), min_size=1, max_size=6),
    slots=st.integers(1, 3),
)
def test_any_history_of_kills(kills, slots, tmp_path_factory):
    check_history(tmp_path_factory.mktemp("history"), kills, slots)
