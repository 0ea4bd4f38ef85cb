"""Copy the values of each kind of media, which takes microseconds, and return the function that encodes the copy."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from alchemy.media import encode
from alchemy.media.pixels import MOST
from alchemy.media.snapshot import copy_value, is_tensor, size_of, to_array
from alchemy.records.media_entry import Encoded


class Prepared(NamedTuple):
    """A function that encodes a copy of about `size` bytes."""

    encode: Callable[[], Encoded]
    size: int


def _prepare_image(image: Any, caption: str) -> Prepared:
    copy = copy_value(image)
    return Prepared(partial(encode.encode_image, copy, str(caption)), size_of(copy))


def _prepare_images(images: Any, captions: Iterable[str], columns: int) -> Prepared:
    total = len(images)
    copy = copy_value(images[:MOST])  # a grid shows no more
    return Prepared(partial(encode.encode_images, copy, list(map(str, captions)), columns, total), size_of(copy))


def _prepare_figure(figure: Any) -> Prepared:
    # drawn here: matplotlib is not thread-safe, and the caller may go on to change the figure
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return Prepared(partial(encode.encode_figure, file.getvalue()), len(file.getvalue()))


def _prepare_histogram(values: Any) -> Prepared:
    copy = copy_value(values) if is_tensor(values) else to_array(values).copy()
    if size_of(copy) == 0:
        raise ValueError("expected numbers, got no values")
    if isinstance(copy, np.ndarray) and copy.dtype.kind not in "biuf":
        raise TypeError(f"expected numbers, got values of type {copy.dtype}")
    return Prepared(partial(encode.encode_histogram, copy), size_of(copy))


def _prepare_text(text: object) -> Prepared:
    whole = str(text)
    kept = whole[: encode.MAX_TEXT]
    return Prepared(partial(encode.encode_text, kept, len(whole)), len(kept))


def _prepare_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Prepared:
    reading = iter(rows)
    kept = [list(map(encode.to_scalar, row)) for row in itertools.islice(reading, encode.MAX_ROWS)]
    total = len(kept) + sum(1 for _ in reading)
    wrong = next((row for row in kept if len(row) != len(columns)), None)
    if wrong is not None:
        raise ValueError(f"expected rows of {len(columns)} values, got one of {len(wrong)}")
    return Prepared(partial(encode.encode_table, list(columns), kept, total), 64 * len(columns) * len(kept))


def _prepare_attention(weights: Any, rows: Iterable[str], columns: Iterable[str], example: str) -> Prepared:
    copy = copy_value(weights)
    tokens = list(map(str, rows)), list(map(str, columns))
    return Prepared(partial(encode.encode_attention, copy, *tokens, str(example)), size_of(copy))


def _prepare_confusion(labels: Iterable[str], counts: Any) -> Prepared:
    names = list(map(str, labels))
    cells = encode.find_cells(names, counts)
    return Prepared(partial(encode.encode_confusion, names, cells), cells.cells_N3.nbytes)


def _prepare_embedding(vectors: Any, labels: Iterable[str]) -> Prepared:
    total, most = len(vectors), encode.MAX_POINTS
    names = list(map(str, labels))
    if names and len(names) != total:
        raise ValueError(f"expected vectors [N, D] and N labels or none, got {total} vectors and {len(names)} labels")
    copy = copy_value(vectors[:most])
    return Prepared(partial(encode.encode_embedding, copy, names[:most], total), size_of(copy))


PREPARE: dict[str, Callable[..., Prepared]] = {
    "image": _prepare_image,
    "images": _prepare_images,
    "figure": _prepare_figure,
    "histogram": _prepare_histogram,
    "text": _prepare_text,
    "table": _prepare_table,
    "attention": _prepare_attention,
    "confusion": _prepare_confusion,
    "embedding": _prepare_embedding,
}
