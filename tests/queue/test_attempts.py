"""What an attempt runs, and the next state of its entry: resumed, retried, held, or done."""

import json
from dataclasses import replace

import pytest

from alchemy.queue import Attempt, Entry, Needs, Worker, stop_entry
from alchemy.queue.attempts import End, conclude, plan_command, settle
from alchemy.queue.executor import LocalExecutor
from alchemy.records import Record
from alchemy.records.status import boot_id
from tests.queue.commands import add, work

RUN = ("python", "-m", "alchemy", "run", "a.toml", "--user-dir=src")


def started(**fields):
    attempt = Attempt(number=1, started="", device=("cpu",), boot_id=boot_id())
    values = {"argv": RUN, "cwd": "", "env": {}, "id": 1, "added": "", "position": 1.0, "attempts": (attempt,)}
    return Entry(**{**values, "state": "running", **fields})


def make_record(folder, status, *, checkpoint=True, **fields):
    record = Record.create(folder, name="x", tag="x", files={"cfg.toml": ""}, **{"versions": {"torch": "2"}, **fields})
    record.finish(status)
    if checkpoint:
        (record.path / "state" / "u1").mkdir(parents=True)
    return record.path


@pytest.mark.parametrize(
    ("end", "fields", "outcome", "state"),
    [
        (End(0, ""), {}, "done", "done"),
        (End(0, ""), {"then": "held"}, "done", "done"),
        (End(0, ""), {"then": "removed"}, "done", "removed"),
        (End(1, ""), {}, "failed", "failed"),
        (End(1, ""), {"retries": 1}, "failed", "waiting"),
        (End(1, ""), {"retries": 1, "failures": 1}, "failed", "failed"),
        (End(2, ""), {"retries": 1}, "failed", "failed"),
        (End(-9, ""), {"retries": 1}, "failed", "waiting"),
        (End(-9, "", finished=True), {}, "done", "done"),
        (End(143, ""), {}, "stopped", "held"),
        (End(143, ""), {"then": "waiting"}, "stopped", "waiting"),
        (End(130, ""), {"then": "held"}, "stopped", "held"),
        (End(143, "", timed_out=True), {"retries": 1}, "time limit", "failed"),
        (End(None, ""), {}, "lost", "waiting"),
        (End(None, ""), {"then": "held"}, "stopped", "held"),
        (End(None, "", finished=True), {}, "done", "done"),
        (End(None, "", cancelled=True), {"retries": 1}, "stopped", "held"),
        (End(None, "", cancelled=True), {"then": "waiting"}, "stopped", "waiting"),
        (End(75, ""), {"on": "ray://head:10001"}, "lost", "waiting"),
        (End(75, ""), {"on": "slurm"}, "failed", "failed"),
        (End(75, ""), {}, "failed", "failed"),
        (End(1, ""), {"retries": 9999, "failures": 5000}, "failed", "waiting"),
    ],
)
def test_the_next_state_of_an_entry(end, fields, outcome, state):
    entry = conclude(started(**fields), end, 1)
    assert (entry.attempts[-1].outcome, entry.state, entry.then) == (outcome, state, "")


def test_a_run_that_a_shutdown_has_stopped_goes_back_into_the_queue():
    entry = started()
    before = replace(entry, attempts=(replace(entry.attempts[0], boot_id="before"),))
    assert conclude(before, End(143, ""), 1).state == "waiting"


def test_an_attempt_is_concluded_once():
    entry = started(state="waiting")
    assert conclude(entry, End(1, ""), 1) is entry
    assert conclude(started(), End(1, ""), 2) == started()


def test_pauses_grow_if_an_attempt_fails_or_is_lost_again_and_again(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 0.0)
    pauses = []
    for code in (1, None):
        entry = started(retries=99)
        for number in range(1, 5):
            entry = conclude(entry, End(code, ""), number)
            pauses.append(entry.not_before)
            again = Attempt(number=number + 1, started="", device=("cpu",))
            entry = replace(entry, state="running", attempts=(*entry.attempts, again))
    assert pauses == [10, 20, 40, 80, 0, 10, 20, 40]


@pytest.mark.parametrize("status", ["failed", "stopped", "killed"])
def test_a_retry_resumes_the_record(tmp_path, status):
    record = make_record(tmp_path, status)
    assert plan_command(started(), [record]) == (*RUN, "--resume", str(record))


