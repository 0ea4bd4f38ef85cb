"""Effects of a bad update, extending a finished run, and resources released by a failed run."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from alchemy import resume, run, sym_tbl
from alchemy.checkpoint.files import read
from alchemy.checkpoint.manifest import checkpoints, read_manifest
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError, Refused
from alchemy.pipeline import EvalPipeline
from alchemy.records.status import read_info
from alchemy.sched import AlchemyTrainScheduler
from alchemy.trust import digest_of, trust
from alchemy.update import NotFinite
from alchemy.verify.ledger import verify_ledger
from tests import toy
from tests.logs import warned


class BadBatch(toy.Line):
    """A line after a batch norm; the loss of step `bad` is NaN."""

    def __init__(self, *, bad: int = 99) -> None:
        super().__init__()
        self.model, self.bad = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)), bad

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        if requires_grad and sym_tbl().train_sched.cur_step == self.bad:
            batch = {**batch, "x": batch["x"] * float("nan")}
        return super().forward(batch, needs_loss, requires_grad, **kwargs)


class AllBad(toy.Line):
    """Every loss is NaN."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        return super().forward({**batch, "x": batch["x"] * float("nan")}, needs_loss, requires_grad, **kwargs)


@EvalPipeline.register()
class NoState(EvalPipeline):
    """Has a state, but cannot return it."""

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        return kwargs

    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("on purpose")

    def load_state_dict(self, state: Any) -> None:
        pass


class OwnSteps(AlchemyTrainScheduler):
    """A schedule of an old project without counters."""

    def step_lr(self) -> None:
        pass


def go(cfg: dict[str, Any], **options: Any) -> Any:
    return run([cfg], device=[-1], **options)[0]


@pytest.mark.parametrize("period", [1, 3])
def test_a_bad_update_never_becomes_a_state_to_go_on_from(tmp_path: Path, period: int) -> None:
    model = {"type": f"{__name__}.BadBatch", "bad": 7}
    cfg = toy.config(tmp_path, model=model, backward={"period": period}, checkpoint={"every": 1, "last": 9})
    result = go(cfg)
    assert isinstance(result.exception, NotFinite)
    states = checkpoints(result.record_dir / "state")
    assert states and all("nonfinite" not in read_manifest(path).why for path in states)
    assert all(tensor.isfinite().all() for tensor in read(states[-1])["model.safetensors"].values())
    bad = result.record_dir / "bad"
    update = read_manifest(states[-1]).update + 1
    assert {path.name for path in bad.iterdir()} == {f"u{update}.json", f"u{update - 1}"}

    again = resume(result.record_dir, device=[-1], overrides=["backward.nonfinite='skip'"], allow=["config"])
    assert again.exception is None, again.exception
    assert verify_ledger(again.record_dir).holds


def test_a_nan_loss_stops_half_precision_too(tmp_path: Path) -> None:
    model = {"type": f"{__name__}.BadBatch", "bad": 3}
    result = go(toy.config(tmp_path, model=model, precision={"dtype": "fp16"}))
    assert isinstance(result.exception, NotFinite)
    assert (result.record_dir / "bad" / "u4.json").is_file()


def test_a_training_that_goes_on_longer_reads_the_rest_of_its_epoch(tmp_path: Path) -> None:
    stop = {"any": [{"type": "alchemy.stop.Updates", "updates": 6}]}
    result = go(toy.config(tmp_path, stop=stop))
    assert result.reason == "reached 6 updates"
    longer = resume(result.record_dir, device=[-1], overrides=["stop.any.0.updates=11"], allow=["config"])
    assert longer.reason == "reached 11 updates"
    report = verify_ledger(longer.record_dir)
    assert report.holds and "epoch 2: 16 samples in 4 updates, each once" in str(report)


def test_a_failed_run_with_a_record_frees_its_model(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Fails(toy.Line):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            seen.extend(weakref.ref(part) for part in (self, sym_tbl().optim, sym_tbl().task))
            raise ValueError("on purpose")

    cfg = toy.config(tmp_path)
    result = go(cfg, run_task_fn=_with_model(Fails))
    assert "on purpose" in str(result.exception)
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen) and seen


def _with_model(kind: type) -> Any:
    from alchemy.model import AlchemyModel
    from alchemy.runner import run_task

    AlchemyModel.register("Fails", exist_ok=True)(kind)

    def start(cfg: Any, device_info: Any, **kwargs: Any) -> Any:
        cfg["model"] = {"type": f"{kind.__module__}.Fails"}
        return run_task(cfg, device_info, **kwargs)

    return start


