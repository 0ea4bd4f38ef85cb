"""Random numbers for the samples of a batch, as a function of seed, sample index and call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = 2**64 - 1


class Draws:
    """Random numbers for each sample of a batch, computed by hashing (seed, sample index, number of the call).

    No generator is created, so the numbers cost little, and they do not depend on the batch, worker or process that
    loads a sample. All results have the batch as their first dimension.

    >>> Draws(1, [4, 7]).integers(0, 10).tolist() == [int(Draws(1, [i]).integers(0, 10)[0]) for i in (4, 7)]
    True
    """

    def __init__(self, seed: int, indices: Sequence[int] | np.ndarray) -> None:
        self.seed, self.indices, self.calls, self.used = seed, indices, 0, False
        start = _hash(np.array([seed & _MASK], np.uint64))
        self._base = _hash(start + np.array(indices, np.int64).astype(np.uint64) * _STEP)

    def __len__(self) -> int:
        return len(self._base)

    def bits(self, *shape: int) -> np.ndarray:
        """Return uint64 values `[B, *shape]` with random bits."""
        count = int(np.prod(shape, dtype=np.int64))
        steps = np.arange(self.calls + 1, self.calls + 1 + count, dtype=np.uint64) * _STEP
        self.calls, self.used = self.calls + count, True
        return _hash(self._base[:, None] + steps).reshape(len(self), *shape)

    def uniform(self, low: float = 0.0, high: float = 1.0, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Return float64 values `[B, *shape]` from `low` up to but excluding `high`."""
        return low + (high - low) * ((self.bits(*shape) >> np.uint64(11)) * 2.0**-53)

    def integers(self, low: int, high: int) -> np.ndarray:
        """Return int64 values `[B]` from `low` up to but excluding `high`."""
        if high <= low:
            raise ValueError(f"no integers from {low} up to but excluding {high}")
        return low + (self.uniform() * (high - low)).astype(np.int64)


def _hash(values: np.ndarray) -> np.ndarray:
    """Return well-mixed 64-bit hashes of 64-bit integers, with the finalizer of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
