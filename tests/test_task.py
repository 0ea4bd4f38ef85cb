"""Return values of parts are checked, and errors and warnings name the part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.legacy.adapt import adapt, build_updater
from alchemy.model import AlchemyModel
from alchemy.optim import build_optimizer
from alchemy.pipeline import EvalPipeline, OutputPipeline
from alchemy.plain_model import build_model
from alchemy.sched import build_sched
from alchemy.task import AlchemyTask, DefaultTask, build_task


class Gives(EvalPipeline):
    def __init__(self, value: Any = None) -> None:
        super().__init__()
        self.value = value

    def __call__(self, split: str, **kwargs: Any) -> Any:
        return self.value


class Silent(OutputPipeline):
    def __call__(self, outputs: Any, inputs: Any) -> Any:
        return None


class NoSuper(AlchemyTask):
    """Does not call the base constructor."""

    def __init__(self) -> None:
        self.evalpipes = [Gives({"f1": 1.0})]


class Model(AlchemyModel):
    """Train, forget to train, or make its own updates, depending on `how`; its loss always has a graph."""

    def __init__(self, *, how: str = "handler") -> None:
        super().__init__()
        self.model, self.how = nn.Linear(1, 1), how

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        loss = self.model(batch).square().sum()
        if self.how == "handler":
            self.backward.backward(loss, requires_grad=requires_grad, count=1)
        elif self.how == "itself":
            loss.backward()
        return {"loss": self.model(batch).squeeze(1) if self.how == "vector" else self.model(batch).sum()}


class Short(Model):
    def forward(self) -> Any:
        return {}


class Wrong(Model):
    """Return the value named `how`, in the current style."""

    def forward(self, batch: Any) -> Any:
        return self.model(batch) if self.how == "tensor" else {"y": self.model(batch)}

    def loss(self, outputs: Any, batch: Any) -> Any:
        return outputs["y"].sum()


class OwnTask(DefaultTask):
    def step(self, batch: Any) -> Any:
        return "", self.run.model.forward(batch)

    def eval_step(self, batch: Any, needs_loss: bool = True) -> Any:
        return "", self.run.model.forward(batch)


def training(kind: str = "Model", **model: Any) -> Run:
    return Run(
        {
            "task": {"type": "alchemy.task.DefaultTask"},
            "model": {"type": f"{__name__}.{kind}", **model},
            "optim": {"type": "torch.optim.SGD", "lr": 0.1},
            "sched": {"type": "alchemy.sched.Constant", "epochs": 1},
        }
    )


def begin(run: Run) -> Any:
    run.task = build_task(run)
    run.model = build_model(run)
    run.optim, run.updater = build_optimizer(run), build_updater(run, run.model)
    run.train_sched = build_sched(run)
    adapt(run, run.task, run.model)
    return run.task


def test_scores_flow_past_an_eval_pipe_that_returns_nothing(warnings: list[str]) -> None:
    with Run({}):
        task = DefaultTask()
        task.evalpipes = [Gives({"f1": 0.5}), Gives(None)]
        assert [task.end_eval("dev"), task.end_eval("dev")] == [{"f1": 0.5}] * 2
        assert len(warnings) == 1 and "test_task.Gives returned None" in warnings[0]
        task.evalpipes = [Gives([0.5])]
        with pytest.raises(AlchemyError, match=r"eval pipe .*Gives returned a list; expected a dict of scores"):
            task.end_eval("dev")


def test_an_output_pipe_that_returns_nothing_is_named_once(warnings: list[str]) -> None:
    with training() as run:
        task = begin(run)
        task.outputpipes = [Silent(), Silent()]
        for _ in range(2):
            task.eval_step(torch.ones(2, 1))
        assert len(warnings) == 1 and "test_task.Silent returned None" in warnings[0]


@pytest.mark.parametrize("pair", [[1, 2], (1, 2, 3), {"a": 1}, ([1], None)])
def test_a_data_set_without_the_arguments_of_its_loader_is_refused(pair: Any) -> None:
    with Run({}):
        task = DefaultTask()
        task._datasets["train"] = pair
        with pytest.raises(AlchemyError, match=r"DefaultTask._datasets\['train'\] is a \w+; expected a pair"):
            task.dataset("train")


def test_a_task_may_forget_the_constructor_of_its_base() -> None:
    with Run({"task": {"type": f"{__name__}.NoSuper"}}) as run:
        task: Any = build_task(run)
        run.task = task
        assert task.run is run
        assert task.end_eval("dev") == {"f1": 1.0}
        with pytest.raises(AlchemyError, match="no dataset for the split 'dev'"):
            task.dataset("dev")
        with pytest.raises(AttributeError, match="'NoSuper' object has no attribute 'vocabulary'"):
            _ = task.vocabulary


def test_a_model_that_forgets_the_backward_handler_is_told() -> None:
    with training(how="forgets") as run:
        task = begin(run)
        with pytest.raises(AlchemyError, match=r"forward did not call self.backward.backward, so the model is not"):
            task.step(torch.ones(2, 1))


@pytest.mark.parametrize("how", ["handler", "itself"])
def test_a_model_that_trains_may_return_a_loss_with_its_graph(how: str) -> None:
    with training(how=how) as run:
        task = begin(run)
        assert all("loss" in task.step(torch.ones(2, 1))[1] for _ in range(3))


def test_a_loss_for_each_sample_is_refused() -> None:
    with training(how="vector") as run:
        task = begin(run)
        with pytest.raises(AlchemyError, match=r"returned by Model.forward has shape \[2\]; expected a scalar"):
            task.step(torch.ones(2, 1))


def test_a_forward_that_cannot_be_called_is_refused_unless_the_task_has_steps_of_its_own() -> None:
    with training("Short") as run:
        with pytest.raises(AlchemyError, match=r"Short.forward\(\).*cannot be called with a batch.*define forward\("):
            begin(run)
        adapt(run, OwnTask(), build_model(run))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("tensor", r"Wrong.forward returned a Tensor; return a dict of outputs"),
        ("sum", r"Wrong.loss returned a Tensor; return a pair: the sum of the losses and their count"),
    ],
)
def test_what_a_model_should_have_returned_is_said(how: str, message: str) -> None:
    with training("Wrong", how=how) as run, pytest.raises(AlchemyError, match=message):
        begin(run).step(torch.ones(2, 1))
