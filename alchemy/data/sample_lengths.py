"""Get the lengths of a dataset's samples, from the dataset itself or by reading every sample once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from rich.console import Console

from alchemy.data.pipe_chain import link_of, title
from alchemy.data.pipe_errors import locate_error
from alchemy.errors import AlchemyError
from alchemy.progress import Bar
from alchemy.seeds import preserve_rng_state, reseed, sample_has_drawn, set_current_sample

Lengths = dict[str, np.ndarray]  # lengths of all samples by field; the first field is the primary sort key
_memory: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def lengths_of(dataset: Any, of: str | Sequence[str] = (), asked_by: str = "max_tokens") -> Lengths:
    """Return the lengths of the fields in `of`; by default, all lengths that the dataset provides."""
    fields = (of,) if isinstance(of, str) and of else tuple(of)
    known = _known_lengths(dataset)
    if known and all(field in known for field in fields):
        return {field: known[field] for field in fields or known}
    if not fields:
        hint = "set the field to measure, e.g. length_of = 'tokens', or set batch_size instead"
        raise AlchemyError(f"{asked_by} requires the lengths of the samples", hint=hint)
    memory, count = memory_of(dataset), len(dataset)
    if (fields, count) not in memory:
        memory[fields, count] = _read(dataset, fields, count)
    found: Lengths = memory[fields, count]
    return found


def memory_of(dataset: Any) -> dict[Any, Any]:
    """Return a dict that caches results computed from a dataset as long as it exists; lists are not cached."""
    try:
        return _memory.setdefault(dataset, {})
    except TypeError:
        return {}


def _known_lengths(dataset: Any) -> Lengths:
    columns = {name: np.asarray(column) for name, column in link_of(dataset).lengths().items()}
    for name, column in columns.items():
        whole = column.dtype.kind in "iu" and column.shape == (len(dataset),)
        if not whole or column.min(initial=0) < 0:
            text = f"{title(dataset)}.lengths() returned {column.dtype} of shape {column.shape} for {name!r}"
            hint = f"return one non-negative integer for each of the {len(dataset)} samples"
            raise AlchemyError(text, hint=hint)
    return columns


def _read(dataset: Any, fields: tuple[str, ...], count: int) -> Lengths:
    found = np.empty((len(fields), count), np.int64)
    try:
        with preserve_rng_state(), Bar("lengths of samples", count, Console(stderr=True)) as bar:
            reseed(0)  # all processes must get the same result
            for index in range(count):
                found[:, index] = _measure(dataset, index, fields)
                bar.step()
    except Exception as error:
        culprit = locate_error(error, dataset)
        if culprit is None:
            raise
        raise culprit from error
    return dict(zip(fields, found, strict=True))


def _measure(dataset: Any, index: int, fields: tuple[str, ...]) -> list[int]:
    found = _read_lengths(dataset, index, fields, epoch=0)
    if sample_has_drawn():
        other = _read_lengths(dataset, index, fields, epoch=1)
        if other != found:
            text = f"the lengths of sample {index} depend on random numbers: {found} or {other}"
            hint = "a token budget needs fixed lengths: use random pipes that do not change them, or set batch_size"
            raise AlchemyError(text, hint=hint)
    return found


def _read_lengths(dataset: Any, index: int, fields: tuple[str, ...], epoch: int) -> list[int]:
    set_current_sample(epoch, index)
    sample = dataset[index]
    return [_length(sample, index, field) for field in fields]


def _length(sample: Any, index: int, field: str) -> int:
    try:
        return len(sample[field])
    except (KeyError, TypeError, IndexError) as error:
        what = f"has {', '.join(map(str, sample))}" if isinstance(sample, Mapping) else f"is a {type(sample).__name__}"
        hint = "set it to a field with a length, such as a list of tokens"
        raise AlchemyError(f"length_of = {field!r}: sample {index} {what}", hint=hint) from error
