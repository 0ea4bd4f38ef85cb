"""A small training run for every task and model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import toy
from tests.tasks import pairs, pictures, texts


def config_of(kind: str, root: Path, corpora: Path) -> dict[str, Any]:
    """Return the config of a training run that writes its record below `root`."""
    if kind == "points":
        net = {"type": "torch.nn.Linear", "in_features": 1, "out_features": 1, "inputs": {"input": "x"}}
        return toy.config(root / "records", model=net, criterion={"type": "alchemy.nn.losses.MSE", "target": "y"})
    if kind == "translation":
        return pairs.config(corpora, root)
    if kind in ("image", "segmentation"):
        return pictures.config(root, kind)
    return texts.config(root, kind)
