"""Sample the pixels of a batch of images at fractional positions.

B: images, H, W: height and width, C: channels, K: control points per side, L: lines, the rows of all images.
"""

from __future__ import annotations

import threading

import numpy as np

PIXELS = 40_000  # computed at once, in buffers of less than 2 MiB


def resample(
    images_BHWC: np.ndarray, rows_BHW: np.ndarray, columns_BHW: np.ndarray, *, fill: float, nearest: bool
) -> np.ndarray:
    """Return the pixels at the given positions, interpolated or nearest; positions outside are `fill`."""
    count, height, width, channels = images_BHWC.shape
    _, lines, length = rows_BHW.shape
    # a border, so that positions outside need no mask; two pixels wide at the end, for the neighbor of the last one
    padded = np.full((channels, count, height + 3, width + 3), fill, images_BHWC.dtype)
    padded[:, :, 1:-2, 1:-2] = images_BHWC.transpose(3, 0, 1, 2)
    out_LWC = np.empty((count * lines, length, channels), images_BHWC.dtype)
    rows_LW, columns_LW = rows_BHW.reshape(-1, length), columns_BHW.reshape(-1, length)
    starts_L1 = np.repeat(np.arange(count) * ((height + 3) * (width + 3)), lines)[:, None]
    step = max(PIXELS // length, 1)
    sampler = _Sampler(padded.reshape(channels, -1), height, width)
    for begin in range(0, len(out_LWC), step):
        part = slice(begin, begin + step)
        sampler.locate(rows_LW[part], columns_LW[part], starts_L1[part], nearest)
        sampler.copy(out_LWC[part]) if nearest else sampler.interpolate(out_LWC[part])
    return out_LWC.reshape(count, lines, length, channels)


class _Buffers(threading.local):
    """Buffers of this thread, reused because newly allocated memory is slow."""

    def __init__(self) -> None:
        self.resize(PIXELS)

    def resize(self, pixels: int) -> None:
        self.pixels = pixels
        self.floats, self.places = np.empty((6, pixels), np.float32), np.empty((2, pixels), np.int32)
        self.at, self.bytes = np.empty(pixels, np.intp), np.empty(pixels, np.uint8)


_buffers = _Buffers()


class _Sampler:
    """Samples the planes of images, some lines at a time."""

    def __init__(self, planes_CN: np.ndarray, height: int, width: int) -> None:
        self.planes_CN, self.height, self.width = planes_CN, height, width

    def locate(self, rows: np.ndarray, columns: np.ndarray, starts: np.ndarray, nearest: bool) -> None:
        """Compute the index of the pixel at or above and left of each position, and the distances from it."""
        shape, size = rows.shape, rows.size
        if size > _buffers.pixels:
            _buffers.resize(size)
        self.floats = _buffers.floats[:, :size].reshape(6, *shape)
        self.at = _buffers.at[:size].reshape(shape)
        is_bytes = self.planes_CN.dtype == np.uint8
        self.pixels = _buffers.bytes[:size].reshape(shape) if is_bytes else np.empty(shape, self.planes_CN.dtype)
        top, left = _buffers.places[:, :size].reshape(2, *shape)
        for positions, limit, rest, whole, place in (
            (rows, self.height, self.floats[0], self.floats[2], top),
            (columns, self.width, self.floats[1], self.floats[3], left),
        ):
            np.clip(positions, -1, limit, out=rest)
            rest += np.float32(1.5 if nearest else 1)
            np.floor(rest, out=whole)
            rest -= whole
            np.copyto(place, whole, casting="unsafe")
        # dtypes are not mixed, because conversions inside an operation are slow
        top *= np.int32(self.width + 3)
        top += left
        np.copyto(self.at, top)
        self.at += starts

    def copy(self, out_LWC: np.ndarray) -> None:
        """Write the located pixels."""
        for channel, plane in enumerate(self.planes_CN):
            out_LWC[..., channel] = plane.take(self.at, out=self.pixels, mode="clip")

    def interpolate(self, out_LWC: np.ndarray) -> None:
        """Write the values between each located pixel and its neighbors on the right and below."""
        down, right, *corners = self.floats
        for channel, plane in enumerate(self.planes_CN):
            for corner, offset in zip(corners, (0, 1, self.width + 3, self.width + 4)):
                np.copyto(corner, plane[offset:].take(self.at, out=self.pixels, mode="clip"), casting="unsafe")
            upper, upper_right, lower, lower_right = corners
            _interpolate(upper, upper_right, right)
            _interpolate(lower, lower_right, right)
            _interpolate(upper, lower, down)
            out_LWC[..., channel] = to_dtype(upper, out_LWC.dtype)


def _interpolate(first: np.ndarray, second: np.ndarray, share: np.ndarray) -> None:
    """Replace `first` with the values between `first` and `second`, which is overwritten."""
    second -= first
    second *= share
    first += second


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
