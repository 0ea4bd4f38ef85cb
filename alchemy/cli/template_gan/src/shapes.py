"""Sample images of the project, drawn by code."""

from typing import Any

import numpy as np

from alchemy.constraints import PositiveInt
from alchemy.pipeline import DataPipeline, LstDataPipeline

SHAPES = ("circle", "square", "triangle", "cross")


@DataPipeline.register()
class Shapes(LstDataPipeline):
    """`count` gray images of `size` x `size` pixels, each with a shape: `image`, `label` and `label_id`."""

    begins = True

    def __init__(self, *, count: PositiveInt = 2048, size: PositiveInt = 16, seed: int = 0) -> None:
        super().__init__()
        numbers = np.random.default_rng(seed)
        self.labels = list(SHAPES)
        self.kinds = numbers.integers(len(SHAPES), size=count)
        radius = numbers.uniform(0.26, 0.38, count) * size
        centers = size / 2 + numbers.uniform(-0.05, 0.05, (2, count)) * size
        self.images = [draw_shape(*values, size) for values in zip(self.kinds, *centers, radius)]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        kind = int(self.kinds[index])
        return {"image": self.images[index], "label": SHAPES[kind], "label_id": kind}


def draw_shape(kind: int, x: float, y: float, radius: float, size: int) -> np.ndarray:
    """Return a uint8 image [size, size] of a shape with soft edges."""
    across, down = np.arange(size) + 0.5 - x, np.arange(size)[:, None] + 0.5 - y
    flat, steep = np.maximum(abs(across), abs(down)), np.minimum(abs(across), abs(down))
    distance = (
        np.hypot(across, down) - radius,
        flat - 0.85 * radius,
        np.maximum(abs(across) * 0.87 - down * 0.5 - 0.5 * radius, down - 0.6 * radius),
        np.maximum(flat - radius, steep - 0.3 * radius),
    )[kind]
    return (np.clip(0.5 - distance, 0, 1) * 255).astype(np.uint8)
