"""Evaluations and freezing happen at the configured steps and epochs."""

import itertools
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import BeginEpochPipeline, EndEpochPipeline, EndStepPipeline, SchedPipeline, sched
from alchemy.registry import build

NAMES = [
    ("InitEvalBEPipeline", "EvalAtStartBEPipeline"),
    ("EndEvalEEPipeline", "EvalAtFinishEEPipeline"),
    ("EvalStepESPipeline", "EvalESPipeline"),
    ("EvalEpochEEPipeline", "EvalEEPipeline"),
]


@pytest.fixture
def evaluated(training, monkeypatch):
    """Record `(epoch, step, split, needs_loss)` of each evaluation."""
    places = []
    monkeypatch.setattr(
        sched,
        "evaluate",
        lambda split, needs_loss: places.append(
            (training.train_sched.cur_epoch, training.train_sched.cur_step, split, needs_loss)
        ),
    )
    return places


class Model:
    def __init__(self):
        self.calls = []

    def set_requires_grad(self, requires_grad, mode, **kwargs):
        self.calls.append((requires_grad, mode, kwargs))


def train(training, pipe: Any, epochs=3, steps=4):
    """Call a pipe as the schedule does, in three epochs of four steps."""
    counts = training.train_sched
    for counts.cur_epoch in range(epochs):
        if isinstance(pipe, BeginEpochPipeline):
            assert pipe(x=1) == {"x": 1}
        for _ in range(steps):
            counts.cur_step += 1
            if isinstance(pipe, EndStepPipeline):
                assert pipe({"loss": 1.0}, x=1) == {"x": 1}  # type: ignore[call-arg]
        if isinstance(pipe, EndEpochPipeline):
            assert pipe(x=1) == {"x": 1}


@pytest.mark.parametrize(
    ("name", "kwargs", "places"),
    [
        ("EvalAtStartBEPipeline", {}, [(0, -1)]),
        ("EvalAtFinishEEPipeline", {}, [(2, 11)]),
        ("EvalESPipeline", {"period": 5}, [(1, 4), (2, 9)]),
        ("EvalEEPipeline", {"period": 2}, [(1, 7)]),
        ("EvalEEPipeline", {}, [(0, 3), (1, 7), (2, 11)]),
    ],
)
def test_evaluations_come_when_they_are_due(training, evaluated, name, kwargs, places):
    pipe = build(
        SchedPipeline, {"type": f"alchemy.pipeline.sched.{name}", "split": "test", "needs_loss": False, **kwargs}
    )
    train(training, pipe)
    assert evaluated == [(*place, "test", False) for place in places]


def test_a_run_that_stops_early_is_evaluated_at_its_end(training, evaluated):
    training.stop("patience")
    train(training, sched.EvalAtFinishEEPipeline(), epochs=1)
    assert evaluated == [(0, 3, "dev", True)]


@pytest.mark.parametrize(("old", "new"), NAMES)
def test_both_generations_of_names_mean_the_same(old, new):
    classes = {SchedPipeline.resolve_registered_module(f"alchemy.pipeline.sched.{name}") for name in (old, new)}
    assert classes == {getattr(sched, old)} == {getattr(sched, new)}


@pytest.mark.parametrize("period", [0, -1, 1.5, "2", True])
def test_a_period_is_a_positive_number(period):
    with pytest.raises(AlchemyError, match=r"period must be (an integer|at least 1)"):
        sched.EvalESPipeline(period)


def test_gradients_are_switched_once_at_their_step(training):
    training.model = Model()
    table = {
        "type": "alchemy.pipeline.sched.SetRequiresGradBSPipeline",
        "step": 2,
        "requires_grad": False,
        "mode": "trf",
    }
    pipe = build(SchedPipeline, {**table, "layers": 3})
    for training.train_sched.cur_step in range(5):
        assert pipe({"batch": 1}, x=1) == {"x": 1}
        assert len(training.model.calls) == int(training.train_sched.cur_step >= 2)
    assert training.model.calls == [(False, "trf", {"layers": 3})]


@pytest.mark.parametrize("steps", list(itertools.permutations([0, 2, 4])))
@pytest.mark.parametrize("first", range(6))
def test_a_resumed_training_switches_in_the_order_of_the_steps(training, steps, first):
    """In any order of the list: "thaw at 100" may come before "freeze at 0"."""
    training.model = Model()
    pipes = [sched.SetRequiresGradBSPipeline(step, step == 4, f"from {step}") for step in steps]
    training.train_sched.pipes = [sched.EvalESPipeline(1), *pipes]
    for training.train_sched.cur_step in range(first, 6):
        for pipe in pipes:
            pipe({"batch": 1})
        done = [f"from {step}" for step in (0, 2, 4) if step <= training.train_sched.cur_step]
        assert [mode for _, mode, _ in training.model.calls] == done


def test_a_pipe_without_a_call_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"EndEpochPipeline must define __call__\(self, \*\*kwargs\)"):
        EndEpochPipeline()()
