"""Data loaders for the training loops of legacy projects, which pass no seed."""

from __future__ import annotations

from typing import Any

from alchemy.context import find_run
from alchemy.data import loader
from alchemy.seeds import derive


def get_dataloader(dataset: object, seed: int = 0, **kwargs: Any) -> loader.Loader:
    """Return a loader for custom loops; without `seed`, the order depends on the run's seed and epoch."""
    run = find_run()
    if not seed and run is not None:
        seed = derive(run.seed, "order", run.where.epoch)
    return loader.get_dataloader(dataset, seed=seed, **kwargs)
