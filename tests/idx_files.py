"""Write idx files, the format of MNIST."""

import gzip
import struct
from pathlib import Path

import numpy as np


def idx(*shape: int, code: int = 8, body: bytes | None = None) -> bytes:
    """Return the contents of an idx file; by default, its values count up from 0."""
    numbers = bytes(range(int(np.prod(shape)))) if body is None else body
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, code, len(shape), *shape) + numbers


def write_idx(folder: Path) -> None:
    """Write a small MNIST: images in which the position of a bar is the digit."""
    folder.mkdir()
    for part, count in ("train", 512), ("t10k", 64):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        images[np.arange(count), 2 + labels] = 255
        for name, array in ("images-idx3", images), ("labels-idx1", labels):
            content = idx(*array.shape, body=array.tobytes())
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