def test_a_schedule_that_forgets_super_still_has_updates(tmp_path: Path) -> None:
    sched = {"type": f"{__name__}.OwnSteps", "epochs": 2, "pipes": []}
    result = go(toy.config(tmp_path, sched=sched, checkpoint={"every": 2}))
    assert result.exception is None, result.exception
    assert [read_manifest(path).update for path in checkpoints(result.record_dir / "state")] == [8]
    assert verify_ledger(result.record_dir).holds


def test_weights_and_average_of_a_checkpoint_load_with_buffers(tmp_path: Path) -> None:
    result = go(toy.config(tmp_path, model={"type": f"{__name__}.BadBatch"}, ema={"decay": 0.5}))
    folder = result.record_dir / "state" / "last"
    averaged = read(folder)["ema.safetensors"]
    cfg = toy.config(model={"type": f"{__name__}.BadBatch", "model_path": str(folder)}, runner="alchemy.runner.Tester")
    seen: dict[str, torch.Tensor] = {}

    def keep(document: Any, device_info: Any, **kwargs: Any) -> Any:
        from alchemy.context import Run
        from alchemy.runner import prepare

        with Run(document, device_info) as context:
            context.device = torch.device("cpu")
            prepare(context)
            seen.update({name: value.clone() for name, value in context.model.module.state_dict().items()})

    keep(cfg, {"device": "cpu"})
    assert all(seen[name].equal(value) for name, value in averaged.items())
    assert seen["0.num_batches_tracked"] == 16


def test_a_reader_that_leaves_does_not_end_a_training(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text(dumps(toy.config(tmp_path / "records")))
    command = f"{sys.executable} -m alchemy run {tmp_path}/toy.toml --device -1 | head -1"
    subprocess.run(command, shell=True, check=True, capture_output=True, cwd=Path(__file__).parents[1], timeout=120)
    (record,) = (tmp_path / "records").iterdir()
    assert read_info(record)["status"] == "finished"
    assert (record / "state" / "last").is_dir()


def test_a_config_that_was_edited_in_its_record_is_another_run(tmp_path: Path) -> None:
    result = go(toy.config(tmp_path, stop={"any": [{"type": "alchemy.stop.Updates", "updates": 6}]}))
    path = result.record_dir / "cfg.toml"
    path.write_text(path.read_text().replace("lr = 0.1", "lr = 0.2"))
    with pytest.raises(AlchemyError, match=r"this config was not written by one of your runs"):
        resume(result.record_dir, device=[-1], overrides=["stop.any.0.updates=9"])
    trust(digest_of(path.read_bytes()), path)
    with pytest.raises(AlchemyError, match=r"cfg.toml: was edited after the run wrote it"):
        resume(result.record_dir, device=[-1], overrides=["stop.any.0.updates=9"])


def test_a_refusal_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    points = {"pipes": [{"type": "tests.toy.Points"}], "batch_size": 4, "shuffle": True}
    task = {"type": "alchemy.task.DefaultTask", "datasets": {"train": points}}
    cfg = toy.config(tmp_path, task=task, stop={"any": [{"type": "alchemy.stop.Updates", "updates": 6}]})
    result = go(cfg)
    before = (result.record_dir / "record.json").read_text()
    changed = ["stop.any.0.updates=9", "task.datasets.train.pipes.0.count=20"]
    with pytest.raises(Refused, match="had samples = 16 and now has 20"):
        resume(result.record_dir, device=[-1], overrides=changed, allow=["config"])
    assert json.loads((result.record_dir / "record.json").read_text()) == json.loads(before)


def test_a_part_that_cannot_give_its_state_is_named(tmp_path: Path) -> None:
    cfg = toy.config(tmp_path)
    cfg["task"]["evalpipes"].append({"type": f"{__name__}.NoState"})
    with warned() as lines:
        result = go(cfg)
    assert result.exception is None
    assert any("state_dict() of 1.NoState failed" in line for line in lines), lines


def test_a_training_without_one_finite_update_fails(tmp_path: Path) -> None:
    cfg = toy.config(optim={"type": "torch.optim.SGD", "lr": 0.1}, backward={"nonfinite": "skip"})
    cfg["model"] = {"type": f"{__name__}.AllBad"}
    assert "all 16 updates were skipped" in str(go(cfg).exception)


@pytest.mark.parametrize("monitor", ["", "dev/loss"])
def test_the_record_names_the_best_that_its_checkpoints_know(tmp_path: Path, monitor: str) -> None:
    result = go(toy.config(tmp_path, checkpoint={"monitor": monitor, "mode": "min"}))
    best = read_info(result.record_dir)["best"]
    assert (best["metric"] if best else "") == monitor
