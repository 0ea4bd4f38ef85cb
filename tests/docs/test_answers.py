"""The answers of docs/training.md, each demonstrated with a small run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.model import AlchemyModel
from alchemy.pipeline import EndStepPipeline, SchedPipeline
from alchemy.runner import evaluate, run
from tests.toy import Line, config

ACCUMULATING = {"type": "alchemy.model.DefaultBackwardHandler", "period": 3}


@AlchemyModel.register()
class Scaled(Line):
    """The line, with its loss multiplied by `factor`."""

    def __init__(self, *, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        x, y = batch["x"], batch["y"]
        loss_sum, count = self.factor * (self.model(x) - y).square().sum(), len(y)
        loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
        return {"loss_sum": loss_sum.detach(), "count": count, "loss": loss}


@SchedPipeline.register()
class Diary(EndStepPipeline):
    """Write the values of progress bar, optimizer and metrics after every step."""

    def __init__(self, *, path: str, evaluates: bool = False) -> None:
        super().__init__()
        self.path, self.evaluates = Path(path), evaluates

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        run, bar = self.run, self.run.symbols.get_global("pbar")
        grad = next(run.model.parameters()).grad
        row = {
            "done": bar.done,
            "total": bar.total,
            "line": bar.line(),
            "updates": run.update,
            "grad": grad is not None,
        }
        if self.evaluates:
            before = run.metrics.current.sums()
            row["scores"] = evaluate("dev")
            row |= {"leaked": run.metrics.current.sums() != before, "training": run.model.model.training}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return kwargs


@pytest.fixture
def diary(tmp_path: Path) -> Any:
    def go(evaluates: bool = False, **changes: Any) -> list[dict[str, Any]]:
        path = tmp_path / "diary.jsonl"
        cfg = config(**changes)
        cfg["sched"]["pipes"] = [{"type": f"{__name__}.Diary", "path": str(path), "evaluates": evaluates}]
        run([cfg], device=[-1], raise_errors=True)
        return [json.loads(line) for line in path.read_text().splitlines()]

    return go


def test_the_bar_counts_the_steps_of_an_epoch_and_shows_the_update(diary: Any) -> None:
    rows = diary(log_every=1, backward=ACCUMULATING, sched__epochs=2)
    assert [row["done"] + 1 for row in rows] == [1, 2, 3, 4] * 2  # written before the bar counts the step
    assert {row["total"] for row in rows} == {4}
    assert all(word in rows[-1]["line"] for word in ("epoch 2/2  3/4", "loss", "lr", "update 3", "it/s", "eta"))


def test_gradients_come_with_every_step_and_updates_with_every_window(diary: Any) -> None:
    rows = diary(backward=ACCUMULATING, sched__epochs=2)
    # four steps per epoch: a window of three, then one of one, cut by the end of the epoch
    assert [row["updates"] for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [row["grad"] for row in rows] == [True, True, False, True] * 2


@pytest.mark.parametrize(("period", "logged"), [(1, [2, 4, 6, 8]), (2, [2, 4])])
def test_log_every_counts_updates_not_steps(tmp_path: Path, period: int, logged: list[int]) -> None:
    cfg = config(tmp_path, log_every=2, sched__epochs=2, backward={**ACCUMULATING, "period": period})
    (result,) = run([cfg], device=[-1], raise_errors=True)
    rows = [json.loads(line) for line in (result.record_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows if "train/loss" in row["values"]] == logged
    assert [row["epoch"] for row in rows if "train/loss_epoch" in row["values"]] == [0, 1]


def loss_after_four_updates(factor: float, lr: float, size: int, period: int) -> float:
    cfg = config(sched__epochs=2, backward={**ACCUMULATING, "period": period})
    cfg["model"] = {"type": f"{__name__}.Scaled", "factor": factor}
    cfg["optim"] = {"type": "alchemy.optim.SGD", "lr": lr}
    cfg["task"]["datasets"]["train"]["batch_size"] = size
    (result,) = run([cfg], device=[-1], raise_errors=True)
    return float(result.ret["loss"]) / factor


def test_the_rate_goes_with_the_scale_of_the_loss_and_not_with_the_cut() -> None:
    first = pytest.approx(loss_after_four_updates(1, 0.1, 8, 1), rel=1e-5)
    assert loss_after_four_updates(1, 0.1, 4, 2) == first
    assert loss_after_four_updates(1, 0.1, 2, 4) == first
    assert loss_after_four_updates(2, 0.05, 8, 1) == first
    assert loss_after_four_updates(2, 0.1, 8, 1) != first


def test_a_validation_leaks_nothing_and_training_goes_on_in_its_mode(diary: Any) -> None:
    rows = diary(evaluates=True, sched__epochs=1)
    assert [row["leaked"] for row in rows] == [False] * 4
    assert all(row["scores"]["loss"] > 0 for row in rows)
    assert {row["training"] for row in rows} == {False}  # the loop sets it again before the next step
