"""What every rank of these tests does: it trains, several times, in a folder that it is given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import alchemy
from tests.dist.parts import LOSSES, config

# the same updates for 1, 2 and 3 ranks: each is 8 of the 13 texts, but for the last one of an epoch
TRAININGS: dict[str, dict[str, Any]] = {
    **{loss: {"loss": loss} for loss in LOSSES},
    "accumulated": {"loss": "tokens", "period": 2, "train": {"batch_size": 4}},
    # batches of two texts for each rank, twelve of them an update
    "per_device": {
        "loss": "tokens",
        "backward": {"window": 6},
        "train": {"batch_size": 2, "per_device": True},
    },
}


def train(out: Path) -> None:
    for name, changes in TRAININGS.items():
        plugins = [{"type": "alchemy.plugins.FileLogger", "log_dir": str(out / "records" / name)}]
        cfg = config(into=out / name, plugins=plugins, **changes)
        cfg["sched"] = {**cfg["sched"], "pipes": [{"type": "alchemy.pipeline.sched.EvalEEPipeline"}]}
        alchemy.run([cfg], device=[-1], raise_errors=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
