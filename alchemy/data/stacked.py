"""Batches of samples whose arrays are already stacked, so that collating them does not copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class StackedSamples(list[Any]):
    """The samples of a batch; `stacked` has the fields whose values are the rows of one array."""

    def __init__(self, samples: Iterable[Any], stacked: Mapping[str, np.ndarray]) -> None:
        super().__init__(samples)
        self.stacked = dict(stacked)


class StackedValues(list[Any]):
    """The values of one field of a batch, which are the rows of `array`."""

    def __init__(self, values: Iterable[Any], array: np.ndarray) -> None:
        super().__init__(values)
        self.array = array


def stack_arrays(values: list[Any]) -> np.ndarray | None:
    """Return the arrays of a field as one array, or None if they differ in shape or dtype."""
    if isinstance(values, StackedValues):
        return values.array
    first = values[0]
    if any(value.shape != first.shape or value.dtype != first.dtype for value in values):
        return None
    return np.stack(values)
