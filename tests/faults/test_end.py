"""Fault 12: no evaluation or checkpoint at the end of training, no mean loss, and `evaluate` returned nothing."""

import json
from typing import Any

import pytest

from alchemy import run, sym_tbl
from alchemy.pipeline import EndEpochPipeline, SchedPipeline
from alchemy.runner import evaluate

RETURNED: list[Any] = []


@SchedPipeline.register()
class Ask(EndEpochPipeline):
    def __call__(self, **kwargs):
        RETURNED.append(evaluate("dev"))
        weight, bias = (p.item() for p in sym_tbl().model.model.parameters())
        RETURNED.append(sum((weight * x + bias - 3 * x - 0.5) ** 2 for x in (i / 4 - 1 for i in range(8))) / 8)
        return kwargs


def record_of(tmp_path, pipes):
    import line_parts

    # 8 samples in batches of 3: the last batch is smaller, so that a mean of means would be another number
    data = {"train": {"batch_size": 2, "shuffle": True}, "dev": {"batch_size": 3}}
    sched = {"type": "alchemy.sched.Constant", "epochs": 1, "pipes": pipes}
    cfg = line_parts.config(folder=tmp_path, sched=sched, task={"type": "line_parts.LineTask", "datasets": data})
    result = run([cfg], device=[-1])[0]
    assert result.exception is None, result.exception
    rows = [json.loads(line) for line in (result.record_dir / "metrics.jsonl").read_text().splitlines()]
    return result, [(row["update"], row["values"]["dev/loss"]) for row in rows if "dev/loss" in row["values"]]


@pytest.mark.parametrize("period", [None, 3, 4])
def test_the_last_weights_are_scored_once_and_saved(tmp_path, period):
    pipes = [{"type": "alchemy.pipeline.sched.EvalStepESPipeline", "period": period}] if period else []
    result, losses = record_of(tmp_path, pipes)
    assert [update for update, _ in losses] == ([3, 4] if period == 3 else [4])
    assert result.ret["loss"] == pytest.approx(losses[-1][1])
    assert list((result.record_dir / "state" / "last").glob("model.safetensors"))


def test_evaluate_returns_the_mean_loss_over_samples(tmp_path):
    RETURNED.clear()
    record_of(tmp_path, [{"type": f"{__name__}.Ask"}])
    scores, expected = RETURNED
    assert scores["loss"] == pytest.approx(expected, rel=1e-5)
