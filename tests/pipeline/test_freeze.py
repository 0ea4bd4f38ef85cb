"""Freezing by pattern and update: which parameters are trained when, also after resuming and with overlaps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.optim import build_optimizer
from alchemy.sched import build_sched


class Net(AlchemyModel):
    """An encoder with an embedding that the model itself freezes, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"encoder": nn.Linear(1, 1), "embedding": nn.Linear(1, 1), "head": nn.Linear(1, 1)})
        self.model["embedding"].requires_grad_(False)


@contextlib.contextmanager
def schedule(*pipes: dict[str, Any]) -> Iterator[Run]:
    rows = [{"type": "alchemy.pipeline.freeze.Freeze", **pipe} for pipe in pipes]
    cfg = {
        "optim": {"type": "torch.optim.SGD", "lr": 0.1},
        "sched": {"type": "alchemy.sched.Constant", "num_training_steps": 9, "pipes": rows},
    }
    with Run(cfg) as run:
        run.model = Net()
        run.optim = build_optimizer(run)
        run.train_sched = build_sched(run)
        yield run


def trained(run: Run, updates: int) -> list[str]:
    """Return the parameters that are trained in the step after a number of updates."""
    run.train_sched.num_updates = updates
    run.train_sched.begin_train_step({})
    return sorted({name.partition(".")[0] for name, param in run.model.named_parameters() if param.requires_grad})


@pytest.mark.parametrize(
    ("pipes", "expected"),
    [
        ([{"pattern": "encoder", "until": 2}], ["head", "head", "encoder head", "encoder head"]),
        ([{"pattern": "encoder*", "start": 1}], ["encoder head", "head", "head", "head"]),
        ([{"pattern": ["encoder", "head"], "start": 1, "until": 3}], ["encoder head", "", "", "encoder head"]),
        ([{"pattern": "*", "until": 1}, {"pattern": "encoder", "until": 3}], ["", "head", "head", "encoder head"]),
    ],
)
def test_trained_by_update_and_the_same_after_a_resume(pipes: list[dict[str, Any]], expected: list[str]) -> None:
    with schedule(*pipes) as run:
        assert [" ".join(trained(run, update)) for update in range(4)] == expected
    for update in range(4):
        with schedule(*pipes) as run:  # a process that starts in the middle
            assert " ".join(trained(run, update)) == expected[update]


@pytest.mark.parametrize(
    ("pipe", "message"),
    [
        ({"pattern": "encodr"}, "no parameter matches 'encodr'; did you mean 'encoder'"),
        ({"pattern": "head", "start": 3, "until": 3}, "until = 3 must be greater than start = 3"),
    ],
)
def test_a_mistake_is_told_before_the_training(pipe: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message), schedule(pipe):
        pass
