"""Batches that fit within a token budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from loguru import logger

from alchemy.data.batch_sampler import BatchOrder
from alchemy.data.collate import CollateFn
from alchemy.data.pipe_chain import link_of
from alchemy.data.sample_lengths import Lengths, lengths_of, memory_of
from alchemy.errors import AlchemyError
from alchemy.key_rules import BATCH_BUDGETS, BUDGET_OPTIONS

OPTIONS = (*BATCH_BUDGETS, *BUDGET_OPTIONS)


class Truncatable:
    """A dataset that can truncate its samples to `limits`, the maximum number of tokens of each field."""

    limits: Mapping[str, int | None] = MappingProxyType({})


class Budget(BatchOrder):
    """Batches of samples of similar length, with at most `max_tokens` tokens each, including padding.

    Samples are sorted by the lengths of their fields, starting with the first field. The seed only shuffles the batches
    and samples of equal lengths, so batch sizes are the same in every epoch and the number of batches is known in
    advance. Batch sizes above `required_batch_size_multiple` are rounded down to a multiple of it. Rows are
    padded to a multiple of `multiple` tokens, which may be set for all fields or per field. Without `sort_by_length`,
    samples stay in the order of the data.
    """

    def __init__(
        self,
        lengths: Lengths,
        *,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        required_batch_size_multiple: int = 1,
        tokens_of: str = "",
        max_length: int | None = None,
        too_long: Literal["error", "skip", "truncate"] = "error",
        sort_by_length: bool = True,
        multiple: int | Mapping[str, int] = 1,
        shuffle: bool = False,
        where: Callable[[int], str] = "sample {}".format,
    ) -> None:
        of = multiple if isinstance(multiple, Mapping) else dict.fromkeys(lengths, multiple)
        limits = _limits_of(lengths, of, max_tokens, max_length, tokens_of)
        self.limits = limits if too_long == "truncate" else {}  # samples are truncated to these lengths
        if self.limits:
            lengths = {name: _truncate(column, limits[name]) for name, column in lengths.items()}
        small = {name: _shrink_dtype(column) for name, column in lengths.items()}
        self.keys, self.shuffle, self.sorts = list(small.values()), shuffle, sort_by_length
        self.total = len(self.keys[0])
        if shuffle and not sort_by_length:
            hint = "remove one of the two"
            raise AlchemyError("sort_by_length = false keeps the order of the data, but shuffle changes it", hint=hint)
        self._kept = _find_fitting(small, limits, too_long, where)
        counted = {tokens_of: _get_column(small, tokens_of)} if tokens_of else small
        sizes = np.maximum.reduce([_padded_width(column, of.get(name, 1)) for name, column in counted.items()])
        order = self._sort(self._samples())
        self.ends = cut(
            sizes[order],
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            multiple=required_batch_size_multiple,
        )

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def samples(self) -> int:
        """The number of samples in all batches."""
        return int(self.ends[-1])

    def left_out(self, seed: int) -> list[int]:
        if self._kept is None:
            return []
        missing = np.ones(self.total, dtype=bool)
        missing[self._kept] = False
        found: list[int] = np.flatnonzero(missing).tolist()
        return found

    def from_batch(self, start: int, seed: int) -> Iterator[list[int]]:
        draw = np.random.Generator(np.random.PCG64(seed)) if self.shuffle else None
        samples = self._samples()
        if draw is not None:
            draw.shuffle(samples)
        order = self._sort(samples)
        batches = range(len(self)) if draw is None else draw.permutation(len(self)).tolist()
        for batch in batches[start:]:
            yield order[self.ends[batch] : self.ends[batch + 1]].tolist()

    def _samples(self) -> np.ndarray:
        if self._kept is not None:
            return self._kept.copy()
        return np.arange(self.total, dtype=np.int32 if self.total < 2**31 else np.int64)  # half the memory

    def _sort(self, samples: np.ndarray) -> np.ndarray:
        """Sort by each field with stable sorts, primary key last, e.g. by target and then by source."""
        for key in reversed(self.keys if self.sorts else ()):
            samples = samples[np.argsort(key[samples], kind="stable")]
        return samples


def cut(
    sizes: np.ndarray, *, max_tokens: int | None = None, max_sentences: int | None = None, multiple: int = 1
) -> np.ndarray:
    """Return the batch boundaries (0 and the end of each batch); each batch is as large as the budget allows.

    >>> cut(np.array([2, 2, 3, 3, 5]), max_tokens=6).tolist()
    [0, 2, 4, 5]
    """
    count = len(sizes)
    budget = max_tokens or int(sizes.max(initial=1)) * count
    most = min(max_sentences or count, count)
    numbers, begin, ends = np.arange(1, most + 1), 0, [0]
    while begin < count:
        room = max(1, min(most, budget // max(int(sizes[begin]), 1), count - begin))
        # the padded size of a batch of the first 1, 2, 3.. samples; it is monotonic, so a binary search works
        padded = np.maximum.accumulate(sizes[begin : begin + room]) * numbers[:room]
        size = max(1, int(padded.searchsorted(budget, side="right")))
        if begin + size < count and size > multiple:
            size -= size % multiple
        begin += size
        ends.append(begin)
    return np.array(ends)


def _shrink_dtype(lengths: np.ndarray) -> np.ndarray:
    """Convert lengths below 65536 to uint16, which NumPy sorts three times faster with a radix sort."""
    return lengths.astype(np.uint16) if lengths.max(initial=0) < 2**16 else np.asarray(lengths, dtype=np.int64)


def _get_column(lengths: Lengths, name: str) -> np.ndarray:
    if name not in lengths:
        hint = f"available fields: {', '.join(lengths)}"
        raise AlchemyError(f"tokens_of = {name!r} is not a field of the samples", hint=hint)
    return lengths[name]


def _truncate(lengths: np.ndarray, limit: int | None) -> np.ndarray:
    longest = int(lengths.max(initial=0))  # the limit may not fit into a small dtype
    return lengths if limit is None else np.minimum(lengths, min(limit, longest))


def _padded_width(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """Return the width of the padded rows; an empty sample also takes up a row."""
    return lengths if multiple == 1 else -(-np.maximum(lengths, 1).astype(np.int64) // multiple) * multiple


def _find_fitting(
    lengths: Lengths, limits: Mapping[str, int | None], too_long: str, where: Callable[[int], str]
) -> np.ndarray | None:
    """Return the samples that are short enough; None if all of them are."""
    over = [(c, limit) for c, limit in zip(lengths.values(), limits.values()) if limit is not None]
    over = [(column, limit) for column, limit in over if column.max(initial=0) > limit]
    if not over:
        return None
    fits = np.logical_and.reduce([column <= limit for column, limit in over])
    first, number = int(np.argmin(fits)), int((~fits).sum())
    tokens, limit = max((int(column[first]), limit) for column, limit in over if column[first] > limit)
    if too_long == "error":
        raise AlchemyError(
            f"{where(first)} has {tokens} tokens, more than the limit of {limit}"
            + (f" ({number:,} samples are too long)" if number > 1 else ""),
            hint='raise max_tokens or max_length, or set too_long = "skip" or "truncate"',
        )
    if number == len(fits):
        raise AlchemyError(f"all {number} samples have more than {limit} tokens", hint="raise max_tokens or max_length")
    logger.warning("{} of {} samples have more than {} tokens and are skipped", number, len(fits), limit)
    return np.flatnonzero(fits)


def pop_budget_options(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the budget options from the options of a loader and return them."""
    return {key: value for key in OPTIONS if (value := options.pop(key, None)) is not None}


