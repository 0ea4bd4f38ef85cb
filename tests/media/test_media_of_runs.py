"""Media in real runs: tasks and pipes log them, TensorBoard's own reader finds them, and resuming is exact."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alchemy.cli import main
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.pipeline import EndStepPipeline
from alchemy.records.media_entry import KINDS
from alchemy.records.read_media import read_media
from alchemy.resuming import resume
from alchemy.runner import run
from tests.toy import config

BOARD = {"type": "alchemy.plugins.TensorboardLogger", "graph": True}


class LogEverything(EndStepPipeline):
    """Logs one entry of each kind at every second update."""

    def __call__(self, outputs: Any = None, **kwargs: Any) -> dict[str, Any]:
        if self.run.update % 2 == 0:
            log_everything(self.run)
        return kwargs


def log_everything(run: Run) -> None:
    from matplotlib.figure import Figure

    value = next(iter(run.model.parameters())).item()
    run.log_image("shots/one", torch.full((3, 4, 4), 0.5))
    run.log_images("shots/grid", torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(run.update)))
    run.log_figure("shots/figure", Figure((1, 1)))
    run.log_histogram("spread", torch.tensor([value, 2 * value]))
    run.log_text("words", f"weight {value:.6f}")
    run.log_table("rows", ["weight"], [[value]])
    run.log_attention("attention", np.eye(2), ["a", "b"], ["a", "b"])
    run.log_confusion("confusion", ["x", "y"], [[run.update, 0], [0, 1]])
    run.log_embedding("points", torch.ones(3, 2), ["a", "b", "c"])


def train(cfg: dict[str, Any]) -> Path:
    (result,) = run([cfg], device=[-1], raise_errors=True)
    return Path(result.record_dir)


def with_pipes(folder: Path, *pipes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return config(folder, sched__pipes=list(pipes), **{"sched__epochs": 1, **changes})


EVERYTHING = {"type": "tests.media.test_media_of_runs.LogEverything"}


def test_tensorboard_reads_every_kind(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `board` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    cfg = with_pipes(tmp_path, EVERYTHING)
    cfg["plugins"].append(BOARD)
    record = train(cfg)
    events = EventAccumulator(str(record), size_guidance={"images": 0})
    events.Reload()
    tags = events.Tags()
    assert {"train/loss", "dev/loss"} & set(tags["scalars"])
    assert set(tags["images"]) == {"shots/one", "shots/grid", "shots/figure", "attention", "confusion"}
    assert [image.step for image in events.Images("shots/one")] == [2, 4]
    (spread,) = {event.histogram_value.num for event in events.Histograms("spread")}
    assert spread == 2
    texts = {tag: events.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in tags["tensors"]}
    assert texts["words/text_summary"].startswith("weight ") and "| weight |" in texts["rows/text_summary"]
    assert tags["graph"] and len(events.Graph().node) > 2
    hparams = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"optim.lr" in hparams and b"model.type" in hparams
    assert "points" in (record / "projector_config.pbtxt").read_text()
    assert {row["kind"] for row in read_media(record)} == set(KINDS)


def test_media_are_the_same_after_a_signal_and_a_resume(tmp_path: Path) -> None:
    whole = train(with_pipes(tmp_path / "whole", EVERYTHING))
    stop = {"type": "tests.toy.SignalAt", "step": 2}
    record = train(with_pipes(tmp_path / "cut", EVERYTHING, stop))
    assert 0 < len(read_media(record)) < len(read_media(whole))
    resume(record, device=[-1], raise_errors=True)
    assert comparable_media(record) == comparable_media(whole)


def comparable_media(record: Path) -> list[Any]:
    rows = read_media(record)
    return [
        (row["update"], row["epoch"], row["kind"], row["name"], row["info"], (record / row["file"]).read_bytes())
        if row["file"]
        else (row["update"], row["kind"], row["name"], row["info"])
        for row in rows
    ]


def test_tensorboard_forgets_what_a_resume_supersedes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `board` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    cfg = with_pipes(tmp_path, EVERYTHING, sched__epochs=2)
    cfg["plugins"].append(BOARD)
    cfg["checkpoint"] = {"every": 3, "last": 9}
    record = train(cfg)
    for checkpoint in ("u6", "u8"):  # as after a kill before these were saved
        shutil.rmtree(record / "state" / checkpoint)
    info = json.loads((record / "record.json").read_text())
    (record / "record.json").write_text(json.dumps(info | {"status": "killed"}))
    resume(record, device=[-1], raise_errors=True)
    events = EventAccumulator(str(record), size_guidance={"images": 0, "scalars": 0})
    events.Reload()
    for steps in (events.Images("shots/one"), events.Scalars("train/loss")):
        found = [event.step for event in steps]
        assert found == sorted(set(found)) and found[-1] == 8
    listed = re.findall(r"tensor_path: \"(\d+)", (record / "projector_config.pbtxt").read_text())
    assert listed == sorted(set(listed)) and len(listed) == 4


def test_pipes_log_weights_gradients_and_outputs_at_their_updates(tmp_path: Path) -> None:
    pipes = (
        {"type": "LogWeights", "every": 2, "pattern": "*.weight"},
        {"type": "LogGradients", "every": 2},
        {"type": "LogHistograms", "every": 4, "fields": "y"},
        {"type": "LogImages", "every": 3, "field": "x"},
    )
    cfg = with_pipes(tmp_path, *pipes, backward={"period": 2}, sched__epochs=2)
    record = train(cfg)
    found: dict[str, list[int]] = {}
    for row in read_media(record):
        found.setdefault(row["name"], []).append(row["update"])
    assert found["gradients/0.weight"] == found["gradients/0.bias"] == [1, 2, 4]
    assert found["weights/0.weight"] == [1, 2, 4] and "weights/0.bias" not in found
    assert found["train/y"] == [1, 4] and "train/x" not in found  # x is no image, which is a warning


@pytest.mark.parametrize(
    ("pipe", "message"),
    [
        ({"type": "LogWeights", "pattern": "1.weigth"}, "no parameter matches '1.weigth'"),
        ({"type": "LogHistograms", "fields": "z"}, "LogHistograms: no field 'z' in the outputs"),
        ({"type": "LogImages", "field": "picture"}, "LogImages: no field 'picture' in the batch"),
    ],
)
def test_pipes_name_what_does_not_exist(pipe: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match=message):
        train(with_pipes(tmp_path, pipe))


def test_translations_are_logged_with_their_alignments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", ".", "--kind", "translation"]) == 0
    assert main(["run", "train.toml", "--device", "-1", "--set", "sched.epochs=1"]) == 0
    (record,) = (tmp_path / "records").iterdir()
    found = {row["name"]: row["info"] for row in read_media(record)}
    assert found["dev/translations"] == {"rows": 20, "columns": 3}
    assert [name for name in found if "alignment" in name] == [f"dev/alignment/{number}" for number in (1, 2, 3)]
    assert found["dev/alignment/1"]["heads"] == 1 and found["dev/alignment/1"]["columns"] > 1
