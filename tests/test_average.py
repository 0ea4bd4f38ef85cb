"""Weight averages: their values, their use in evaluations, their state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from alchemy.average import Average, build_average
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.null_objects import NoAverage
from alchemy.optim import build_optimizer
from alchemy.runner import run_task
from alchemy.sched import build_sched
from tests.logs import warned
from tests.toy import config

KINDS = [{"decay": 0.9}, {"decay": 0.5, "warmup": False}, {"type": "alchemy.average.SWA", "start": 0}]


class Net(AlchemyModel):
    """A linear layer and a batch norm."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(dtype)


@contextlib.contextmanager
def averaging(table: dict[str, Any] | None, dtype: torch.dtype = torch.float32) -> Iterator[Any]:
    cfg: dict[str, Any] = {
        "optim": {"type": "torch.optim.SGD", "lr": 0.1},
        "sched": {"type": "alchemy.sched.Constant", "num_training_steps": 10},
    }
    with Run({**cfg, "ema": table} if table is not None else cfg) as run:
        run.model = Net(dtype)
        run.optim = build_optimizer(run)
        run.train_sched = build_sched(run)
        run.average = build_average(run)
        yield run


def train(run: Run, first: int, last: int) -> list[torch.Tensor]:
    """Do updates with numbers that only depend on the update; return the first weight after each."""
    seen = []
    for update in range(first, last + 1):
        generator = torch.Generator().manual_seed(update)
        with torch.no_grad():
            for param in run.model.parameters():
                param.add_(torch.randn(param.shape, generator=generator).to(param.dtype))
        run.average.after_update(update)
        seen.append(weight(run))
    return seen


def weight(run: Run) -> torch.Tensor:
    return run.model.module[0].weight.detach().clone()


def averaged(run: Run) -> torch.Tensor:
    with run.average.applied():
        return weight(run)


# -- values
def test_ema_follows_with_a_decay_that_warms_up() -> None:
    with averaging({"decay": 0.3}) as run:
        seen = train(run, 1, 4)
        expected = seen[0]
        for t, value in enumerate(seen[1:], 1):
            expected = expected.lerp(value, 1 - min(0.3, (1 + t) / (10 + t)))
        assert torch.allclose(averaged(run), expected)


def test_swa_is_the_mean_from_a_share_of_the_training_on() -> None:
    with averaging({"type": "alchemy.average.SWA", "start": 0.5, "every": 2}) as run:
        seen = train(run, 1, 10)
        assert torch.allclose(averaged(run), torch.stack([seen[4], seen[6], seen[8]]).mean(0))


def test_before_its_start_the_weights_are_those_of_the_model() -> None:
    with averaging({"start": 3}) as run:
        train(run, 1, 2)
        assert torch.equal(averaged(run), weight(run))
        train(run, 3, 5)
        assert not torch.equal(averaged(run), weight(run))


def test_without_a_table_nothing_is_averaged() -> None:
    with averaging(None) as run:
        assert isinstance(run.average, NoAverage)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"decay": 1.0}, "decay must be below 1, not 1.0"),
        ({"every": 0}, "every must be at least 1, not 0"),
        ({"decay": float("nan")}, "decay must be at least 0, not nan"),
        ({"type": "alchemy.average.SWA", "start": -1}, "start must be at least 0, not -1"),
        ({"type": "alchemy.average.SWA", "start": 1.5}, r"start must be below 1, not 1\.5"),
        ({"type": "alchemy.average.SWA", "start": float("nan")}, "start must be at least 0, not nan"),
        ({"decy": 0.9}, "EMA has no option 'decy'; did you mean 'decay'"),
    ],
)
def test_wrong_settings_are_told(table: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message), averaging(table):
        pass


def test_a_share_of_an_unknown_length_is_refused() -> None:
    with averaging(None) as run:
        run.train_sched.num_training_steps = None
        with pytest.raises(AlchemyError, match="the number of updates is unknown; set start to a number"):
            run.cfg["ema"] = {"type": "alchemy.average.SWA", "start": 0.5}
            build_average(run)


