"""Benchmark image loading: idx files, random transforms and batches, next to a hand-written PyTorch dataset.

Both sides pad by 2 pixels, crop, flip, rotate by up to 10 degrees with bilinear interpolation, and normalize. The
hand-written dataset does so for one sample at a time in NumPy, as a careful author would: the padded images, the grid
of positions and the generator are created once. The images are random, of the size of MNIST.
"""

from __future__ import annotations

import functools
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bench.measure import Figure, absolute, ratio, settle

COUNT, SIDE, PAD, DEGREES, BATCH = 60_000, 28, 2, 10.0, 64
MEAN, STD = 0.1307, 0.3081
TRANSFORMS = "alchemy.images.transforms."
BATCHES = 150  # timed at once
SLOWEST = 1 / 0.95  # the bound on the time for an image, alchemy / hand-written


class ByHand(Dataset[Any]):
    """The same data and transforms, written by hand."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        edges = ((0, 0), (PAD, PAD), (PAD, PAD))
        self.images, self.labels = np.pad(images, edges), labels.astype(np.int64)
        self.numbers = np.random.default_rng(0)
        line = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
        self.rows, self.columns = np.meshgrid(line, line, indexing="ij")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        top, left = self.numbers.integers(0, 2 * PAD + 1, 2)
        image = self.images[index, top : top + SIDE, left : left + SIDE]
        if self.numbers.random() < 0.5:
            image = image[:, ::-1]
        pixels = self.rotate(image, math.radians(self.numbers.uniform(-DEGREES, DEGREES)))
        pixels = (pixels / np.float32(255) - np.float32(MEAN)) / np.float32(STD)
        return torch.from_numpy(pixels[None]), int(self.labels[index])

    def rotate(self, image: np.ndarray, angle: float) -> np.ndarray:
        padded = np.zeros((SIDE + 3, SIDE + 3), np.float32)
        padded[1:-2, 1:-2] = image
        cos, sin, middle = np.float32(math.cos(angle)), np.float32(math.sin(angle)), np.float32((SIDE - 1) / 2)
        rows = np.clip(cos * self.rows + sin * self.columns + middle, -1, SIDE) + np.float32(1)
        columns = np.clip(cos * self.columns - sin * self.rows + middle, -1, SIDE) + np.float32(1)
        top, left = rows.astype(np.intp), columns.astype(np.intp)
        down, right = rows - top.astype(np.float32), columns - left.astype(np.float32)
        flat, at = padded.reshape(-1), top * (SIDE + 3) + left
        upper = flat[at] + right * (flat[at + 1] - flat[at])
        at += SIDE + 3
        lower = flat[at] + right * (flat[at + 1] - flat[at])
        return np.rint(upper + down * (lower - upper))


def figures(quick: bool = False) -> list[Figure]:
    numbers = np.random.default_rng(0)
    images = numbers.integers(0, 256, (COUNT, SIDE, SIDE), np.uint8)
    labels = numbers.integers(0, 10, COUNT, np.uint8)
    ours, by_hand, made = build_chain(images, labels), ByHand(images, labels), []
    for workers in (0, 2):
        sides = [repeat(our_loader, ours, workers), repeat(hand_loader, by_hand, workers)]
        clock = time.perf_counter if workers else time.process_time
        rounds = functools.partial(measure_pairs, sides, clock, 2 if quick else 10)
        pairs = rounds() if quick else settle(rounds, cap=120)
        made.append(ratio(f"time for an image, alchemy / hand-written, {workers} workers", pairs, SLOWEST))
        if not workers:
            made.append(absolute(f"a batch of {BATCH}, CPU", [first * 1e3 for first, _ in pairs], 5.25, "ms"))
        speeds = [f"{BATCH / statistics.median(side):,.0f}" for side in zip(*pairs)]
        print(f"{workers} workers: {speeds[0]} images per second, hand-written {speeds[1]}")
        for side in sides:
            side.close()
    return made


def measure_pairs(
    sides: Sequence[Iterator[object]], clock: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """Return the seconds per batch of both sides, which take turns."""
    pairs = []
    for _ in range(rounds):
        pair = []
        for side in sides:
            next(side)  # the first batch of an epoch may have to wait for its workers
            begin = clock()
            for _ in range(BATCHES):
                next(side)
            pair.append((clock() - begin) / BATCHES)
        pairs.append((pair[0], pair[1]))
    return pairs


def repeat(make: Callable[..., Iterable[object]], *arguments: object) -> Generator[object, None, None]:
    """Yield the batches of one epoch after another."""
    while True:
        yield from make(*arguments)


def build_chain(images: np.ndarray, labels: np.ndarray) -> Any:
    from alchemy.pipeline import build_datapipes

    with tempfile.TemporaryDirectory() as folder:
        for name, array in ("images", images), ("labels", labels):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            Path(folder, name).write_bytes(head + array.tobytes())
        source = {"path": f"{folder}/images", "label_path": f"{folder}/labels"}
        transforms = [
            {"type": f"{TRANSFORMS}RandomCrop", "pad": PAD},
            {"type": f"{TRANSFORMS}RandomFlip"},
            {"type": f"{TRANSFORMS}RandomRotate", "degrees": DEGREES},
        ]
        return build_datapipes(
            [
                {"type": "alchemy.pipeline.processors.IdxImages", **source},
                {"type": "alchemy.pipeline.image_transforms.TransformImages", "transforms": transforms},
            ]
        )


def our_loader(chain: Any, workers: int) -> Iterable[object]:
    from alchemy.data.collate import Pad
    from alchemy.data.loader import get_dataloader

    fields = {"image": {"type": "alchemy.data.columns.Image", "mean": [MEAN], "std": [STD]}}
    collate = Pad(fields=fields, dataset=chain)
    return get_dataloader(chain, 1, batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=collate)


def hand_loader(dataset: ByHand, workers: int) -> Iterable[object]:
    return DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers)
