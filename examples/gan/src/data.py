"""The noise from which the generator makes images."""

from typing import Any

import numpy as np

from alchemy.constraints import PositiveInt
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.seeds import sample_rng


@DataPipeline.register()
class Noise(LstDataPipeline):
    """Adds `noise`, `size` normally distributed numbers, to every sample.

    The numbers depend only on the seed of the run, the epoch and the sample, not on the worker or the process. An
    evaluation draws the same ones every time, so its pictures show how the same samples change.
    """

    maps = True

    def __init__(self, datapipe: Any, *, size: PositiveInt = 64) -> None:
        super().__init__(datapipe)
        self.size = size

    def __len__(self) -> int:
        return len(self.datapipe)

    def __getitem__(self, index: int) -> dict[str, Any]:
        numbers = sample_rng().standard_normal(self.size, dtype=np.float32)
        return {**self.datapipe[index], "noise": numbers}
