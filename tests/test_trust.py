"""What a bad update leaves, how a training that was ended goes on longer, what a failed run frees."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from alchemy import resume, run, sym_tbl
from alchemy.backward import NotFinite
from alchemy.checkpoint.files import read
from alchemy.checkpoint.manifest import checkpoints, read_manifest
from alchemy.sched import AlchemyTrainScheduler
from alchemy.verify.ledger import check
from tests import toy


class BadBatch(toy.Line):
    """A line behind a batch norm; the step number `bad` gives NaN."""

    def __init__(self, *, bad: int = 99) -> None:
        super().__init__()
        self.model, self.bad = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)), bad

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        if requires_grad and sym_tbl().train_sched.cur_step == self.bad:
            batch = {**batch, "x": batch["x"] * float("nan")}
        return super().forward(batch, needs_loss, requires_grad, **kwargs)


class OwnSteps(AlchemyTrainScheduler):
    """A schedule of an old project: it counts nothing."""

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
    assert check(again.record_dir).holds


def test_a_nan_loss_stops_half_precision_too(tmp_path: Path) -> None:
    model = {"type": f"{__name__}.BadBatch", "bad": 3}
    result = go(toy.config(tmp_path, model=model, precision={"dtype": "fp16"}))
    assert isinstance(result.exception, NotFinite)
    assert (result.record_dir / "bad" / "u4.json").is_file()


def test_a_training_that_goes_on_longer_reads_the_rest_of_its_epoch(tmp_path: Path) -> None:
    stop = {"any": [{"type": "alchemy.stop.Updates", "updates": 6}]}
    result = go(toy.config(tmp_path, stop=stop))
    assert result.reason == "6 updates are made"
    longer = resume(result.record_dir, device=[-1], overrides=["stop.any.0.updates=11"], allow=["config"])
    assert longer.reason == "11 updates are made"
    report = check(longer.record_dir)
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
    assert check(result.record_dir).holds


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
