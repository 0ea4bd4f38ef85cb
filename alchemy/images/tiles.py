"""Cut images into overlapping tiles, and blend the results of the tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Tile(NamedTuple):
    """A tile of an image: its rows and columns, and the weight of each in the blended result."""

    rows: slice
    columns: slice
    row_weights: np.ndarray
    column_weights: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """The weight of each pixel; at every pixel, the weights of all tiles sum to 1."""
        return np.outer(self.row_weights, self.column_weights)


def cut_tiles(height: int, width: int, tile: int, overlap: int) -> Iterator[Tile]:
    """Yield the tiles of an image: squares with side `tile`, or less if the image is smaller, that share `overlap`.

    All tiles lie inside the image: the last one in a row or column moves back and shares more. In the shared area,
    the weight of a tile falls linearly towards its border, so that seams are not visible.

    >>> [(tile.rows.start, tile.rows.stop) for tile in cut_tiles(10, 4, tile=6, overlap=2)]
    [(0, 6), (4, 10)]
    """
    columns = list(_cut_axis(width, tile, overlap))
    for row_slice, row_weights in _cut_axis(height, tile, overlap):
        for column_slice, column_weights in columns:
            yield Tile(row_slice, column_slice, row_weights, column_weights)


def _cut_axis(length: int, tile: int, overlap: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the positions of the tiles along one axis, and their weights, which sum to 1 at every position."""
    if length <= tile:
        yield slice(0, length), np.ones(length, np.float32)
        return
    starts = [*range(0, length - tile, tile - overlap), length - tile]
    raw = np.zeros((len(starts), length))
    distance = np.arange(tile)
    for number, start in enumerate(starts):
        ramp = np.full(tile, overlap + 1.0)
        if number:  # towards the previous tile
            ramp = np.minimum(ramp, distance + 1)
        if number < len(starts) - 1:
            ramp = np.minimum(ramp, tile - distance)
        raw[number, start : start + tile] = ramp
    shares = (raw / raw.sum(0)).astype(np.float32)
    for start, row in zip(starts, shares):
        yield slice(start, start + tile), row[start : start + tile]
