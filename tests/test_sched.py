"""Schedules: counters, pipes, length; their curves and states are in contracts/test_schedules.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from torch.optim import lr_scheduler as lrs

import alchemy.runner  # noqa: F401 (lets parts of older projects be built)
from alchemy.config.part_source import find
from alchemy.constraints import PositiveInt
from alchemy.errors import AlchemyError
from alchemy.pipeline import BeginEpochPipeline, BeginStepPipeline, EndEpochPipeline, EndStepPipeline, SchedPipeline
from alchemy.sched import AlchemyTrainScheduler, LineWarmup, NoamScheduler, build_sched
from tests.contracts.rates import ours, theirs, training


def test_fault_11_noam_by_both_names_follows_the_paper() -> None:
    for name in ("alchemy.sched.Noam", "alchemy.sched.NoamScheduler"):
        rates = ours("step", 6, type=name, model_size=4, num_warmup_steps=2, epochs=1)
        assert rates == pytest.approx([0.5 * min(n**-0.5, n * 2**-1.5) for n in range(1, 7)])
    assert theirs(lambda o: NoamScheduler(o, model_size=4), 4) == pytest.approx([0.5 * n**-0.5 for n in range(1, 5)])
    with pytest.raises(AlchemyError, match=r"hidden size of the model; set model_size"):
        ours("step", 1, type="alchemy.sched.Noam", epochs=1)


@pytest.mark.parametrize(("period", "updates"), [(1, 12), (3, 6), (4, 3), (9, 3)])
def test_fault_4_the_horizon_counts_updates_and_ends_at_nothing(period: int, updates: int) -> None:
    table = {"type": "alchemy.sched.LineWarmup", "epochs": 3}
    with training(table, backward={"type": "alchemy.model.DefaultBackwardHandler", "period": period}) as run:
        assert run.train_sched.total_updates == updates
        for _ in range(updates - 1):
            run.train_sched.step_lr()
        assert run.optim.get_lr() == pytest.approx([0.5 / updates])
        run.train_sched.step_lr()
        assert run.optim.get_lr() == [0.0]


def test_fault_3_old_spelling_of_the_warm_up_warms_up() -> None:
    table = {"type": "alchemy.sched.LineWarmup", "epochs": 3, "lr_warmup_steps": 4}
    assert ours("step", 5, **table) == pytest.approx([0.0, 0.125, 0.25, 0.375, 0.5])


def test_fault_3_misspelt_keys_are_refused() -> None:
    with pytest.raises(
        AlchemyError, match=r"LineWarmup has no option 'num_warmup_step'; did you mean 'num_warmup_steps'"
    ):
        ours("step", 1, type="alchemy.sched.LineWarmup", epochs=3, num_warmup_step=4)
    with pytest.raises(AlchemyError, match=r"unit must be one of 'step', 'epoch', not .*; did you mean 'step'"):
        ours("steps", 1, type="alchemy.sched.Constant", epochs=3)
    with pytest.raises(AlchemyError, match=r"accepts only one of t_max, restarts and t_0"):
        ours("step", 1, type="alchemy.sched.Cosine", epochs=3, t_max=3, restarts=1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"max_tokens": 9}, "max_tokens cannot be combined with batch_size"),
        ({"batch_sise": 2}, "unknown loader option 'batch_sise'"),
    ],
)
def test_wrong_keys_of_the_loader_are_not_told_of_the_schedule(keys: dict[str, Any], message: str) -> None:
    with training({"type": "alchemy.sched.Constant", "num_training_steps": 3}) as run:
        run.task._datasets["train"][1].update(keys)
        run.cfg["sched"] = {"type": "alchemy.sched.LineWarmup", "epochs": 3}
        with pytest.raises(AlchemyError, match=rf"\[task\.datasets\.train\] {message}"):
            build_sched(run)


def test_a_warm_up_below_one_is_a_share() -> None:
    rates = ours("step", 7, type="alchemy.sched.LineWarmup", epochs=3, num_warmup_steps=0.5)
    assert rates[6] == max(rates) == 0.5


def test_a_stream_without_length_needs_num_training_steps() -> None:
    datasets = {"train": {"pipes": [{"type": "tests.toy.Stream"}]}}
    task = {"type": "alchemy.task.DefaultTask", "datasets": datasets}
    table = {"type": "alchemy.sched.LineWarmup", "epochs": 3}
    with (
        pytest.raises(AlchemyError, match=r"needs the length of training.*set num_training_steps"),
        training(table, task=task),
    ):
        pass
    with training({**table, "num_training_steps": 10}, task=task) as run:
        assert run.train_sched.horizon() == 10


CALLS: list[Any] = []


@SchedPipeline.register()
class Everywhere(BeginEpochPipeline, EndEpochPipeline, BeginStepPipeline, EndStepPipeline):
    """An old-style pipe of all four kinds."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self.name = kwargs["name"]

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        CALLS.append((self.name, args, kwargs))
        return {"from": self.name}


