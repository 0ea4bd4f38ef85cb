"""A sweep runs its points over the queue, continues where it was, and survives failures."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.queue import NewEntry, Queue, Slots, Worker, stop_entry
from alchemy.queue.worker import drain
from alchemy.records import Record
from alchemy.records.status import read_info
from alchemy.sweep.controller import Controller, MetricMissing
from alchemy.sweep.study import find_study, open_study
from tests.queue.commands import wait_until
from tests.sweep.trivial import SPACE, command, ledger, loss, make_plan, make_settings, sweep

EVERY = [f"{a}-{b}-1" for a in (1, 2, 3) for b in ("x", "y")]


def test_a_grid_runs_every_point_once_and_finds_the_best():
    study = sweep(make_settings())
    assert ledger() == EVERY
    assert study.rank_trials()[0].point == {"a": 2, "b": "y"}
    assert study.rank_trials()[0].value == pytest.approx(0.01)
    assert {trial.state for trial in study.trials} == {"done"}


def test_the_same_sweep_again_runs_nothing():
    sweep(make_settings())
    again = sweep(make_settings())
    assert ledger() == EVERY
    assert len(again.rank_trials()) == 6


def test_more_trials_continue_a_sweep():
    sweep(make_settings(method="random", trials=2))
    study = sweep(make_settings(method="random", trials=4))
    assert len(study.trials) == len(ledger()) == len(set(ledger())) == 4


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("method", ["tpe", "hill_climbing", "annealing"])
def test_adaptive_methods_run_in_parallel(method, slots):
    study = sweep(make_settings(method=method, trials=6), slots=slots)
    assert sorted(ledger()) == sorted(EVERY)
    assert len(study.rank_trials()) == 6


def test_a_point_has_the_mean_of_its_seeds():
    study = sweep(make_settings(seeds=[1, 2, 3], trials=1), slots=2)
    assert sorted(ledger()) == ["1-x-1", "1-x-2", "1-x-3"]
    assert study.trials[0].values == {"1": 2.01, "2": 2.02, "3": 2.03}
    assert study.trials[0].value == pytest.approx(2.02)


def fail_at_two(point, seed):
    return "fail" if point["a"] == 2 else loss(point, seed)


def test_failed_points_are_shown_and_can_be_retried():
    study = sweep(make_settings(), command(fail_at_two))
    failed = [trial for trial in study.trials if trial.state == "failed"]
    assert [trial.point["a"] for trial in failed] == [2, 2]
    assert "it went wrong" in failed[0].reason
    assert len(study.rank_trials()) == 4
    sweep(make_settings(), command(fail_at_two))
    assert len(ledger()) == 6
    sweep(make_settings(), command(fail_at_two), retry=True)
    assert len(ledger()) == 8


def test_a_point_with_a_failed_seed_has_no_value():
    runs = command(lambda point, seed: "fail" if seed == 2 else loss(point, seed))
    study = sweep(make_settings(seeds=[1, 2], trials=1), runs)
    assert study.trials[0].state == "failed"
    assert study.trials[0].value is None
    assert study.trials[0].values == {"1": 2.01}


def test_a_metric_that_never_comes_stops_the_sweep():
    with pytest.raises(MetricMissing, match="has not logged dev/loss; did you mean 'dev/los'"):
        sweep(make_settings(), command(loss, metric="dev/los"))
    assert len(ledger()) == 1


def test_a_value_that_is_not_finite_fails_the_point():
    runs = command(lambda point, seed: "[NaN]" if point["a"] == 1 else loss(point, seed))
    study = sweep(make_settings(), runs)
    assert len(study.rank_trials()) == 4
    assert study.trials[0].reason == "dev/loss is not finite"


def test_runs_without_a_record_stop_the_sweep():
    def make(point, seed):
        return NewEntry(argv=(sys.executable, "-c", "pass"))

    with pytest.raises(MetricMissing, match="a run has finished without a record; a sweep needs the plugin FileLogger"):
        sweep(make_settings(), make)


WORKER = """
import os
from alchemy.queue import Queue, Slots, Worker
with Worker(Queue(), Slots(3)) as worker:
    worker.step(0)
    open("started", "w").close()
    while not os.path.exists("stop"):
        worker.step(0.05)
