"""Replaying one update of a record: the metrics equal those of the run, and a NaN is traced to a line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from alchemy.checkpoint.files import read, write
from alchemy.checkpoint.manifest import read_manifest
from alchemy.errors import AlchemyError
from alchemy.records.metrics_file import read_metrics
from alchemy.runner import run
from alchemy.verify.replay import replay


def record(checkpoint: dict[str, Any] | None = None, **model: Any) -> Path:
    from promises import config  # type: ignore[import-not-found]

    cfg = config("records", **model)
    cfg["checkpoint"] = {"every": 2, "last": 4, **(checkpoint or {})}
    (result,) = run([cfg], device=[-1])
    assert result.record_dir is not None
    return result.record_dir


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("update", "start"), [(6, "state/u4"), (5, "state/u4"), (2, "the start")])
def test_an_update_comes_out_as_it_did(update: int, start: str) -> None:
    folder = record()
    before = everything(folder)
    report = replay(folder, update, device=[-1])
    rows = {
        row["update"]: row["values"] for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row["values"]
    }
    assert report.start.startswith(start)
    assert report.loss == rows[update]["train/loss"]
    assert report.grad_norm == pytest.approx(rows[update]["train/grad_norm"], rel=1e-6)
    assert (report.made, report.finite, report.same_samples, report.notes) == (True, True, True, [])
    assert report.change is not None and report.change[0] > 0
    assert everything(folder) == before


def test_every_step_of_a_window_is_shown() -> None:
    from promises import config

    cfg = config("records") | {"backward": {"period": 3}}
    cfg["task"]["datasets"]["train"] |= {"batch_size": 2}
    (result,) = run([cfg], device=[-1], raise_errors=True)
    report = replay(str(result.record_dir), 2, device=[-1])
    assert [step.step for step in report.steps] == [3, 4]
    assert [len(step.ids or []) for step in report.steps] == [2, 2]
    assert "step 4, epoch 1, samples " in str(report)
    assert "gradient norm " in str(report)


@pytest.mark.parametrize(
    ("update", "names"), [(3, ["loss_discriminator"]), (4, ["loss_discriminator", "loss_generator"])]
)
def test_the_loss_of_each_optimizer_is_shown_by_its_name(update: int, names: list[str]) -> None:
    from tests.gan import config

    cfg = config(Path("records"), log_every=1, task__n_critic=2)
    (result,) = run([cfg], device=[-1], raise_errors=True)
    report = replay(str(result.record_dir), update, device=[-1])
    rows = {row["update"]: row["values"] for row in read_metrics(Path(str(result.record_dir)) / "metrics.jsonl")}
    logged = {name.removeprefix("train/"): value for name, value in rows[update].items() if "/loss_" in name}
    assert list(report.losses) == names
    assert report.losses == {name: logged[name] for name in names}
    (step,) = report.plain()["steps"]
    assert [f"loss_{name}" for name in step["named"]] == names
    assert [part["count"] for part in step["named"].values()] == [64.0] * len(names)
    for name in names:
        assert re.search(rf"^  {name} \S+ over 64$", str(report), re.MULTILINE)
        assert f"{name} {report.losses[name]:.9g}, " in str(report)


def test_a_nan_is_made_again_and_its_line_is_named() -> None:
    folder = record(breaks="nan", after=4)
    report = replay(folder, 5, device=[-1])
    assert report.recorded.startswith("the loss is not finite in update 5")
    assert (report.finite, report.same_samples, report.culprit) == (False, True, "")
    assert "the update fails: NotFinite: the loss is not finite in update 5" in str(report)
    debugged = replay(folder, 5, device=[-1], debug=True)
    assert debugged.culprit.startswith("the first NaN comes from log at ")
    assert "promises.py:" in debugged.culprit.partition("\n")[0]
    assert "the line that a replay must name" in debugged.culprit
    assert json.loads(json.dumps(debugged.plain(), allow_nan=False))["loss"] == "nan"


def test_a_nan_of_the_backward_pass_is_traced_to_its_forward_call() -> None:
    folder = record(breaks="sqrt", after=4)
    report = replay(folder, 5, device=[-1])
    assert report.not_finite
    assert "non-finite gradients: " in str(report)
    debugged = replay(folder, 5, device=[-1], debug=True)
    head, *trace = debugged.culprit.splitlines()
    assert re.match(r"the first NaN comes from \w+Backward0, from a forward call at \S*promises.py:\d+", head)
    assert "torch.sqrt((loss_sum" in trace[-1]
    assert "the update fails: RuntimeError: Function " in str(debugged)


def test_an_update_that_raised_shows_its_samples_and_the_error() -> None:
    folder = record(breaks="raises", after=4)
    report = replay(folder, 5, device=[-1])
    assert (
        "the update fails: IndexError: index out of range in self\n  in epoch 2/2, update 5, step 4, samples "
        in str(report)
    )
    assert not report.made


def test_a_debugged_update_without_a_nan_has_no_culprit() -> None:
    report = replay(record(), 5, device=[-1], debug=True)
    assert (report.made, report.culprit, report.same_samples) == (True, "", True)


def by_two(folder: Path, **data: Any) -> None:
    """Make the state of update 4 one of two processes, and the only one."""
    source = folder / "state" / "u4"
    files = read(source)
    parts = files["state.json"]["parts"]
    parts["metrics"]["ranks"] *= 2
    parts["data"] |= data
    write(folder / "u4", files, read_manifest(source))
    shutil.rmtree(folder / "state")
    (folder / "state").mkdir()
    (folder / "u4").rename(source)


@pytest.mark.parametrize("update", [5, 2])
def test_what_several_processes_have_made_is_said(update: int) -> None:
    folder = record()
    by_two(folder)
    report = replay(folder, update, device=[-1])
    (note,) = report.notes
    assert note.startswith("2 processes ran this update, each with its own random numbers")
    assert report.same_samples is True
    assert note in str(report)


@pytest.mark.parametrize("key", ["window", "ranks"])
def test_batches_of_each_process_cannot_be_made_by_one(key: str) -> None:
    folder = record()
    by_two(folder, **{key: 2})
    with pytest.raises(AlchemyError, match="was trained by 2 processes with separate batches"):
        replay(folder, 5, device=[-1])


def test_the_first_of_several_processes_knew_a_part_of_a_bad_update() -> None:
    folder = record(breaks="nan", after=4)
    path = folder / "bad" / "u5.json"
    row = json.loads(path.read_text())
    by_two(folder)
    path.write_text(json.dumps(row | {"ids": [step[:1] for step in row["ids"]]}))
    shutil.rmtree(folder / "bad" / "u4", ignore_errors=True)
    assert replay(folder, 5, device=[-1]).same_samples is True
    path.write_text(json.dumps(row | {"ids": [[-1] for _ in row["ids"]]}))
    assert replay(folder, 5, device=[-1]).same_samples is False


def test_what_cannot_be_replayed_is_one_error() -> None:
    folder = record()
    for update in (0, 7):
        with pytest.raises(AlchemyError, match=rf"has no update {update}; it has updates 1 to 6"):
            replay(folder, update, device=[-1])
    info = json.loads((folder / "record.json").read_text())
    failed = json.dumps(info | {"status": "failed"})
    (folder / "record.json").write_text(failed)
    for update in (0, 8, 10**9):
        with pytest.raises(
            AlchemyError, match=rf"has no update {update}; it has updates 1 to 6, and may have failed in update 7$"
        ):
            replay(folder, update, device=[-1])
    with pytest.raises(AlchemyError, match=r"training ends before update 7; the last update is 6"):
        replay(folder, 7, device=[-1])
    (folder / "cfg.toml").rename(folder / "away.toml")
    with pytest.raises(AlchemyError, match=r"has no cfg.toml"):
        replay(folder, 1, device=[-1])


@pytest.mark.parametrize("breaks", ["nan", "raises"])
def test_the_update_in_which_a_run_failed_is_named(breaks: str) -> None:
    folder = record({"every": 100}, breaks=breaks, after=2)
    for update in (0, 4, 10**9):
        with pytest.raises(
            AlchemyError, match=rf"has no update {update}; it has updates 1 to 2, and failed in update 3$"
        ):
            replay(folder, update, device=[-1])
    assert not replay(folder, 3, device=[-1]).finite


def test_data_that_has_changed_is_needed_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import promises

    folder = record()
    monkeypatch.setattr(promises.Sentences, "__len__", lambda self: 12)
    message = r"had samples = 10 and now has 12: .*; the data has changed; replay needs the original data$"
    with pytest.raises(AlchemyError, match=message):
        replay(folder, 5, device=[-1])
