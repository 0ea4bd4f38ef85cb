"""Encode what a run logs as PNG, text and JSON files; sizes are bounded."""

# H heads, Q queries, K keys, N rows, D dimensions

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from alchemy.media.pixels import draw_images, png_size, split_images, to_pixels, to_png
from alchemy.media.snapshot import is_tensor, to_array
from alchemy.optional_packages import import_package
from alchemy.records.media_entry import Encoded

PNG = b"\x89PNG\r\n\x1a\n"  # the first bytes of a PNG file
SHORTEST = 57  # bytes of the smallest PNG file: its signature and three chunks
BINS = 64
WIDE = 1e36  # a range whose bins float32 cannot compute, such as that of logits masked with its lowest number
MAX_TEXT = 2**20  # characters
MAX_ROWS = 1000  # of a table
MAX_CELL = 2000  # characters of a table cell
MAX_CELLS = 20_000  # of a confusion matrix; the largest are kept
MAX_TOKENS = 256  # queries and keys of an attention map
MAX_HEADS = 32
MAX_POINTS = 10_000  # of an embedding


def encode_image(image: Any, caption: str) -> Encoded:
    caption = caption[:MAX_CELL]
    if isinstance(image, bytes):
        if not image.startswith(PNG) or len(image) < SHORTEST:
            raise ValueError("expected a PNG file, got other bytes")
        return _picture(image, {"caption": caption})
    pixels, remarks = to_pixels(image)
    return _picture(to_png(pixels), {"caption": caption} | remarks)


def encode_images(images: Any, captions: Sequence[str], columns: int, total: int) -> Encoded:
    converted = [to_pixels(image) for image in split_images(images)]
    remarks = next((remarks for _, remarks in converted if remarks), {})
    data = draw_images([pixels for pixels, _ in converted], captions, columns)
    return _picture(data, {"count": total, "cut": total > len(converted)} | remarks)


def encode_figure(png: bytes) -> Encoded:
    return _picture(png, {})


def encode_histogram(values: Any) -> Encoded:
    """Count values in bins of equal width; NaN and infinities are counted separately."""
    # with torch, which computes without Python's lock: NumPy would delay the training loop
    flat = _to_tensor(values).flatten()
    flat = flat if str(flat.dtype) == "torch.float64" else flat.float()
    finite = flat[flat.isfinite()]
    nan = int(flat.isnan().sum())
    info: dict[str, Any] = {"count": len(flat), "nan": nan, "inf": len(flat) - nan - len(finite)}
    if len(finite):
        low, high = float(finite.min()), float(finite.max())
        first, last = _widen(low, high)
        if last - first > WIDE:
            finite = finite.double()
        counts = finite.histc(BINS, min=first, max=last).long().tolist()
        edges = [float(f"{first + (last - first) * number / BINS:.12g}") for number in range(BINS + 1)]
        finite = finite.double()  # sums of large values overflow in float32
        mean, std = float(finite.mean()), float(finite.std(correction=0))
        info |= {"edges": edges, "counts": counts, "min": low, "max": high, "mean": mean, "std": std}
    return Encoded(b"", "", info)


def encode_text(text: str, chars: int) -> Encoded:
    return Encoded(text.encode("utf-8", "backslashreplace"), ".txt", {"chars": chars, "cut": chars > len(text)})


def encode_table(columns: Sequence[str], rows: Sequence[Sequence[object]], total: int) -> Encoded:
    content = {"columns": [to_scalar(name) for name in columns], "rows": rows, "cut": total > len(rows)}
    return _json(content, {"rows": total, "columns": len(columns)})


