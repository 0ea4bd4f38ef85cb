"""Write idx files, the format of MNIST."""

import struct

import numpy as np


def idx(*shape: int, code: int = 8, body: bytes | None = None) -> bytes:
    """Return the contents of an idx file; by default, its values count up from 0."""
    numbers = bytes(range(int(np.prod(shape)))) if body is None else body
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, code, len(shape), *shape) + numbers