@pytest.mark.parametrize("status", ["failed", "killed"])
def test_a_run_without_a_checkpoint_starts_from_the_beginning(tmp_path, status):
    assert plan_command(started(), [make_record(tmp_path, status, checkpoint=False)]) == RUN


def test_a_finished_record_is_never_run_again(tmp_path):
    record = make_record(tmp_path, "finished")
    assert plan_command(started(), [record]) is None
    testing = (*RUN, "--test")
    assert plan_command(started(argv=testing), [record]) == (*testing, "--resume", str(record))


def test_a_sanity_check_starts_from_the_beginning(tmp_path):
    argv = (*RUN, "--overfit=2")
    assert plan_command(started(argv=argv), [make_record(tmp_path, "killed")]) == argv


def test_other_records_are_not_resumed(tmp_path):
    """Those of evaluations, of runs that were killed before they trained, and damaged ones."""
    early = make_record(tmp_path / "1", "failed", versions={})
    test = make_record(tmp_path / "2", "failed", kind="test")
    damaged = make_record(tmp_path / "3", "failed")
    (damaged / "record.json").write_text("{")
    assert plan_command(started(), [early, test, damaged]) == RUN
    assert plan_command(started(argv=("python", "x.py")), [make_record(tmp_path / "4", "failed")]) == ("python", "x.py")


@pytest.mark.parametrize(
    ("ended", "reason"),
    [("9999", "ValueError: no such word"), ("2000", "exit code 1")],
    ids=["this attempt", "an earlier attempt"],
)
def test_the_cause_is_that_of_the_record(queue, tmp_path, ended, reason):
    info = json.loads((make_record(tmp_path, "failed") / "record.json").read_text())
    failed = {"reason": "ValueError: no such word", "ended": ended}
    (tmp_path / "x" / "record.json").write_text(json.dumps(info | failed))
    add(queue, f"import os; open(os.environ['ALCHEMY_QUEUE_RECORDS'], 'a').write({str(tmp_path / 'x')!r}); os._exit(1)")
    work(queue)
    assert queue.get(1).reason == reason
    assert queue.list_records(1) == [tmp_path / "x"]


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["error: a.toml:1 unknown key 'x'", "error: a.toml:2 unknown key 'y'", "2 errors, 0 warnings"], "a.toml:2 un"),
        (
            ["20:10:46 ERROR   a.toml failed: no such word", "", "experiment  status", "a.toml  failed"],
            "a.toml failed: no",
        ),
        (["error: trying again", "Traceback", "  raise ..", "ValueError: no such word"], "ValueError: no"),
        (["one", "two"], "two"),
    ],
)
def test_the_cause_is_the_last_error_of_the_log(queue, lines, cause):
    add(queue, f"import sys; sys.exit({chr(10).join(lines)!r})")
    work(queue)
    assert queue.get(1).reason.startswith(f"exit code 1: {cause}")


def test_an_attempt_has_not_ended_while_its_record_is_written_to(queue, tmp_path):
    """Of several processes, those that train may outlive the one that has started them."""
    add(queue, "pass")
    queue.update(1, lambda entry: started())
    record = Record.create(tmp_path, name="x", tag="x", files={"cfg.toml": ""}, versions={"torch": "2"})
    queue.path(1, "records").write_text(f"{record.path}\n")
    assert settle(queue, queue.get(1)) is None and not LocalExecutor().describe(queue, queue.get(1))
    record.finish("finished")
    assert settle(queue, queue.get(1)).state == "done"


def test_holding_a_running_entry_stops_it(queue):
    add(queue, "import time; print(1, flush=True); time.sleep(60)")
    with Worker(queue) as worker:
        worker.step()
        stop_entry(queue, 1)  # perhaps before its command has been started
        while worker.list_running():
            worker.step(0.02)
    assert (queue.get(1).state, queue.get(1).attempts[-1].outcome) == ("held", "stopped")
    assert queue.get(1).reason == "was stopped"


def test_holding_an_entry_whose_processes_are_gone_needs_no_worker(queue):
    add(queue, "pass")
    queue.update(1, lambda entry: replace(started(), argv=entry.argv))
    assert stop_entry(queue, 1).state == "held"


def test_a_waiting_entry_is_held_or_removed_at_once(queue):
    add(queue, "pass", "pass", needs=Needs())
    assert stop_entry(queue, 1).state == "held"
    stop_entry(queue, 2, "removed")
    assert [entry.id for entry in queue.list()] == [1]
