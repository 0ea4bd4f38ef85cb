"""Small images with labels or masks, and the configs of their tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alchemy.runner import run_task

RANDOM: list[dict[str, Any]] = [
    {"type": "alchemy.images.transforms.RandomCrop", "size": 12, "pad": 2},
    {"type": "alchemy.images.transforms.RandomFlip", "vertical": 0.5},
    {"type": "alchemy.images.transforms.ColorJitter", "brightness": 0.3, "contrast": 0.3},
]


def save(file: Path, array: np.ndarray) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(file)
    return str(file)


def draw_labels(root: Path, count: int = 8, side: int = 12) -> Path:
    """Write a folder of noisy images: `dark`, `left` (bright on the left) and `right`."""
    numbers = np.random.default_rng(0)
    for label in ("dark", "left", "right"):
        for place in range(count):
            image = numbers.integers(0, 60, (side, side, 3), dtype=np.uint8)
            half = {"dark": slice(0), "left": slice(side // 2), "right": slice(side // 2, None)}[label]
            image[:, half] += 150
            save(root / label / f"{place}.png", image)
    return root


def draw_masks(root: Path, count: int = 8, side: int = 16) -> Path:
    """Write `images` with a bright rectangle each, and `masks` in which it is class 1."""
    numbers = np.random.default_rng(1)
    for place in range(count):
        image = numbers.integers(0, 60, (side, side), dtype=np.uint8)
        mask = np.zeros((side, side), np.uint8)
        top, left = numbers.integers(0, side // 2, 2)
        mask[top : top + side // 2, left : left + side // 2] = 1
        save(root / "images" / f"{place}.png", image + 150 * mask)
        save(root / "masks" / f"{place}.png", mask)
    return root


def tables(root: Path, kind: str, **task: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw the images of a kind, and return the tables of the task and of the model."""
    if kind == "image":
        pipe: dict[str, Any] = {"type": "alchemy.pipeline.processors.ImageFolder", "path": str(draw_labels(root / "d"))}
        own: dict[str, Any] = {"type": "alchemy.tasks.ImageClassification"}
        net: dict[str, Any] = {"type": "alchemy.nn.resnet.ResNet", "blocks": [1], "widths": [4], "stem": "small"}
        model: dict[str, Any] = {"type": "alchemy.models.ImageClassifier", "net": net}
    else:
        draw_masks(root / "d")
        labels = ["background", "box"]
        folders = {"path": str(root / "d" / "images"), "mask_path": str(root / "d" / "masks")}
        pipe = {"type": "alchemy.pipeline.processors.ImageMasks", **folders, "labels": labels, "mode": "L"}
        own = {"type": "alchemy.tasks.Segmentation", "labels": labels, "mode": "L"}
        net = {"type": "alchemy.nn.unet.UNet", "width": 4, "depth": 2}
        model = {"type": "alchemy.models.Segmenter", "net": net, "dice": 1.0}
    split = {"pipes": [pipe], "batch_size": 4}
    return {**own, "datasets": {"train": split, "dev": split}, **task}, model


def config(root: Path, kind: str, **task: Any) -> dict[str, Any]:
    table, model = tables(root, kind, **task)
    return {
        "tag": "t",
        "seed": 3,
        "runner": "alchemy.runner.Trainer",
        "plugins": [{"type": "alchemy.plugins.FileLogger", "log_dir": str(root / "records")}],
        "task": table,
        "model": model,
        "optim": {"type": "alchemy.optim.AdamW", "lr": 0.02},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 6},
    }


Trained = dict[str, tuple[Path, dict[str, Any]]]


def train_both(folders: pytest.TempPathFactory) -> Trained:
    """Train a model of each kind; return its record and its scores."""
    found = {}
    for kind in ("image", "segmentation"):
        cfg = config(folders.mktemp(kind), kind)
        cfg["sched"]["epochs"] = 20
        result = run_task(cfg, raise_errors=True)
        assert result.record_dir is not None
        found[kind] = result.record_dir, result.ret
    return found
