"""Batches that fit a budget of tokens."""

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
    """A data set that can cut its samples: `limits` are the most tokens of each field that it reads; none: all."""

    limits: Mapping[str, int | None] = MappingProxyType({})


class Budget(BatchOrder):
    """Samples of like length together, at most `max_tokens` in a batch, padding included.

    They are sorted by the length of their fields, the first field leading; samples of the same lengths, and the
    batches, are shuffled anew by each seed. So the lengths of the batches are the same in every epoch, and their number
    is known beforehand. `required_batch_size_multiple` cuts a batch down to a multiple, if it has as many samples;
    `multiple` is that of tokens, to which rows are padded, of all fields or of each. Without `sort_by_length` samples
    stay in the order of the data.
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
        self.limits = limits if too_long == "truncate" else {}  # to which samples have to be cut
        if self.limits:
            lengths = {name: _cut_off(column, limits[name]) for name, column in lengths.items()}
        small = {name: _small(column) for name, column in lengths.items()}
        self.keys, self.shuffle, self.sorts = list(small.values()), shuffle, sort_by_length
        self.total = len(self.keys[0])
        if shuffle and not sort_by_length:
            hint = "shuffle what is sorted, or leave both out"
            raise AlchemyError("sort_by_length = false keeps the order of the data, and shuffle changes it", hint=hint)
        self._kept = _fitting(small, limits, too_long, where)
        counted = {tokens_of: _column(small, tokens_of)} if tokens_of else small
        sizes = np.maximum.reduce([_width(column, of.get(name, 1)) for name, column in counted.items()])
        order = self._sorted(self._samples())
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
        """How many samples the batches have."""
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
        order = self._sorted(samples)
        batches = range(len(self)) if draw is None else draw.permutation(len(self)).tolist()
        for batch in batches[start:]:
            yield order[self.ends[batch] : self.ends[batch + 1]].tolist()

    def _samples(self) -> np.ndarray:
        if self._kept is not None:
            return self._kept.copy()
        return np.arange(self.total, dtype=np.int32 if self.total < 2**31 else np.int64)  # half the memory

    def _sorted(self, samples: np.ndarray) -> np.ndarray:
        """Two stable sorts, as everybody does since the first NMT systems: by target, then by source."""
        for key in reversed(self.keys if self.sorts else ()):
            samples = samples[np.argsort(key[samples], kind="stable")]
        return samples


def cut(
    sizes: np.ndarray, *, max_tokens: int | None = None, max_sentences: int | None = None, multiple: int = 1
) -> np.ndarray:
    """Where the batches of samples in this order end, 0 in front: each as large as the budget allows.

    >>> cut(np.array([2, 2, 3, 3, 5]), max_tokens=6).tolist()
    [0, 2, 4, 5]
    """
    count = len(sizes)
    budget = max_tokens or int(sizes.max(initial=1)) * count
    most = min(max_sentences or count, count)
    numbers, begin, ends = np.arange(1, most + 1), 0, [0]
    while begin < count:
        room = max(1, min(most, budget // max(int(sizes[begin]), 1), count - begin))
        # what a batch of the first 1, 2, 3.. samples would take; it only grows, so a search finds the last that fits
        padded = np.maximum.accumulate(sizes[begin : begin + room]) * numbers[:room]
        size = max(1, int(padded.searchsorted(budget, side="right")))
        if begin + size < count and size > multiple:
            size -= size % multiple
        begin += size
        ends.append(begin)
    return np.array(ends)


def _small(lengths: np.ndarray) -> np.ndarray:
    """Numbers below 65536 are sorted by their digits, three times faster."""
    return lengths.astype(np.uint16) if lengths.max(initial=0) < 2**16 else np.asarray(lengths, dtype=np.int64)


def _column(lengths: Lengths, name: str) -> np.ndarray:
    if name not in lengths:
        raise AlchemyError(f"tokens_of is {name!r}", hint=f"the samples have {', '.join(lengths)}")
    return lengths[name]


def _cut_off(lengths: np.ndarray, limit: int | None) -> np.ndarray:
    longest = int(lengths.max(initial=0))  # a small type of number does not hold every limit
    return lengths if limit is None else np.minimum(lengths, min(limit, longest))


def _width(lengths: np.ndarray, multiple: int) -> np.ndarray:
    """As wide as rows are padded; an empty one stands in a row too."""
    return lengths if multiple == 1 else -(-np.maximum(lengths, 1).astype(np.int64) // multiple) * multiple


def _fitting(
    lengths: Lengths, limits: Mapping[str, int | None], too_long: str, where: Callable[[int], str]
) -> np.ndarray | None:
    """The samples that are short enough; None for all of them."""
    over = [(c, limit) for c, limit in zip(lengths.values(), limits.values()) if limit is not None]
    over = [(column, limit) for column, limit in over if column.max(initial=0) > limit]
    if not over:
        return None
    fits = np.logical_and.reduce([column <= limit for column, limit in over])
    first, number = int(np.argmin(fits)), int((~fits).sum())
    tokens, limit = max((int(column[first]), limit) for column, limit in over if column[first] > limit)
    if too_long == "error":
        raise AlchemyError(
            f"{where(first)} has {tokens} tokens, and no more than {limit} are allowed"
            + (f"; {number - 1} others are too long as well" if number > 1 else ""),
            hint='raise max_tokens or max_length, or set too_long = "skip" or "truncate"',
        )
    if number == len(fits):
        raise AlchemyError(f"all {number} samples have more than {limit} tokens", hint="raise max_tokens or max_length")
    logger.warning("{} of {} samples have more than {} tokens and are left out", number, len(fits), limit)
    return np.flatnonzero(fits)


def pop_budget_options(options: dict[str, Any]) -> dict[str, Any]:
    """Takes what speaks of a budget out of the options of a loader; nothing where none is asked for."""
    return {key: value for key in OPTIONS if (value := options.pop(key, None)) is not None}


def build_budget(dataset: Any, given: Mapping[str, Any], *, shuffle: bool, collate: Any = None) -> Budget:
    """The batches that were asked for, worked out once for a data set: only their order is that of an epoch."""
    wanted = dict(given)
    lengths = lengths_of(dataset, wanted.pop("length_of", ()), _asks(given))
    if wanted.get("too_long") == "truncate" and not isinstance(dataset, Truncatable):
        hint = 'cut them with a pipe of your own, or set too_long = "skip"'
        raise AlchemyError('too_long = "truncate" is for corpora that are read in place', hint=hint)
    link = link_of(dataset)
    own = isinstance(collate, CollateFn)
    multiple = {name: collate.multiple_of(name) if own else link.multiple for name in lengths}
    memory, key = memory_of(dataset), (Budget, *sorted(wanted.items()), *multiple.items(), shuffle)
    columns, known = memory.get(key, ((), None))
    if known is None or not all(map(np.array_equal, columns, lengths.values())):  # of data that changes by epochs
        known = Budget(lengths, shuffle=shuffle, multiple=multiple, where=link.where, **wanted)
        memory[key] = list(lengths.values()), known
    if isinstance(dataset, Truncatable):
        dataset.limits = known.limits
    return known


def _limits_of(
    fields: Iterable[str], multiple: Mapping[str, int], max_tokens: int | None, max_length: int | None, tokens_of: str
) -> dict[str, int | None]:
    """The most tokens that each field of a sample may have; only what is counted must fit into the budget."""
    budgets = {name: max_tokens if tokens_of in ("", name) else None for name in fields}
    return {name: _limit_of(budget, max_length, multiple.get(name, 1)) for name, budget in budgets.items()}


def _limit_of(max_tokens: int | None, max_length: int | None, multiple: int) -> int | None:
    """The most tokens that a sample may have: padded to a multiple, it must fit into a batch of its own."""
    if max_tokens is not None and max_tokens < multiple:
        raise AlchemyError(f"max_tokens = {max_tokens} is less than multiple = {multiple}", hint="raise max_tokens")
    whole = None if max_tokens is None else max_tokens // multiple * multiple
    return min((number for number in (whole, max_length) if number), default=None)


def _asks(given: Mapping[str, Any]) -> str:
    return "max_tokens" if "max_tokens" in given else "max_sentences"
