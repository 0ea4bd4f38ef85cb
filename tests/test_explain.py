"""Explanations of predictions: contributions add up, and find what decides."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import alchemy
from alchemy.cli import main
from alchemy.errors import AlchemyError
from alchemy.explain import draw_heat
from alchemy.models.fasttext import NGrams
from alchemy.runner import run_task
from tests.tasks import pictures
from tests.tasks.texts import TEXTS, config
from tests.trained import trained


@pytest.mark.parametrize("encoder", ["Recurrent", "Transformer", "NGrams"])
def test_the_contributions_to_a_text_add_up(encoder: str, tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes")
    home = "fasttext" if encoder == "NGrams" else "encoders"
    cfg["model"]["encoder"] = {"type": f"alchemy.models.{home}.{encoder}", "dim": 8, "dropout": 0.0}
    cfg["sched"]["epochs"] = 1
    record = run_task(cfg, raise_errors=True).record_dir
    assert record is not None
    with alchemy.load(record) as model:
        (found,) = model.explain(["a fine rain"], steps=256)
        (rough,) = model.explain(["a fine rain"], steps=1)
        batch = model._inputs.build_batch("", "a fine rain")
        with torch.no_grad():
            logits = model._context.run(model.run.task.run_model, batch, False)["logits"][0]
            table = next(part for part in model.module.modules() if isinstance(part, torch.nn.Embedding))
            handle = table.register_forward_hook(lambda part, args, result: torch.zeros_like(result))
            baseline = model._context.run(model.run.task.run_model, batch, False)["logits"][0]
            handle.remove()
    chosen = int(logits.argmax())
    assert found["tokens"] == ["a", "fine", "rain"] and len(rough["attributions"]) == 3
    assert sum(found["attributions"]) == pytest.approx(float(logits[chosen] - baseline[chosen]), abs=0.02)


def test_ngrams_share_their_scores() -> None:
    class Three:
        size = 3

    encoder = NGrams(Three(), dim=2, ngrams=[1, 2], buckets=4, ends=True)  # type: ignore[arg-type]
    scores = encoder.spread_scores(torch.tensor([1.0, 2.0, 10.0, 4.0, 20.0]), 2)
    assert scores.tolist() == [1 + 10 + 2, 2 + 2 + 20]


def test_a_word_that_decides_is_found_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, _ = trained(tmp_path, "classes")
    capsys.readouterr()
    assert main(["predict", str(record), "--text", TEXTS[0][1], "--explain"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["tokens"] == ["a", "fine", "day"] and len(row["attributions"]) == 3 and row["pred"] in ("good", "bad")


def test_tags_cannot_be_explained(tmp_path: Path) -> None:
    record, _ = trained(tmp_path, "tagging")
    with (
        alchemy.load(record) as model,
        pytest.raises(AlchemyError, match="cannot be explained: the model returns no logits"),
    ):
        model.explain([["小", "明"]])


def test_images_are_explained_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = pictures.config(tmp_path, "image")
    cfg["sched"]["epochs"] = 10
    record = run_task(cfg, raise_errors=True).record_dir
    file = tmp_path / "d" / "left" / "0.png"
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["predict", str(record), "--file", str(file), "--explain"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["pred"] == "left"
    with Image.open(row["explained"]) as picture:
        assert picture.width > 2 * 12  # the image, enlarged, and its heat map
    assert record is not None
    with alchemy.load(record) as model:
        (found,) = model.explain([str(file)])
    scores_HW = found["attributions"]
    assert scores_HW.shape == (12, 12) and found["image"].shape == (12, 12, 3)
    assert scores_HW[:, :6].sum() > scores_HW[:, 6:].sum()  # the bright half decides


def test_heat_is_drawn_over_a_gray_image() -> None:
    image, scores = np.full((2, 2, 3), 100, np.uint8), np.array([[1.0, -1.0], [0.0, 0.0]])
    heat = draw_heat(image, scores)
    assert heat[0, 0].tolist() == [213, 94, 0] and heat[0, 1].tolist() == [0, 114, 178]
    assert heat[1].tolist() == [[100, 100, 100]] * 2
    assert draw_heat(image[..., 0], np.zeros((2, 2))).shape == (2, 2, 3)
