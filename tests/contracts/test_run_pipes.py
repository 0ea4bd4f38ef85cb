"""The contract of output, evaluation and scheduler pipes: they pass data on and leave nothing behind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.context import Run
from alchemy.pipeline import (
    BeginEpochPipeline,
    BeginStepPipeline,
    EndEpochPipeline,
    EndStepPipeline,
    EvalPipeline,
    OutputPipeline,
    SchedPipeline,
)
from alchemy.pipeline.output import Collect
from alchemy.registry import build
from tests.contracts.parts import each
from tests.ready import ready
from tests.toy import config

ROWS = [{"pred": 1, "label": 1}, {"pred": 0, "label": 1}, {"pred": 0, "label": 0}]
OUTPUT = {
    "Collect": {"type": "alchemy.pipeline.output.Collect", "varname": "preds"},
    "SaveAppend": {"type": "alchemy.pipeline.output.SaveAppend", "filename": "rows.jsonl"},
}
# eval pipes that need rows of another kind
EVAL = {
    **{
        name: {"type": f"alchemy.pipeline.eval.{name}", "rows": [{"pred": "a cat", "label": "a dog"}]}
        for name in ("BLEU", "ChrF")
    },
    "SpanF1": {"type": "alchemy.pipeline.eval.SpanF1", "rows": [{"pred": ["B-A", "O"], "tags": ["B-A", "O"]}]},
}
SCHED: dict[str, dict[str, Any]] = {
    "Freeze": {"type": "alchemy.pipeline.freeze.Freeze", "pattern": "*weight"},
    "EvalES": {"type": "alchemy.pipeline.sched.EvalESPipeline", "period": 1},
    "SetRequiresGrad": {
        "type": "alchemy.pipeline.sched.SetRequiresGradBSPipeline",
        "step": 0,
        "requires_grad": False,
        "mode": "*weight",
    },
}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with ready(config(task__evalpipes=[])) as run:
        run.record_dir = tmp_path
        yield run


@each("output pipe", OUTPUT)
def test_an_output_pipe_gives_something_for_each_sample_and_changes_nothing_it_got(
    table: dict[str, Any], run: Run
) -> None:
    outputs = {"logits": torch.eye(3), "text": ["a", "b", "c"]}
    before, batch = copy.deepcopy(outputs), {"label": torch.arange(3)}
    pipe = build(OutputPipeline, table)
    first, second = pipe(outputs, batch), pipe(outputs, batch)
    torch.testing.assert_close((outputs["logits"], batch["label"]), (before["logits"], torch.arange(3)))
    assert outputs.keys() == before.keys()
    assert (len(first["text"]) if isinstance(first, dict) else len(first)) == 3
    assert str(first) == str(second)


def eval_pipe(table: dict[str, Any], **more: Any) -> Any:
    return build(EvalPipeline, {**{key: value for key, value in table.items() if key != "rows"}, **more})


@each("eval pipe", EVAL)
def test_an_eval_pipe_hands_on_the_scores_and_forgets_what_a_failed_evaluation_left(
    table: dict[str, Any], run: Run
) -> None:
    rows = table.get("rows", ROWS)
    pipe = eval_pipe(table)
    found = []
    for left_over in ([], ["of an evaluation that failed"]):
        run.symbols.set_global("preds", list(left_over))
        pipe.begin_eval("dev")
        if not left_over:
            run.symbols.try_pop_global("preds")
        Collect("preds")(copy.deepcopy(rows), {})
        found.append(pipe("dev", other=1.0, accuracy=0.5, preds=copy.deepcopy(rows)))
    assert found[0] == found[1] and found[0]["other"] == 1.0 and found[0]["preds"] == rows


@each("eval pipe", EVAL)
def test_an_eval_pipe_can_be_switched_off(table: dict[str, Any], run: Run, tmp_path: Path) -> None:
    rules, watches = list(run.stop_rules), list(run.watches)
    pipe = eval_pipe(table, enabled=False)
    pipe.begin_eval("dev")
    assert pipe("dev", other=1) == {"other": 1}
    assert list(tmp_path.iterdir()) == [] and (run.stop_rules, run.watches) == (rules, watches)


@each("sched pipe", SCHED)
def test_a_sched_pipe_hands_on_its_keywords_at_each_of_its_moments(table: dict[str, Any], run: Run) -> None:
    pipe = build(SchedPipeline, table)
    moments: dict[Any, list[Any]] = {
        BeginEpochPipeline: [],
        BeginStepPipeline: [{"image": torch.zeros(1, 1, 2, 2)}],
        EndStepPipeline: [{"loss": 1.0, "logits": torch.zeros(1)}],
        EndEpochPipeline: [],
    }
    called = [pipe(*copy.deepcopy(args), x=1) for kind, args in moments.items() if isinstance(pipe, kind)]
    assert called and called == [{"x": 1}] * len(called)