def test_pipes_of_several_kinds_are_called_at_each_and_hand_on_their_kwargs() -> None:
    CALLS.clear()
    pipes = [{"type": f"{__name__}.Everywhere", "name": name} for name in "ab"]
    with training({"type": "alchemy.sched.Constant", "epochs": 2, "pipes": pipes}) as run:
        sched = run.train_sched
        assert (sched.cur_epoch, sched.cur_step, sched.cur_step_this_epoch) == (-1, -1, -1)
        for epoch in sched:
            assert sched.begin_train_step({"x": 1}) == (epoch, 0)
            sched.end_train_step({"loss": 2})
            sched.end_train_epoch()
        assert (sched.cur_epoch, sched.cur_step) == (1, 1)
    moments: list[Any] = [((), {}), (({"x": 1},), {}), (({"loss": 2},), {}), ((), {})]
    expected = [row for args, kwargs in moments for row in (("a", args, kwargs), ("b", args, {"from": "a"}))]
    assert expected * 2 == CALLS


class OldSched(AlchemyTrainScheduler):
    """A schedule as projects write it: no arguments, its own keys, a torch scheduler."""

    def __init__(self) -> None:
        super().__init__()
        gamma = self.cfg["my_gamma"]
        self.lr_sched = lrs.LambdaLR(self.run.optim.optimizer, lambda t: gamma**t)


class OldLine(LineWarmup):
    """A subclass of a built-in part that calls the base constructor without arguments."""

    def __init__(self) -> None:
        super().__init__()


class OlderLine(OldLine):
    """A subclass of it that accepts any keyword."""

    def __init__(self, **kwargs: Any) -> None:
        super(OlderLine, self).__init__()  # noqa: UP008 (as it was once written)
        self.kwargs = kwargs


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_old_schedules_read_their_own_table() -> None:
    table = {"type": f"{__name__}.OldSched", "my_gamma": 0.5, "epochs": 2}
    with training(table) as run:
        rates = [run.optim.get_lr()[0], run.train_sched.step_lr(), run.optim.get_lr()[0]]
        assert rates == [0.5, None, 0.25]
        assert (run.train_sched.epochs, run.train_sched.num_updates) == (2, 1)
        assert type(run.train_sched) is OldSched
        with pytest.raises(AlchemyError, match=r"define reset_lr_sched"):
            run.train_sched.reset_lr_sched()
    rates = ours("step", 4, type=f"{__name__}.OldLine", num_warmup_steps=2, num_training_steps=6, mine=3)
    assert rates == pytest.approx([0.0, 0.25, 0.5, 0.375])
    table = {"type": f"{__name__}.OlderLine", "num_warmup_steps": 2, "num_training_steps": 6, "mine": 3}
    with training(table) as run:
        assert type(run.train_sched) is OlderLine
        assert (run.train_sched.num_warmup_steps, run.train_sched.kwargs["mine"]) == (2, 3)