def build_budget(dataset: Any, given: Mapping[str, Any], *, shuffle: bool, collate: Any = None) -> Budget:
    """Return the batches for a dataset, computed once per dataset; only their order depends on the epoch."""
    wanted = dict(given)
    lengths = lengths_of(dataset, wanted.pop("length_of", ()), _requester(given))
    if wanted.get("too_long") == "truncate" and not isinstance(dataset, Truncatable):
        hint = 'truncate the samples in a pipe, or set too_long = "skip"'
        raise AlchemyError('too_long = "truncate" is only supported for memory-mapped corpora', hint=hint)
    link = link_of(dataset)
    own = isinstance(collate, CollateFn)
    multiple = {name: collate.multiple_of(name) if own else link.multiple for name in lengths}
    memory, key = memory_of(dataset), (Budget, *sorted(wanted.items()), *multiple.items(), shuffle)
    columns, known = memory.get(key, ((), None))
    if known is None or not all(map(np.array_equal, columns, lengths.values())):  # the data may change between epochs
        known = Budget(lengths, shuffle=shuffle, multiple=multiple, where=link.where, **wanted)
        memory[key] = list(lengths.values()), known
    if isinstance(dataset, Truncatable):
        dataset.limits = known.limits
    return known


def _limits_of(
    fields: Iterable[str], multiple: Mapping[str, int], max_tokens: int | None, max_length: int | None, tokens_of: str
) -> dict[str, int | None]:
    """Return the maximum number of tokens for each field; only fields that count toward the budget must fit."""
    budgets = {name: max_tokens if tokens_of in ("", name) else None for name in fields}
    return {name: _limit_of(budget, max_length, multiple.get(name, 1)) for name, budget in budgets.items()}


def _limit_of(max_tokens: int | None, max_length: int | None, multiple: int) -> int | None:
    """Return the maximum number of tokens in a sample, which must fit into a batch after padding to a multiple."""
    if max_tokens is not None and max_tokens < multiple:
        raise AlchemyError(f"max_tokens = {max_tokens} is less than multiple = {multiple}", hint="raise max_tokens")
    whole = None if max_tokens is None else max_tokens // multiple * multiple
    return min((number for number in (whole, max_length) if number), default=None)


def _requester(given: Mapping[str, Any]) -> str:
    return "max_tokens" if "max_tokens" in given else "max_sentences"