def encode_attention(weights: Any, rows: Sequence[str], columns: Sequence[str], example: str) -> Encoded:
    weights_HQK = to_array(weights).astype(np.float64)
    weights_HQK = weights_HQK[None] if weights_HQK.ndim == 2 else weights_HQK
    if weights_HQK.ndim != 3 or not weights_HQK.size or weights_HQK.shape[1:] != (len(rows), len(columns)):
        expected = f"[heads, {len(rows)}, {len(columns)}] for {len(rows)} query and {len(columns)} key tokens"
        raise ValueError(f"expected weights {expected}, got shape {weights_HQK.shape}")
    kept_HQK = np.nan_to_num(weights_HQK[:MAX_HEADS, :MAX_TOKENS, :MAX_TOKENS]).round(4)
    heads, queries, keys = kept_HQK.shape
    content = {"rows": list(rows[:queries]), "columns": list(columns[:keys]), "weights": kept_HQK.tolist()}
    info = {"heads": heads, "rows": queries, "columns": keys, "example": example}
    return _json(content, info | {"cut": weights_HQK.shape != kept_HQK.shape})


class Cells(NamedTuple):
    """The cells (gold, predicted, count) of a confusion matrix that are not 0; if there are too many, the largest."""

    cells_N3: np.ndarray
    total: int
    cut: bool


def encode_confusion(labels: Sequence[str], cells: Cells) -> Encoded:
    info = {"classes": len(labels), "total": cells.total, "cut": cells.cut}
    return _json({"labels": list(labels), "cells": cells.cells_N3.tolist()}, info)


def find_cells(labels: Sequence[str], counts: Any) -> Cells:
    """Return the cells of a confusion matrix, with gold labels in rows and predictions in columns."""
    matrix_KK = to_array(counts)
    if matrix_KK.shape != (len(labels), len(labels)):
        raise ValueError(f"expected counts of {len(labels)} x {len(labels)} classes, got shape {matrix_KK.shape}")
    flat = matrix_KK.ravel()
    places = flat.nonzero()[0]
    found = flat[places]
    are_whole = found.dtype.kind in "biu" or bool((found == np.floor(found)).all())
    if found.size and not (are_whole and 0 < found.min() <= found.max() < 2**62):
        raise ValueError("expected counts, which are non-negative integers; for shares, use log_table")
    total, cut = int(found.sum(dtype=np.int64)), found.size > MAX_CELLS
    if cut:
        places = places[np.sort(np.argpartition(found, -MAX_CELLS)[-MAX_CELLS:])]
    gold, predicted = np.divmod(places, len(labels))
    return Cells(np.stack([gold, predicted, flat[places].astype(np.int64)], axis=1), total, cut)


def encode_embedding(vectors: Any, labels: Sequence[str], total: int) -> Encoded:
    points_ND = to_array(vectors).astype(np.float32)
    if points_ND.ndim != 2 or (labels and len(labels) != len(points_ND)):
        raise ValueError(f"expected vectors [N, D] and N labels or none, got {points_ND.shape} and {len(labels)}")
    file = io.BytesIO()
    np.savez_compressed(file, vectors=points_ND, labels=np.array(labels, dtype=np.str_))
    rows, dimensions = points_ND.shape
    return Encoded(file.getvalue(), ".npz", {"rows": total, "dimensions": dimensions, "cut": total > rows})


def _to_tensor(values: Any) -> Any:
    if is_tensor(values):
        return values.to_dense() if values.is_sparse else values
    return import_package("torch", "a histogram").from_numpy(np.asarray(values, dtype=np.float64))


def _picture(data: bytes, info: dict[str, Any]) -> Encoded:
    return Encoded(data, ".png", png_size(data) | info)


def _json(content: dict[str, Any], info: dict[str, Any]) -> Encoded:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Encoded(text.encode("utf-8", "backslashreplace"), ".json", info)


def _widen(low: float, high: float) -> tuple[float, float]:
    """Return the range of a histogram, which must not be empty.

    >>> _widen(0.0, 0.0), _widen(1.0, 3.0)
    ((-0.5, 0.5), (1.0, 3.0))
    """
    if high > low:
        return low, high
    margin = abs(low) / 2 or 0.5
    return low - margin, high + margin


def to_scalar(value: object) -> object:
    """Return a value as a JSON scalar."""
    if is_tensor(value) or isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = value if isinstance(value, str) else _describe(value)
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


def _describe(value: object) -> str:
    if isinstance(value, Iterable) and not isinstance(value, bytes | dict):
        return " ".join(map(str, value))
    return str(value)