# -- in evaluations
@pytest.mark.parametrize("table", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_applied_is_undone_to_the_bit(table: dict[str, Any], dtype: torch.dtype) -> None:
    with averaging(table, dtype) as run:
        train(run, 1, 5)
        before, pointers = weight(run), [param.data_ptr() for param in run.model.parameters()]
        first = averaged(run)
        with run.average.applied(), run.average.applied():
            assert torch.equal(weight(run), first)
            assert torch.equal(run.average.state_dict()["weights"]["0.weight"].to(dtype), first)
        with pytest.raises(ValueError, match="broken"), run.average.applied():
            raise ValueError("broken")
        assert torch.equal(weight(run), before)
        assert torch.equal(averaged(run), first)
        assert not torch.equal(first, before)
        assert [param.data_ptr() for param in run.model.parameters()] == pointers


def test_averages_of_short_weights_are_kept_in_float32() -> None:
    with averaging({"decay": 0.99}, torch.bfloat16) as run:
        train(run, 1, 3)
        assert {w.dtype for w in run.average.state_dict()["weights"].values()} == {torch.float32}


def test_buffers_are_not_averaged() -> None:
    with averaging({}) as run:
        train(run, 1, 2)
        assert set(run.average.state_dict()["weights"]) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_frozen_parameters_are_followed_from_when_they_are_thawed() -> None:
    with averaging({}) as run:
        run.model.module[0].requires_grad_(False)
        train(run, 1, 2)
        assert set(run.average.state_dict()["weights"]) == {"1.weight", "1.bias"}
        run.model.module[0].requires_grad_(True)
        seen = train(run, 3, 3)
        assert torch.equal(averaged(run), seen[0])


def test_a_model_that_is_replaced_begins_again() -> None:
    with averaging({}) as run:
        train(run, 1, 3)
        run.model.model = Net().model
        with warned() as lines:
            seen = train(run, 4, 4)
        assert "restarting the average" in lines[0]
        assert torch.equal(averaged(run), seen[0])


def test_a_parameter_that_is_replaced_is_noticed_by_the_next_evaluation() -> None:
    with averaging({}) as run:
        train(run, 1, 3)
        run.model.module[0] = nn.Linear(5, 2)
        with warned() as lines:
            assert torch.equal(averaged(run), weight(run))
        assert "restarting the average" in lines[0]


# -- state
@pytest.mark.parametrize("table", KINDS)
def test_resumed_it_goes_on_as_if_nothing_had_happened(table: dict[str, Any]) -> None:
    with averaging(table) as run:
        train(run, 1, 6)
        whole = averaged(run)
    with averaging(table) as run:
        train(run, 1, 3)
        state = {"updates": run.average.updates, "weights": clone(run.average.state_dict()["weights"])}
        weights = clone(run.model.state_dict())
    with averaging(table) as run:
        run.model.load_state_dict(weights)
        run.average.load_state_dict(state)
        train(run, 4, 6)
        assert torch.equal(averaged(run), whole)


def clone(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in tensors.items()}


def test_a_state_of_another_model_is_refused() -> None:
    told = pytest.raises(AlchemyError, match=r"average of 'x' has shape \[1\], but the model has no such")
    with averaging({}) as run, told:
        run.average.load_state_dict({"updates": 1, "weights": {"x": torch.zeros(1)}})


def test_a_kind_without_a_share_is_told() -> None:
    with averaging({}) as run:
        with pytest.raises(NotImplementedError, match="must define share"):
            Average().share(0)
        assert run.average.share(0) == 0.9


# -- in complete runs
def test_an_evaluation_sees_the_average_and_training_does_not() -> None:
    plain = run_task(config(), raise_errors=True).ret["loss"]
    same = run_task(config(ema={"decay": 0.0}), raise_errors=True).ret["loss"]
    late = run_task(config(ema={"decay": 0.99, "warmup": False}), raise_errors=True).ret["loss"]
    assert same == plain
    assert late > 2 * plain  # still close to the weights after the first update
