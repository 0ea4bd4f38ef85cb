"""Three small projects whose runs are killed at random: a stream, all features, two optimizers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alchemy.pipeline import EndStepPipeline, SchedPipeline
from tests import gan
from tests.resume.parts import config


@SchedPipeline.register()
class OwnGenerators(EndStepPipeline):
    """Shift the weights by numbers from three private generators."""

    def __init__(self, *, seed: int = 7) -> None:
        super().__init__()
        self.torch = torch.Generator().manual_seed(seed)
        self.numpy = np.random.default_rng(seed)
        self.python = random.Random(seed)

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        drawn = float(torch.rand((), generator=self.torch)) + float(self.numpy.random()) + self.python.random()
        with torch.no_grad():
            for param in self.run.model.parameters():
                param += 1e-3 * drawn
        return kwargs

    def state_dict(self) -> dict[str, Any]:
        return {
            "torch": self.torch.get_state(),
            "numpy": self.numpy.bit_generator.state,
            "python": list(map(_listed, self.python.getstate())),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.torch.set_state(state["torch"])
        self.numpy.bit_generator.state = state["numpy"]
        version, numbers, gauss = state["python"]
        self.python.setstate((version, tuple(numbers), gauss))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def stream(folder: Path) -> dict[str, Any]:
    """An iterable stream, split between two workers and shuffled in each."""
    pipes = [
        {"type": "tests.resume.parts.NoisyStream", "count": 24},
        {"type": "alchemy.pipeline.itr.SplitByWorker"},
        {"type": "alchemy.pipeline.itr.Shuffle", "buffer_size": 4},
    ]
    dev = {"pipes": [{"type": "tests.resume.parts.Noisy", "count": 4}], "batch_size": 2}
    train = {"pipes": pipes, "batch_size": 2, "num_workers": 2}
    cfg = config(str(folder), task__datasets={"train": train, "dev": dev})
    cfg["sched"] = {"type": "alchemy.sched.Constant", "epochs": 3, "pipes": cfg["sched"]["pipes"]}
    return cfg


def everything(folder: Path) -> dict[str, Any]:
    """Gradient accumulation over three batches, an average, a schedule that follows a score, best checkpoints."""
    cfg = config(str(folder), period=3, workers=2)
    cfg["sched"] |= {"type": "alchemy.sched.Plateau", "monitor": "dev/drawn", "patience": 0, "factor": 0.5, "epochs": 6}
    cfg["sched"].pop("num_warmup_steps")
    return cfg


def optimizers(folder: Path) -> dict[str, Any]:
    """Two optimizers of two networks, and generators owned by the project."""
    cfg = gan.config(folder, sched__pipes=[{"type": "tests.resume.projects.OwnGenerators"}], ema={"decay": 0.9})
    return {**cfg, "checkpoint": {"every": 2, "last": 2}}


PROJECTS = {"stream": stream, "everything": everything, "optimizers": optimizers}
