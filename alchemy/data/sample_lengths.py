"""How long the samples of a data set are: as it says itself, or as they are found when each is read once."""

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

Lengths = dict[str, np.ndarray]  # of every sample, by field: the first field is the leading key of the order
_memory: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def lengths_of(dataset: Any, of: str | Sequence[str] = (), asked_by: str = "max_tokens") -> Lengths:
    """How long the samples are: as the data set says, or of the fields `of` that every sample has."""
    fields = (of,) if isinstance(of, str) and of else tuple(of)
    told = _told(dataset)
    if told and all(field in told for field in fields):
        return {field: told[field] for field in fields or told}
    if not fields:
        hint = "name the field whose length counts: length_of = 'tokens', or give batch_size instead"
        raise AlchemyError(f"{asked_by} needs to know how long the samples are", hint=hint)
    memory, count = memory_of(dataset), len(dataset)
    if (fields, count) not in memory:
        memory[fields, count] = _read(dataset, fields, count)
    found: Lengths = memory[fields, count]
    return found


def memory_of(dataset: Any) -> dict[Any, Any]:
    """What was worked out for a data set before, and is forgotten with it; a plain list has no memory."""
    try:
        return _memory.setdefault(dataset, {})
    except TypeError:
        return {}


def _told(dataset: Any) -> Lengths:
    columns = {name: np.asarray(column) for name, column in link_of(dataset).lengths().items()}
    for name, column in columns.items():
        whole = column.dtype.kind in "iu" and column.shape == (len(dataset),)
        if not whole or column.min(initial=0) < 0:
            text = f"{title(dataset)}.lengths() has {column.dtype} of the shape {column.shape} for {name!r}"
            raise AlchemyError(text, hint=f"it must be one whole number, 0 or more, for each of {len(dataset)} samples")
    return columns


def _read(dataset: Any, fields: tuple[str, ...], count: int) -> Lengths:
    found = np.empty((len(fields), count), np.int64)
    try:
        with preserve_rng_state(), Bar("lengths of samples", count, Console(stderr=True)) as bar:
            reseed(0)  # of several processes each must find the same
            for index in range(count):
                found[:, index] = _measured(dataset, index, fields)
                bar.step()
    except Exception as error:
        culprit = locate_error(error, dataset)
        if culprit is None:
            raise
        raise culprit from error
    return dict(zip(fields, found, strict=True))


def _measured(dataset: Any, index: int, fields: tuple[str, ...]) -> list[int]:
    found = _seen(dataset, index, fields, epoch=0)
    if sample_has_drawn():
        other = _seen(dataset, index, fields, epoch=1)
        if other != found:
            text = f"the lengths of sample {index} depend on random numbers: {found}, or {other}"
            hint = "no budget can be kept so: let pipes draw what leaves lengths as they are, or give batch_size"
            raise AlchemyError(text, hint=hint)
    return found


def _seen(dataset: Any, index: int, fields: tuple[str, ...], epoch: int) -> list[int]:
    set_current_sample(epoch, index)
    sample = dataset[index]
    return [_length(sample, index, field) for field in fields]


def _length(sample: Any, index: int, field: str) -> int:
    try:
        return len(sample[field])
    except (KeyError, TypeError, IndexError) as error:
        what = f"has {', '.join(map(str, sample))}" if isinstance(sample, Mapping) else f"is a {type(sample).__name__}"
        hint = "it must be a field with a length, as a list of tokens is"
        raise AlchemyError(f"length_of = {field!r}: sample {index} {what}", hint=hint) from error