"""


def test_a_sweep_takes_over_when_another_worker_has_ended():
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    code = WORKER.replace("Slots(3)", "Slots(1), 'another sweep'")
    events: list[str] = []
    with subprocess.Popen([sys.executable, "-c", code], env=env) as worker:
        wait_until(Path("started").exists)
        settings = make_settings(trials=1)
        with open_study(make_plan(settings)) as study:

            def note(event):
                events.append(event.text)
                Path("stop").touch()

            assert Controller(study, settings, Worker(Queue(), on_event=note, group=study.group), command(loss)).run()
    assert [text for text in events if text] == [f"waiting for the worker of the queue, process {worker.pid}"]
    assert ledger() == EVERY[:1]


def test_a_worker_of_the_queue_runs_the_sweep():
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    worker = subprocess.Popen([sys.executable, "-c", WORKER], env=env)
    wait_until(Path("started").exists)
    study = sweep(make_settings())
    Path("stop").touch()
    assert worker.wait(20) == 0
    assert len(study.rank_trials()) == 6
    assert sorted(ledger()) == EVERY


def test_points_that_were_asked_but_never_queued_are_run():
    settings = make_settings(trials=2)
    with open_study(make_plan(settings)) as study:
        study.ask({"a": 1, "b": "x"})  # killed right after
    assert len(sweep(settings).rank_trials()) == 2
    assert ledger() == EVERY[:2]


def test_entries_of_a_removed_sweep_are_not_taken_for_this_one():
    settings = make_settings(trials=1)
    sweep(settings)
    for path in Path(".alchemy/sweeps/toy").iterdir():
        path.unlink()
    sweep(settings, plan=make_plan(settings, created="later"))
    assert ledger() == ["1-x-1", "1-x-1"]


def test_a_run_that_falls_behind_is_pruned():
    def curve(point, seed):
        return [float(point["a"])] * (3 if point["a"] < 3 else 400)

    record = Record.create(Path("records"), name="3-y-1", tag="toy")  # what a real run leaves behind when it is stopped
    record.finish("stopped", "SIGTERM")
    settings = make_settings(prune="asha", trials=6)
    study = sweep(settings, command(curve, pause=0.05))
    states = {tuple(trial.point.values()): trial.state for trial in study.trials}
    assert states[3, "x"] == states[3, "y"] == "pruned"
    assert states[1, "x"] == states[1, "y"] == "done"
    assert re.fullmatch(r"pruned after \d+ evaluations? \(asha\)", read_info(record.path)["reason"])
    assert {entry.state for entry in Queue().list()} == {"done"}


def test_held_runs_leave_a_sweep_incomplete():
    settings = make_settings(trials=1)
    with open_study(make_plan(settings)) as study:
        controller = Controller(study, settings, Worker(Queue(), group=study.group), command(loss))
        assert controller.advance()
        (entry,) = Queue().list()
        stop_entry(Queue(), entry.id)
        assert not controller.run()
    assert ledger() == []


def test_optuna_opens_the_study():
    optuna = pytest.importorskip("optuna")
    sweep(make_settings(mode="max"), command(fail_at_two))
    backend = optuna.storages.journal.JournalFileBackend(".alchemy/sweeps/toy/optuna.log")
    copy = optuna.load_study(study_name="toy", storage=optuna.storages.JournalStorage(backend))
    assert len(copy.trials) == 6
    assert [trial.state.name for trial in copy.trials].count("FAIL") == 2
    assert copy.best_trial.params in [{"a": 1, "b": "x"}, {"a": 3, "b": "x"}]
    assert copy.direction.name == "MAXIMIZE"


@pytest.mark.parametrize("damage", [None, "cut", "garbage"])
def test_the_copy_for_optuna_is_rebuilt(damage):
    optuna = pytest.importorskip("optuna")
    path = Path(".alchemy/sweeps/toy/optuna.log")
    sweep(make_settings(trials=2))
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-30] if damage == "cut" else b"garbage\n")
    sweep(make_settings(trials=3))
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    assert {trial.user_attrs["point"] for trial in optuna.load_study(study_name="toy", storage=storage).trials} == {
        0,
        1,
        2,
    }


def test_a_retried_point_has_one_trial_in_the_copy_for_optuna():
    optuna = pytest.importorskip("optuna")
    sweep(make_settings(trials=3), command(fail_at_two))
    sweep(make_settings(trials=3), retry=True)
    backend = optuna.storages.journal.JournalFileBackend(".alchemy/sweeps/toy/optuna.log")
    copy = optuna.load_study(study_name="toy", storage=optuna.storages.JournalStorage(backend))
    assert sorted(trial.user_attrs["point"] for trial in copy.trials) == [0, 1, 2]


def test_a_full_disk_is_one_clear_line(monkeypatch):
    def full(*words):
        raise OSError(28, "No space left on device")

    settings = make_settings(trials=2)
    with open_study(make_plan(settings)) as study:
        controller = Controller(study, settings, Worker(Queue(), group=study.group), command(loss))
        monkeypatch.setattr("alchemy.files.os.fsync", full)
        with pytest.raises(AlchemyError, match=r"cannot write to .*toy: No space left on device; free some space"):
            controller.run()
    monkeypatch.undo()


def test_a_cut_off_line_is_skipped():
    sweep(make_settings(trials=2))
    path = Path(".alchemy/sweeps/toy/points.jsonl")
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:-1]) + rows[-1][:10])
    study = sweep(make_settings(trials=3))
    assert [trial.state for trial in study.trials] == ["done"] * 3
    assert ledger() == EVERY[:3]
    assert json.loads(path.read_bytes().splitlines()[-1])["event"] == "done"


@pytest.mark.parametrize("number", [0, 2])
def test_a_damaged_point_runs_again_and_the_others_keep_their_runs(number):
    sweep(make_settings(trials=3))
    path = Path(".alchemy/sweeps/toy/points.jsonl")
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join("damaged\n" if f'"asked", "point": {number}' in row else row for row in rows))
    study = sweep(make_settings(trials=3))
    assert [trial.state for trial in study.trials] == ["done"] * 3
    assert find_study("toy").trials == study.trials
    assert ledger() == [*EVERY[:3], EVERY[number]]


def test_a_seed_that_has_ended_may_leave_the_queue():
    settings = make_settings(seeds=[1, 2], trials=1)
    with open_study(make_plan(settings)) as study:
        controller = Controller(study, settings, Worker(Queue(), group=study.group), command(loss))
        controller.advance()
        with Worker(Queue(), Slots(1)) as worker:
            while not any(entry.state == "done" for entry in Queue().list()):
                worker.step(0.05)
            controller.advance()
            stop_entry(Queue(), next(entry.id for entry in Queue().list() if entry.state == "done"), then="removed")
    assert sweep(settings).trials[0].values == {"1": 2.01, "2": 2.02}
    assert ledger() == ["1-x-1", "1-x-2"]


def test_a_space_of_one_point_has_a_sweep():
    study = sweep(make_settings(space=type(SPACE)(SPACE.dimensions[:1]), trials=1), command(lambda point, seed: [1.0]))
    assert len(study.rank_trials()) == 1


def test_a_sweep_whose_worker_is_drained_stops_after_the_runs_that_have_started():
    settings, queue = make_settings(), Queue()
    with open_study(make_plan(settings)) as study:

        def drain_at_once(kind, trial):
            drain(queue)

        worker = Worker(queue, group=study.group)
        controller = Controller(study, settings, worker, command(loss), drain_at_once)
        assert not controller.run()
        assert controller.is_stopped
    assert ledger() == EVERY[:1]
    sweep(settings)
    assert ledger() == EVERY


def test_waiting_runs_move_to_the_executor_of_the_sweep():
    settings = make_settings(trials=2)
    with open_study(make_plan(settings)) as study:
        elsewhere = Controller(study, settings, Worker(Queue(), Slots(2), study.group, on="slurm"), on_slurm)
        elsewhere.advance()
    assert [entry.on for entry in Queue().list()] == ["slurm"] * 2
    sweep(settings)
    assert [(entry.on, entry.options, entry.state) for entry in Queue().list()] == [("local", {}, "done")] * 2
    assert ledger() == EVERY[:2]


def on_slurm(point, seed):
    return replace(command(loss)(point, seed), on="slurm", options={"time": 1})
