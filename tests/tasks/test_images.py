"""Image classification and segmentation: learning, scores, pictures, prediction and bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import alchemy
from alchemy.errors import AlchemyError
from alchemy.loop import evaluate, loader_of
from alchemy.runner import run_task
from alchemy.tasks.image_classification import rank_of
from alchemy.tasks.image_task import ImageTask
from tests.ready import ready
from tests.tasks.pictures import RANDOM, Trained, config, draw_labels, draw_masks, save, train_both
from tests.tasks.texts import refused


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_both(tmp_path_factory)


# -- classification
def test_labels_of_images_are_learnt_and_the_hardest_are_drawn(trained: Trained) -> None:
    record, scores = trained["image"]
    assert scores["accuracy"] > 0.9 and "top_k_accuracy" not in scores  # of three labels
    with Image.open(record / "images" / "dev_hardest.png") as picture:
        assert picture.width > 500
    rows = (record / "results" / "dev_confusion.csv").read_text().splitlines()
    assert rows[0].endswith("dark,left,right")


def test_top_k_accuracy_counts_the_labels_before_the_right_one(tmp_path: Path) -> None:
    logits = torch.tensor([[0.1, 0.9, 0.5, 0.5], [2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, float("nan")]])
    assert rank_of(logits, torch.tensor([3, 3, 1])).tolist() == [2, 3, 2]
    with ready(config(tmp_path, "image", top_k=2)) as run:
        scores = evaluate("dev")
        rows = scores["preds"]
        assert scores["top_k_accuracy"] == pytest.approx(np.mean([row["label"] in row["top"] for row in rows]))
        assert isinstance(run.task, ImageTask)
        assert run.task.channels == 3 and run.task.labels == ["dark", "left", "right"]


def test_files_and_arrays_are_answered_without_the_training_data(trained: Trained, tmp_path: Path) -> None:
    record, _ = trained["image"]
    (left, *_) = sorted((draw_labels(tmp_path) / "left").iterdir())
    moved = record.parents[1] / "d"
    moved.rename(moved.with_name("gone"))
    with alchemy.load(record) as model:
        rows = model.predict([str(left), {"file": str(left)}, np.asarray(Image.open(left))])
        with pytest.raises(AlchemyError, match=r"items\[0\].*expected the name of an image file or an array"):
            model.predict([3])
    moved.with_name("gone").rename(moved)
    assert [row["pred"] for row in rows] == ["left"] * 3
    assert rows[0]["file"] == str(left) and max(rows[0]["top"], key=rows[0]["top"].get) == "left"


def test_images_of_different_sizes_are_answered(trained: Trained, tmp_path: Path) -> None:
    images = [np.zeros((12, 12, 3), np.uint8), np.zeros((15, 18), np.uint8), np.zeros((12, 12), np.uint8)]
    with alchemy.load(trained["image"][0]) as model:
        assert [row["pred"] for row in model.predict(images)] == ["dark"] * 3


def test_the_ids_of_a_split_with_fewer_labels_are_those_of_training(tmp_path: Path) -> None:
    cfg = config(tmp_path, "image")
    fewer = tmp_path / "fewer"
    shutil.copytree(tmp_path / "d" / "right", fewer / "right")
    test = {"pipes": [{"type": "alchemy.pipeline.processors.ImageFolder", "path": str(fewer)}], "batch_size": 4}
    cfg["task"]["datasets"]["test"] = test
    with ready(cfg) as run:
        assert next(iter(loader_of(run, "test")))["label_id"].tolist() == [2] * 4


# -- segmentation
def test_masks_are_learnt_and_scored(trained: Trained) -> None:
    record, scores = trained["segmentation"]
    assert scores["iou"] > 0.8 and scores["iou_box"] > 0.8 and scores["pixel_accuracy"] > 0.9
    report = json.loads((record / "results" / "dev_report.json").read_text())
    assert report["classes"]["box"]["iou"] == pytest.approx(scores["iou_box"])
    hardest = [json.loads(row) for row in (record / "results" / "dev_hardest.jsonl").read_text().splitlines()]
    assert [row["iou"] for row in hardest] == sorted(row["iou"] for row in hardest)
    assert (record / "images" / "dev_hardest.png").is_file()


@pytest.mark.parametrize("size", [1, 3, 8])
def test_scores_do_not_depend_on_the_batches(tmp_path: Path, size: int, trained: Trained) -> None:
    cfg = config(tmp_path, "segmentation")
    cfg["model"]["model_path"] = str(trained["segmentation"][0] / "state" / "last")
    names = ("iou", "pooled_iou", "dice", "pixel_accuracy")
    found = []
    for batch_size in (4, size):
        cfg["task"]["datasets"]["dev"] = {**cfg["task"]["datasets"]["dev"], "batch_size": batch_size}
        with ready(cfg):
            found.append({name: evaluate("dev")[name] for name in names})
    assert found[0] == found[1]


def test_tiles_give_the_masks_of_whole_images(tmp_path: Path, trained: Trained) -> None:
    record, _ = trained["segmentation"]
    (tmp_path / "d").mkdir()
    file = draw_masks(tmp_path / "d", count=1, side=70) / "images" / "0.png"
    masks = []
    for tile in (0, 32):
        with alchemy.load(record, overrides=[f"task.tile={tile}", "task.overlap=16"]) as model:
            masks.append(model.predict([str(file)])[0]["pred"])
    assert masks[0].shape == masks[1].shape == (70, 70)
    assert (masks[0] == masks[1]).mean() > 0.95


def test_images_of_different_sizes_are_evaluated_one_by_one(tmp_path: Path) -> None:
    cfg = config(tmp_path, "segmentation", augment=[{"type": "alchemy.images.transforms.RandomCrop", "size": 12}])
    for folder in ("images", "masks"):
        image = np.zeros((21, 33), np.uint8)
        save(tmp_path / "d" / folder / "9.png", image)
    with ready(cfg) as run:
        assert next(iter(loader_of(run, "train")))["image"].shape == (4, 1, 12, 12)
        rows = evaluate("dev")["preds"]
    assert len(rows) == 9 and np.sum(rows[-1]["counts"]) == 21 * 33


def test_the_mask_of_a_resized_image_has_the_size_of_the_file(tmp_path: Path) -> None:
    cfg = config(tmp_path, "segmentation", size=[12, 12])
    cfg["sched"]["epochs"] = 1
    record = run_task(cfg, raise_errors=True).record_dir
    assert record is not None
    wide = save(tmp_path / "wide.png", np.zeros((20, 31), np.uint8))
    with alchemy.load(record) as model:
        assert model.predict([wide])[0]["pred"].shape == (20, 31)


# -- augmentation
@pytest.mark.parametrize("kind", ["image", "segmentation"])
def test_training_images_depend_on_seed_and_epoch_but_not_on_workers(tmp_path: Path, kind: str) -> None:
    cfg, batches = config(tmp_path, kind, augment=RANDOM), []
    for workers, seed in ((0, 5), (2, 5), (0, 6)):
        cfg["task"]["datasets"]["train"] = {**cfg["task"]["datasets"]["train"], "num_workers": workers}
        with ready(cfg) as run:
            batches.append([batch["image"] for batch in loader_of(run, "train", seed)])
    one, two, other = (torch.cat(list(batch)) for batch in batches)
    assert torch.equal(one, two) and not torch.equal(one, other)


# -- bad input
def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    cfg = config(tmp_path, "image")
    for file in (tmp_path / "d").rglob("*.png"):
        file.rename(file.with_suffix(".txt"))
    refused(cfg, "found no samples in")


def test_a_label_that_training_does_not_have_is_refused(tmp_path: Path) -> None:
    cfg = config(tmp_path, "image")
    shutil.copytree(tmp_path / "d" / "left", tmp_path / "other" / "lefft")
    pipe = {"type": "alchemy.pipeline.processors.ImageFolder", "path": str(tmp_path / "other")}
    cfg["task"]["datasets"]["dev"] = {"pipes": [pipe], "batch_size": 4}
    refused(cfg, r"(?s)other.*the label 'lefft' is not a label of the training data; did you mean 'left'")


def test_other_sizes_are_refused_with_the_file_and_the_fix(tmp_path: Path) -> None:
    cfg = config(tmp_path, "image")
    save(tmp_path / "d" / "left" / "wide.png", np.zeros((12, 20, 3), np.uint8))
    refused(cfg, r"0\.png has 12 x 12 x 3 pixels, but .*wide\.png has 12 x 20 x 3.*size = \[HEIGHT, WIDTH\]")
    run_task({**cfg, "task": {**cfg["task"], "size": [12, 12]}}, raise_errors=True)


def test_a_mask_with_values_that_are_no_class_is_refused(tmp_path: Path) -> None:
    cfg = config(tmp_path, "segmentation")
    save(tmp_path / "d" / "masks" / "3.png", np.full((16, 16), 7, np.uint8))
    refused(cfg, r"3\.png.*7")


def test_a_broken_image_is_refused_before_training(tmp_path: Path) -> None:
    cfg = config(tmp_path, "image")
    file = tmp_path / "d" / "left" / "3.png"
    file.write_bytes(file.read_bytes()[:200])
    refused(cfg, r"3\.png' is not a readable image")


def scale_to_one(image: np.ndarray) -> np.ndarray:
    return np.asarray(image / 255.0)


class ScaleTo:
    def __init__(self, high: float) -> None:
        self.high = high

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return (image * (self.high / 255)).astype(np.float32)


@pytest.mark.parametrize("key", ["transforms", "augment"])
@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"type": f"{__name__}.scale_to_one"}, r"test_images\.scale_to_one returned float64 values from 0 to 0\.2314"),
        (
            {"type": f"{__name__}.ScaleTo", "high": 2.0},
            r"test_images\.ScaleTo returned float32 values from 0 to 0\.4627",
        ),
    ],
)
def test_a_transform_that_returns_floats_is_named(
    tmp_path: Path, key: str, transform: dict[str, Any], message: str
) -> None:
    flip = {"type": "alchemy.images.transforms.RandomFlip"}
    cfg = config(tmp_path, "image", **{key: [flip, transform, flip]})
    refused(cfg, rf"{message}, expected uint8 values from 0 to 255; return uint8")


def test_files_to_predict_get_the_size_of_the_processor(tmp_path: Path) -> None:
    cfg = config(tmp_path, "image")
    for split in cfg["task"]["datasets"].values():
        split["pipes"][0]["size"] = [6, 8]
    with ready(cfg) as run:
        assert isinstance(run.task, ImageTask)
        assert run.task.question(str(tmp_path / "d" / "left" / "0.png"))["image"].shape == (6, 8, 3)


def test_an_image_of_16_bits_is_refused_with_its_range_until_the_data_has_limits(tmp_path: Path) -> None:
    cfg = config(tmp_path, "image")
    image = np.full((12, 12), 300, np.uint16)
    image[0, 0] = 4000
    save(tmp_path / "d" / "left" / "deep.png", image)
    refused(
        cfg, r"deep\.png' has more than 8 bits .* its values range from 300 to 4000; set limits .* in \[task.data\]"
    )
    data = {"train": str(tmp_path / "d"), "dev": str(tmp_path / "d"), "limits": [0, 4095], "batch_size": 4}
    task = {"type": cfg["task"]["type"], "data": data}
    with ready({**cfg, "task": task}) as run:
        assert isinstance(run.task, ImageTask)
        row = run.task.question(str(tmp_path / "d" / "left" / "deep.png"))
        assert row["image"].max() == round(4000 / 4095 * 255)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("image", {"mode": "L"}, "an image has 3 channels, but mode = 'L' means 1"),
        ("image", {"mean": [0.5, 0.5]}, "mean has 2 numbers, but images with mode = 'RGB' have 3 channels"),
        ("segmentation", {"overlap": 16, "tile": 16}, "tiles would not advance"),
        ("segmentation", {"background": "backgrund"}, "background = 'backgrund' is not one of the labels"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, kind: str, change: dict[str, Any], message: str) -> None:
    refused(config(tmp_path, kind, **change), message)
