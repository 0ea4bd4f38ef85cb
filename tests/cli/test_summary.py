"""The summary table at the end of a command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from alchemy.checkpoint.manifest import Best, Where
from alchemy.cli.summary import render_runs, summarize
from alchemy.config.tree import Document
from alchemy.errors import RunFailed
from alchemy.result import FailedRun, RunResult


def document(path: str, seed: int, variant: str = "") -> Document:
    config = Document({"seed": seed}, path=path)
    config.variant = variant
    return config


def trained(accuracy: float, epoch: int = 2, **more: float) -> RunResult:
    result = RunResult()
    scores = {"loss": 0.5, "accuracy": accuracy, **more}
    result.best = Best("dev/accuracy", accuracy, Where(10 * epoch, epoch - 1, 10 * epoch - 1), scores)
    result.epoch, result.record_dir, result.split = f"{epoch}/3", Path("records/x"), "dev"
    result.ret = {"loss": 9.0, "accuracy": 0.0}  # from the last evaluation
    return result


def scored(accuracy: float) -> RunResult:
    result = RunResult()
    result.ret = {"accuracy": accuracy, "preds": [1, 2]}
    return result


def failed(*, logged: bool) -> RunResult:
    result = FailedRun.caused_by(RunFailed("no memory\nat all"), {})
    result.is_logged = logged
    return result


def test_a_row_has_config_variant_and_seed_the_best_epoch_and_the_test_beside_dev() -> None:
    documents = [document("a.toml", 1), document("a.toml", 2), document("a.toml", 1, "wide")]
    results = [trained(0.5), trained(0.75, epoch=3), trained(1.0)]
    table = render_runs(documents, results, {0: scored(0.25), 1: scored(0.75)})
    assert [re.split(" {3,}", line) for line in table.splitlines()] == [
        ["experiment", "status", "best epoch  dev", "test", "record"],
        ["a.toml seed 1", "finished  2/3", "accuracy 0.5  loss 0.5", "accuracy 0.25", "records/x"],
        ["a.toml seed 2", "finished  3/3", "accuracy 0.75  loss 0.5", "accuracy 0.75", "records/x"],
        ["a.toml#wide", "finished  2/3", "accuracy 1  loss 0.5", "records/x"],
        ["a.toml mean ± sd", "accuracy 0.62 ± 0.18  loss 0.5 ± 0  accuracy 0.50 ± 0.35"],
    ]


def test_scores_that_do_not_fit_are_left_out_and_the_monitored_one_last() -> None:
    result = trained(0.5, f1=0.25, recall=0.125)
    assert "accuracy 0.5  loss 0.5  f1 0.25  recall 0.125" in render_runs([document("a.toml", 1)], [result])
    head, row = render_runs([document("a.toml", 1)], [result], columns=60).splitlines()
    assert (len(row), head.split()) == (57, ["experiment", "status", "best", "epoch", "dev", "record"])
    assert "accuracy 0.5  records/x" in row


@pytest.mark.parametrize(("logged", "reason"), [(True, ""), (False, "RunFailed: no memory")])
def test_a_failure_that_the_log_has_told_is_not_repeated(logged: bool, reason: str, capsys: Any) -> None:
    documents = [document("a.toml", 1), document("b.toml", 1)]
    assert summarize(documents, [failed(logged=logged), trained(0.5)], {1: failed(logged=logged)}) == 1
    _, first, second = capsys.readouterr().out.strip().splitlines()
    assert first.split("  ")[0] == "a.toml" and reason in first and "at all" not in first
    assert f"failed: {reason}" in second if reason else "failed" in second


def test_without_a_monitor_the_last_scores_are_shown() -> None:
    result = trained(0.5)
    result.best = None
    assert "accuracy 0" in render_runs([document("", 1)], [result]) and "config" in render_runs(
        [document("", 1)], [result]
    )
