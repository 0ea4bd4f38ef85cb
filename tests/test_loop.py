"""The training loop: order of events, metrics, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.records.metrics_file import read_metrics
from alchemy.records.status import read_info
from alchemy.runner import run
from tests.toy import config


def go(cfg: dict[str, Any], **options: Any) -> Any:
    (result,) = run([cfg], device=[-1], raise_errors=True, **options)
    return result


def traced(tmp_path: Path, **changes: Any) -> list[float]:
    path = tmp_path / "trace.txt"
    path.unlink(missing_ok=True)
    cfg = config(**changes)
    cfg["sched"]["pipes"] = [{"type": "tests.toy.Trace", "path": str(path)}]
    go(cfg)
    return [float(line) for line in path.read_text().split()]


def test_same_seed_same_curve_and_another_seed_another(tmp_path: Path) -> None:
    dropout = {"type": "tests.toy.Line", "dropout": 0.3}
    first = traced(tmp_path, model=dropout)
    assert traced(tmp_path, model=dropout) == first
    assert traced(tmp_path, model=dropout, seed=2) != first


def test_the_record_holds_every_number_under_its_name(tmp_path: Path) -> None:
    result = go(config(tmp_path, sched__epochs=2))
    rows = list(read_metrics(result.record_dir / "metrics.jsonl"))
    names = {name for row in rows for name in row["values"]}
    assert {"train/loss", "train/lr", "time/step", "time/steps_per_s", "system/rss", "dev/loss", "dev/score"} <= names
    assert [row["update"] for row in rows if "train/lr" in row["values"]] == [2, 4, 6, 8]
    assert all(set(row) == {"update", "step", "epoch", "t", "gen", "values"} for row in rows)


def test_training_ends_with_an_evaluation_and_the_last_weights(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    cfg = config(tmp_path / "records")
    cfg["task"]["evalpipes"] = [{"type": "tests.toy.Count", "path": str(calls)}]
    result = go(cfg)
    assert calls.read_text().split() == ["dev"]
    assert result.ret["score"] > 0 and result.ret["loss"] > 0
    assert (result.record_dir / "state" / "last" / "model.safetensors").is_file()


def test_an_evaluation_at_the_last_epoch_is_not_made_twice(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    cfg = config(sched__pipes=[{"type": "alchemy.pipeline.sched.EvalEEPipeline", "period": 2}])
    cfg["task"]["evalpipes"] = [{"type": "tests.toy.Count", "path": str(calls)}]
    go(cfg)
    assert calls.read_text().split() == ["dev", "dev"]


def test_fast_dev_run_and_overfit_see_few_batches(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    pipes = [{"type": "tests.toy.Trace", "path": str(path)}]
    go(config(tmp_path / "records", sched__pipes=pipes), fast_dev_run=2)
    assert len(path.read_text().split()) == 2
    assert not (tmp_path / "records").exists()
    go(config(sched__pipes=pipes, optim={"type": "torch.optim.SGD", "lr": 0.0}), overfit=1)
    losses = path.read_text().split()[2:]
    assert len(losses) == 4 and len(set(losses)) == 1


def test_the_mean_loss_of_an_evaluation_weighs_samples_not_batches(tmp_path: Path) -> None:
    def loss(batch_size: int) -> float:
        cfg = config(optim={"type": "torch.optim.SGD", "lr": 0.0}, sched__epochs=1)
        cfg["task"]["datasets"]["dev"] = {**cfg["task"]["datasets"]["dev"], "batch_size": batch_size}
        return go(cfg).ret["loss"]

    assert loss(5) == pytest.approx(loss(16), rel=1e-6)


def test_old_models_log_their_mean_loss(tmp_path: Path) -> None:
    result = go(config(tmp_path, model={"type": "tests.toy.OldLine"}))
    rows = [row["values"] for row in read_metrics(result.record_dir / "metrics.jsonl")]
    assert rows[-1]["dev/loss"] < rows[0]["train/loss"]


def test_a_stream_without_length_trains(tmp_path: Path) -> None:
    datasets = {"train": {"pipes": [{"type": "tests.toy.Stream"}]}}
    result = go(config(tmp_path, task={"type": "alchemy.task.DefaultTask", "datasets": datasets}))
    assert read_info(result.record_dir)["status"] == "finished"


def test_a_logger_that_fails_does_not_stop_training(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    cfg["plugins"].append({"type": "tests.toy.Listener"})
    result = go(cfg)
    log = (result.record_dir / "run.log").read_text()
    assert log.count("Listener failed to log; training continues") == 1
    assert "disk [full]" in log


def test_the_loss_of_a_task_with_its_own_evaluation_step_is_that_of_all_batches() -> None:
    cfg = config(sched__epochs=1, task__type="tests.toy.OwnSteps")
    losses = [abs(x) for x in torch.linspace(-1, 1, 16).tolist()]
    batches = [sum(losses[i : i + 4]) for i in range(0, 16, 4)]
    assert go(cfg).ret["loss"] == pytest.approx(sum(batches) / 4, rel=1e-6)


def test_end_epoch_pipes_run_when_the_updates_end_training(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    sched = {"type": "alchemy.sched.Constant", "num_training_steps": 6}
    cfg = config(sched={**sched, "pipes": [{"type": "alchemy.pipeline.sched.EvalEEPipeline", "period": 1}]})
    cfg["task"]["evalpipes"] = [{"type": "tests.toy.Count", "path": str(calls)}]
    result = go(cfg)
    assert calls.read_text().split() == ["dev", "dev"]
    assert result.reason == "reached 6 updates"


def test_the_last_weights_are_scored_once_though_another_split_came_after(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    pipes = [
        {"type": "alchemy.pipeline.sched.EvalEEPipeline", "period": 4, "split": split} for split in ("dev", "test")
    ]
    cfg = config(sched__pipes=pipes)
    cfg["task"]["evalpipes"] = [{"type": "tests.toy.Count", "path": str(calls)}]
    go(cfg)
    assert calls.read_text().split() == ["dev", "test"]


def test_numbers_are_logged_though_epochs_are_shorter_than_log_every(tmp_path: Path) -> None:
    result = go(config(tmp_path, log_every=6))
    rows = [row for row in read_metrics(result.record_dir / "metrics.jsonl") if "train/lr" in row["values"]]
    assert [row["update"] for row in rows] == [6, 12]


def test_time_of_evaluations_is_no_part_of_a_step(tmp_path: Path) -> None:
    cfg = config(tmp_path, log_every=1, sched__pipes=[{"type": "alchemy.pipeline.sched.EvalESPipeline", "period": 8}])
    cfg["task"]["evalpipes"] = [{"type": "tests.toy.Slow", "seconds": 2.0}]
    rows = [row["values"] for row in read_metrics(go(cfg).record_dir / "metrics.jsonl")]
    evaluated = [i for i, row in enumerate(rows) if "time/eval_dev" in row]
    # the step after an evaluation is logged next; the sleep would dominate its time
    assert len(evaluated) == 2
    assert all(rows[i + 1]["time/step"] < 2.0 <= rows[i]["time/eval_dev"] for i in evaluated)


def test_a_signal_leaves_an_evaluation_too(tmp_path: Path) -> None:
    cfg = config(tmp_path, runner="alchemy.runner.Tester")
    cfg["task"]["outputpipes"] = [{"type": "tests.toy.SignalOnce"}]
    (result,) = run([cfg], device=[-1])
    assert (result.status, result.signal, result.ret) == ("stopped", 15, None)
    assert read_info(result.record_dir)["status"] == "stopped"
