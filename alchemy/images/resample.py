"""Sample the pixels of a batch of images at fractional positions.

B: images, H, W: height and width, C: channels, K: control points per side.
"""

from __future__ import annotations

import numpy as np


def resample(
    images_BHWC: np.ndarray, rows_BHW: np.ndarray, columns_BHW: np.ndarray, *, fill: float, nearest: bool
) -> np.ndarray:
    """Return the pixels at the given positions, interpolated or nearest; positions outside are `fill`."""
    count, height, width, channels = images_BHWC.shape
    # a border, so that positions outside need no mask; two pixels wide at the end, for the neighbor of the last one
    padded = np.full((count, height + 3, width + 3, channels), fill, images_BHWC.dtype if nearest else np.float32)
    padded[:, 1:-2, 1:-2] = images_BHWC
    flat = padded.reshape(-1, channels) if channels > 1 else padded.reshape(-1)
    rows = np.clip(rows_BHW, -1, height)
    columns = np.clip(columns_BHW, -1, width)
    for positions in (rows, columns):
        positions += np.float32(1.5 if nearest else 1)
    top, left = np.floor(rows), np.floor(columns)
    # dtypes are not mixed, because conversions inside an operation are slow
    at = top.astype(np.int32) * np.int32(width + 3) + left.astype(np.int32)
    at = at.astype(np.intp)
    at += (np.arange(count) * ((height + 3) * (width + 3)))[:, None, None]
    if nearest:
        return flat.take(at, axis=0).reshape(count, *rows.shape[1:], channels)
    rows -= top
    columns -= left
    if channels > 1:
        rows, columns = rows[..., None], columns[..., None]
    upper = _between(flat, at, columns)
    at += width + 3
    lower = _between(flat, at, columns)
    lower -= upper
    lower *= rows
    upper += lower
    return to_dtype(upper, images_BHWC.dtype).reshape(count, *rows_BHW.shape[1:], channels)


def _between(flat: np.ndarray, at: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Interpolate between each pixel and its right neighbor."""
    first = flat.take(at, axis=0, mode="clip")
    at += 1
    second = flat.take(at, axis=0, mode="clip")
    at -= 1
    second -= first
    second *= share
    first += second
    return first


def affine_positions(matrices_B23: np.ndarray, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions that matrices map the pixels of the output to, relative to the center of the image.

    A matrix maps `(row, column, 1)` of the output to `(row, column)` of the input.
    """
    middle = np.array([(height - 1) / 2, (width - 1) / 2])
    rows_H, columns_W = np.arange(height) - middle[0], np.arange(width) - middle[1]
    terms = matrices_B23.astype(np.float64)
    positions = []
    for axis in (0, 1):
        by_row = (terms[:, axis, 0, None] * rows_H + (terms[:, axis, 2, None] + middle[axis])).astype(np.float32)
        by_column = (terms[:, axis, 1, None] * columns_W).astype(np.float32)
        positions.append(by_row[:, :, None] + by_column[:, None, :])
    return positions[0], positions[1]


def smooth_field(points_BKK: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return a smooth field `[B, H, W]` with quadratic B-splines between control points."""
    rows_HK = _spline_weights(height, points_BKK.shape[1])
    columns_WK = _spline_weights(width, points_BKK.shape[2])
    return ((rows_HK @ points_BKK) @ columns_WK.T).astype(np.float32)


def _spline_weights(size: int, points: int) -> np.ndarray:
    """Return the weight of each control point for each of `size` positions; the weights of a position sum to 1."""
    places = np.linspace(0.5, points - 1.5, size)[:, None]
    distance = np.abs(places - np.arange(points))
    near = 0.75 - distance**2
    far = 0.5 * (1.5 - distance) ** 2
    return np.where(distance <= 0.5, near, np.where(distance < 1.5, far, 0.0))


def to_dtype(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round and clip floats to an integer dtype; only convert to other dtypes."""
    if dtype.kind not in "ui":
        return values.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    np.rint(values, out=values)
    np.clip(values, limits.min, limits.max, out=values)
    return values.astype(dtype)
