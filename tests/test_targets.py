"""Invalid targets, metrics that cannot be logged, data without samples: one clear error each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import alchemy.context
from alchemy.errors import AlchemyError
from alchemy.metrics.metric_stack import Stack
from alchemy.metrics.scalars import numbers_in
from alchemy.runner import run_task
from tests.labeled import HUGE, MODELS, config
from tests.tasks.texts import config as text_config


def failure(cfg: dict[str, Any]) -> str:
    """Return the error message of a run that must fail."""
    with pytest.raises(AlchemyError, match=r"\w") as caught:
        run_task(cfg, raise_errors=True)
    return str(caught.value)


@pytest.mark.parametrize("model", MODELS)
def test_a_training_without_a_single_target_fails(model: str) -> None:
    result = run_task(config("ignored", model=model))
    assert result.status == "failed" and "nothing was learned: all targets were ignored" in result.reason
    assert run_task(config("some ignored", model=model)).status == "finished"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("labels", "target"), [("negative", -1), ("large", 3)])
def test_a_target_that_is_no_class_is_named_with_its_sample(model: str, labels: str, target: int) -> None:
    told = failure(config(labels, model=model))
    assert told.startswith(f"rows.txt:6 [criterion] the target {target} is out of range: the model has 3 classes")


def test_a_target_of_dev_that_is_no_class_is_named_too() -> None:
    cfg = config()
    cfg["task"]["datasets"]["dev"]["pipes"][0]["labels"] = "large"
    told = failure(cfg)
    assert told.startswith("rows.txt:6 [criterion] the target 3 is out of range")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("labels", "message"),
    [("names", "the target is 'a', expected"), ("none", "the target is None, expected"), ("booleans", "torch.bool")],
)
def test_targets_that_are_no_numbers_are_told(model: str, labels: str, message: str) -> None:
    assert message in failure(config(labels, model=model))


def test_a_module_that_computes_its_own_loss_names_the_sample() -> None:
    cfg = config("large")
    cfg["model"] = {"type": "tests.labeled.OwnLoss", "inputs": {"labels": "label"}}
    told = failure(cfg)
    assert told.startswith("rows.txt:6 [criterion] the target 3 is out of range")


def test_data_without_samples_is_told_before_the_first_step() -> None:
    assert "the data is empty: tests.labeled.Rows yields nothing" in failure(config(train=0))
    cfg = config(dev=0)
    cfg["sched"]["pipes"] = [{"type": "tests.toy.FailAt", "step": 0}]
    assert failure(cfg).startswith("[task.datasets.dev] the data is empty")


def test_a_metric_that_is_too_large_is_named() -> None:
    assert "the metric 'perplexity' is too large for a float" in failure(
        config(evalpipes=[{"type": "tests.labeled.Score"}])
    )
    with pytest.raises(AlchemyError, match="the metric 'big' is too large for a float"):
        numbers_in({"good": 1, "big": HUGE})
    with alchemy.context.Run({}) as run, pytest.raises(AlchemyError, match="the metric 'big' is too large for a float"):
        run.log({"big": HUGE})


@pytest.mark.parametrize("kind", ["log", "sum", "max", "last", "rate"])
def test_a_metric_that_is_too_large_for_a_scope_is_named(kind: str) -> None:
    metrics = Stack()
    for value in (1, HUGE):
        getattr(metrics, kind)("big", value)
    with pytest.raises(AlchemyError, match=r"big.* is too large for a float"):
        metrics.current.values()


@pytest.mark.parametrize("value", [None, True])
@pytest.mark.parametrize("kind", ["single", "regression", "multi"])
def test_a_label_of_a_text_that_is_none_is_told_with_its_line(value: Any, kind: str, tmp_path: Path) -> None:
    cfg = text_config(tmp_path, "classes")
    target, label, wrong = {
        "single": ("label", "a", value),
        "multi": ("labels", "a", [value]),
        "regression": ("label", "1.5", value),
    }[kind]
    (tmp_path / "data.csv").write_text(f"text,{target}\na day,{label}\n")
    pipe = {"type": "alchemy.pipeline.processors.TextClassification", "kind": kind, "path": str(tmp_path / "data.csv")}
    change = {"type": "alchemy.pipeline.lst.Map", "fn": "builtins.dict", "args": {target: wrong}}
    cfg["task"] |= {"kind": kind, "datasets": {"train": {"pipes": [pipe, change], "batch_size": 2}}}
    assert f"data.csv:2 [task.datasets.train] the label is {value}, expected a" in failure(cfg)


def test_a_tag_that_is_no_class_is_told(tmp_path: Path) -> None:
    cfg = text_config(tmp_path, "tagging")
    cfg["model"]["classes"] = 2
    assert "is out of range" in failure(cfg)
