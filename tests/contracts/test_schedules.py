"""The contract of schedules: the learning rate of each update, as in torch and transformers, also after resuming."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.optim import lr_scheduler as lrs

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.sched import NoamScheduler
from tests.contracts.parts import each
from tests.contracts.rates import ours, theirs, training

# 12 epochs are 12 units: with 4 updates each they would be 48, so num_training_steps is set too
LONG = {"epochs": 12, "num_training_steps": 12}
WARM = {**LONG, "num_warmup_steps": 4}
CURVES: list[tuple[dict[str, Any], Callable[[Any], Any]]] = [
    ({"type": "Constant", **LONG}, lambda o: lrs.ConstantLR(o, factor=1.0)),
    ({"type": "Constant", **WARM}, lambda o: transformers.get_constant_schedule_with_warmup(o, 4)),
    ({"type": "LineWarmup", **WARM}, lambda o: transformers.get_linear_schedule_with_warmup(o, 4, 12)),
    ({"type": "LineWarmup", **LONG}, lambda o: lrs.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=12)),
    ({"type": "Step", "step_size": 3, "gamma": 0.5, **LONG}, lambda o: lrs.StepLR(o, 3, 0.5)),
    ({"type": "MultiStep", "milestones": [8, 3], **LONG}, lambda o: lrs.MultiStepLR(o, [3, 8])),
    ({"type": "Exponential", "gamma": 0.9, **LONG}, lambda o: lrs.ExponentialLR(o, 0.9)),
    ({"type": "Cosine", "t_max": 5, "eta_min": 0.1, **LONG}, lambda o: lrs.CosineAnnealingLR(o, 5, eta_min=0.1)),
    ({"type": "Cosine", **WARM}, lambda o: transformers.get_cosine_schedule_with_warmup(o, 4, 12)),
    (
        {"type": "Cosine", "restarts": 2, **WARM},
        lambda o: transformers.get_cosine_with_hard_restarts_schedule_with_warmup(o, 4, 12, num_cycles=3),
    ),
    ({"type": "Cosine", "t_0": 3, "t_mult": 2, **LONG}, lambda o: lrs.CosineAnnealingWarmRestarts(o, 3, 2)),
    (
        {"type": "Cosine", "t_0": 4, "eta_min": 0.1, **LONG},
        lambda o: lrs.CosineAnnealingWarmRestarts(o, 4, eta_min=0.1),
    ),
    ({"type": "Polynomial", "power": 2.0, **LONG}, lambda o: lrs.PolynomialLR(o, 12, 2.0)),
    (
        {"type": "Polynomial", "lr_end": 0.01, "power": 1.5, **WARM},
        lambda o: transformers.get_polynomial_decay_schedule_with_warmup(o, 4, 12, lr_end=0.01, power=1.5),
    ),
    ({"type": "InverseSqrt", **WARM}, lambda o: transformers.get_inverse_sqrt_schedule(o, 4)),
    ({"type": "InverseSqrt", **LONG}, lambda o: transformers.get_inverse_sqrt_schedule(o, 0)),
    ({"type": "Noam", "model_size": 64, "factor": 2.0, **WARM}, lambda o: NoamScheduler(o, 64, 4, 2.0)),
]


PLATEAU = {"type": "alchemy.sched.Plateau", "factor": 0.5, "patience": 0, **LONG}
TABLES = {
    f"{table['type']}{i}": {**table, "type": f"alchemy.sched.{table['type']}"} for i, (table, _) in enumerate(CURVES)
}
UNITS = {f"{name}-{unit}": {**table, "unit": unit} for name, table in TABLES.items() for unit in ("step", "epoch")}
ALL = {**UNITS, "Plateau": PLATEAU}


@pytest.mark.parametrize("unit", ["step", "epoch"])
@pytest.mark.parametrize(("table", "make"), CURVES, ids=lambda value: value["type"] if isinstance(value, dict) else "")
def test_curves_are_those_of_torch_and_transformers(table: dict[str, Any], make: Any, unit: str) -> None:
    # endless cycles run for 3 more: the one of torch rises again
    count = 15 if {"t_max", "t_0"} & set(table) else 12
    rates = ours(unit, count, **{**table, "type": f"alchemy.sched.{table['type']}"})
    assert rates == pytest.approx(theirs(make, count), abs=1e-9)


@each("sched", ALL)
def test_a_state_of_any_update_goes_on_with_the_same_rates(table: dict[str, Any]) -> None:
    def update(run: Run) -> list[float]:
        """Return the rates after each update; each ends an epoch, and evaluations are better, worse, better.."""
        run.train_sched.cur_epoch += 1
        run.train_sched.step_lr()
        run.record_scores("dev", {"loss": (1.0, 3.0, 2.0)[run.update % 3]})
        run.train_sched.end_train_epoch()
        return run.optim.get_lr()

    with training(table) as run:
        states, rates = [], []
        for _ in range(9):
            states.append(json.loads(json.dumps(run.train_sched.state_dict())))
            rates.append(update(run))
    assert all(len(row) == 1 and math.isfinite(row[0]) and row[0] >= 0 for row in rates)
    for place in (0, 3, 8):
        with training(table) as run:
            run.train_sched.load_state_dict(states[place])
            assert run.train_sched.state_dict() == states[place]
            assert [update(run) for _ in range(9 - place)] == rates[place:]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau_is_that_of_torch(mode: str, threshold_mode: str) -> None:
    options: dict[str, Any] = {
        "mode": mode,
        "factor": 0.5,
        "patience": 1,
        "cooldown": 1,
        "threshold_mode": threshold_mode,
    }
    scores = [3.0, 2.0, 2.0, 2.0, 2.5, 1.9999, 2.0, 2.0, 2.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    other = lrs.ReduceLROnPlateau(optimizer, min_lr=0.04, threshold=1e-4, **options)
    table = {"type": "alchemy.sched.Plateau", "monitor": "dev/score", "min_lr": 0.04, "epochs": 1, **options}
    with training(table) as run:
        for score in scores:
            other.step(score)
            run.record_scores("dev", {"score": score})
            run.record_scores("test", {"score": 0.0})  # another split does not count
            run.train_sched.step_lr()
            assert run.optim.get_lr() == pytest.approx([optimizer.param_groups[0]["lr"]])
        with pytest.raises(AlchemyError, match=r"has no metric 'dev/score'; did you mean 'scores'"):
            run.record_scores("dev", {"scores": 1.0})