def test_reset_begins_the_curve_again_over_what_is_left() -> None:
    with training({"type": "alchemy.sched.LineWarmup", "epochs": 3}) as run:
        for _ in range(4):
            run.train_sched.step_lr()
        run.optim.reset(lr=1.0)
        assert run.optim.get_lr() == pytest.approx([8 / 12])
        run.train_sched.reset_lr_sched(num_warmup_steps=2)
        rates: list[float] = []
        for _ in range(8):
            rates += run.optim.get_lr()
            run.train_sched.step_lr()
        assert rates == pytest.approx([0, 0.5, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
        assert run.optim.get_lr() == [0.0]
        with pytest.raises(AlchemyError, match=r"has no option 'warmup'"):
            run.train_sched.reset_lr_sched(warmup=2)


def test_training_may_be_measured_in_updates() -> None:
    with training({"type": "alchemy.sched.Constant", "num_training_steps": 5}) as run:
        epochs = []
        for epoch in run.train_sched:
            epochs.append(epoch)
            for _ in range(4):
                run.train_sched.step_lr()
                if run.stop_request.reason:
                    break
        assert (epochs, run.train_sched.num_updates, run.stop_request.reason) == ([0, 1], 5, "reached 5 updates")
    with training({"type": "alchemy.sched.Constant"}) as run, pytest.raises(AlchemyError, match="set epochs or"):
        next(iter(run.train_sched))


def updates_until_the_end(table: dict[str, Any], **changes: Any) -> tuple[int, str | None]:
    """Return the number of updates with 4 per epoch, and the reason for the end of training."""
    with training({"type": "alchemy.sched.LineWarmup", **table}, **changes) as run:
        for _ in run.train_sched:
            for _ in range(4):
                run.train_sched.step_lr()
                if run.stop_request.reason:
                    return run.update, run.stop_request.reason
            run.train_sched.end_train_epoch()
        return run.update, run.stop_request.reason


@pytest.mark.parametrize(
    ("table", "updates", "reason"),
    [
        ({"epochs": 3, "num_training_steps": 5}, 5, "reached 5 updates"),
        ({"epochs": 1, "num_training_steps": 9}, 4, None),
        ({"epochs": 1.5}, 6, "reached 1.5 epochs"),
        ({"epochs": 0.3}, 2, "reached 0.3 epochs"),
        ({"epochs": 2.0}, 8, None),
        ({"epochs": 1.75, "num_training_steps": 9}, 7, "reached 1.75 epochs"),
        ({"epochs": 1.75, "num_training_steps": 6}, 6, "reached 6 updates"),
    ],
)
def test_the_first_of_epochs_and_updates_ends_the_training(table: dict[str, Any], updates: int, reason: Any) -> None:
    assert updates_until_the_end(table) == (updates, reason)


def test_updates_set_the_horizon_where_both_are_given() -> None:
    for table, horizon in (({"epochs": 3, "num_training_steps": 20}, 20), ({"epochs": 2.5}, 10)):
        with training({"type": "alchemy.sched.LineWarmup", **table}) as run:
            assert run.train_sched.horizon() == horizon
            run.train_sched.step_lr()
            assert run.optim.get_lr() == pytest.approx([0.5 * (horizon - 1) / horizon])


def test_a_part_of_an_epoch_needs_data_that_know_their_length() -> None:
    task = {"type": "alchemy.task.DefaultTask", "datasets": {"train": {"pipes": [{"type": "tests.toy.Stream"}]}}}
    table = {"type": "alchemy.sched.Constant", "epochs": 1.5}
    with training(table, task=task) as run, pytest.raises(AlchemyError, match="needs data of known length"):
        next(iter(run.train_sched))


def test_stop_rules_may_say_how_long_to_train() -> None:
    stop = {"any": [{"type": "alchemy.stop.Updates", "updates": 3}]}
    with training({"type": "alchemy.sched.Constant"}, stop=stop) as run:
        assert next(iter(run.train_sched)) == 0


def test_a_reset_survives_a_resume() -> None:
    table = {"type": "alchemy.sched.LineWarmup", "epochs": 5}
    with training(table) as first:
        first.train_sched.step_lr()
        first.train_sched.reset_lr_sched(num_warmup_steps=2, num_training_steps=6)
        first.train_sched.step_lr()
        state, rate = first.train_sched.state_dict(), first.optim.get_lr()
    with training(table) as second:
        second.train_sched.load_state_dict(state)
        assert (second.optim.get_lr(), second.train_sched.horizon(), second.train_sched.last_update) == (rate, 6, None)
        assert second.train_sched.state_dict() == state


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class Halving(AlchemyTrainScheduler):
    """A custom schedule in the current style: its own keywords are fields, the others are inherited."""

    every: PositiveInt

    def lr_at(self, base: float, t: int) -> float:
        return base * 0.5 ** (t // self.every)


def test_a_schedule_is_a_dataclass_with_the_keywords_of_its_base() -> None:
    name = f"{__name__}.Halving"
    assert ours("step", 5, type=name, every=2, epochs=3) == [0.5, 0.5, 0.25, 0.25, 0.125]
    part = find(name)
    assert part is not None
    assert [param.name for param in part.params] == ["every", "epochs", "num_training_steps", "unit"]
    with training({"type": name, "every": 2, "epochs": 3}), pytest.raises(AlchemyError, match="every must be at least"):
        Halving(every=0)
    with training({"type": name, "every": 2, "epochs": 3}), pytest.raises(AlchemyError, match="epochs must be above 0"):
        Halving(every=1, epochs=-1)
