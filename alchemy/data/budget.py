"""Batches that fit a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from loguru import logger

from alchemy.data.order import Order
from alchemy.errors import AlchemyError

OPTIONS = (
    "max_tokens",
    "max_sentences",
    "required_batch_size_multiple",
    "tokens_of",
    "length_of",
    "max_length",
    "too_long",
)
Lengths = dict[str, np.ndarray]  # of every sample, by field: the first field is the leading key of the order


class Budget(Order):
    """Samples of like length together, at most `max_tokens` in a batch, padding included.

    They are sorted by the length of their fields, the first field leading; samples of the same lengths, and the
    batches, are shuffled anew by each seed. So the lengths of the batches are the same in every epoch, and their number
    is known beforehand. `required_batch_size_multiple` cuts a batch down to a multiple, if it has as many samples;
    `multiple` is that of tokens, to which rows are padded.
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
        multiple: int = 1,
        shuffle: bool = False,
        where: Callable[[int], str] = "sample {}".format,
    ) -> None:
        limit = limit_of(max_tokens, max_length, multiple)
        if too_long == "truncate" and limit is not None:
            # no more than the longest: a small type of number does not hold every limit
            lengths = {name: np.minimum(c, min(limit, int(c.max(initial=0)))) for name, c in lengths.items()}
        self.keys = [_small(column) for column in lengths.values()]
        self.total, self.shuffle = len(self.keys[0]), shuffle
        longest = np.maximum.reduce(self.keys)
        self._kept = _fitting(longest, limit, too_long, where)
        sizes = _column(lengths, tokens_of) if tokens_of else longest
        if multiple > 1:  # as wide as they are padded
            sizes = -(-sizes.astype(np.int64) // multiple) * multiple
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
        for key in reversed(self.keys):
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


def lengths_of(dataset: Any, field: str = "") -> Lengths:
    """How long the samples are: as the data set says, or of a `field` that every sample has."""
    told = getattr(dataset, "lengths", None)
    if told is not None and not field:
        lengths: Lengths = told() if callable(told) else told
        return lengths
    if not field:
        hint = "name the field whose length counts: length_of = 'tokens'"
        raise AlchemyError("max_tokens needs to know how long the samples are", hint=hint)
    return {field: np.fromiter((_length(dataset[i], i, field) for i in range(len(dataset))), np.int64, len(dataset))}


def _length(sample: Any, index: int, field: str) -> int:
    try:
        return len(sample[field])
    except (KeyError, TypeError, IndexError) as error:
        what = f"has {', '.join(map(str, sample))}" if isinstance(sample, dict) else f"is a {type(sample).__name__}"
        hint = "it must be a field with a length, as a list of tokens is"
        raise AlchemyError(f"length_of = {field!r}: sample {index} {what}", hint=hint) from error


def _small(lengths: np.ndarray) -> np.ndarray:
    """Numbers below 65536 are sorted by their digits, three times faster."""
    return lengths.astype(np.uint16) if lengths.max(initial=0) < 2**16 else np.asarray(lengths, dtype=np.int64)


def _column(lengths: Lengths, name: str) -> np.ndarray:
    if name not in lengths:
        raise AlchemyError(f"tokens_of is {name!r}", hint=f"the samples have {', '.join(lengths)}")
    return lengths[name]


def _fitting(longest: np.ndarray, limit: int | None, too_long: str, where: Callable[[int], str]) -> np.ndarray | None:
    """The samples that are short enough; None for all of them."""
    if limit is None or longest.max(initial=0) <= limit:
        return None
    fits = longest <= limit
    first, number = int(np.argmin(fits)), int((~fits).sum())
    if too_long == "error":
        raise AlchemyError(
            f"{where(first)} has {int(longest[first])} tokens, and no more than {limit} are allowed"
            + (f"; {number - 1} others are too long as well" if number > 1 else ""),
            hint='raise max_tokens or max_length, or set too_long = "skip" or "truncate"',
        )
    if number == len(fits):
        raise AlchemyError(f"all {number} samples have more than {limit} tokens", hint="raise max_tokens or max_length")
    logger.warning("{} of {} samples have more than {} tokens and are left out", number, len(fits), limit)
    return np.flatnonzero(fits)


def budgeted(dataset: Any, options: dict[str, Any], *, shuffle: bool) -> Budget | None:
    """The batches that the options of a loader ask for; None where they do not speak of a budget."""
    given = {key: options.pop(key) for key in OPTIONS if options.get(key) is not None}
    if not given:
        return None
    _check(given, options)
    lengths = lengths_of(dataset, given.pop("length_of", ""))
    if given.get("too_long") == "truncate" and not hasattr(dataset, "limit"):
        hint = 'cut them with a pipe of your own, or set too_long = "skip"'
        raise AlchemyError('too_long = "truncate" is for corpora that are read in place', hint=hint)
    multiple = getattr(dataset, "multiple", 1)
    if hasattr(dataset, "limit"):
        limit = limit_of(given.get("max_tokens"), given.get("max_length"), multiple)
        dataset.limit = limit if given.get("too_long") == "truncate" else None
    where = getattr(dataset, "where", None)
    return Budget(lengths, shuffle=shuffle, multiple=multiple, **given, **({} if where is None else {"where": where}))


def limit_of(max_tokens: int | None, max_length: int | None, multiple: int) -> int | None:
    """The most tokens that a sample may have: padded to a multiple, it must fit into a batch of its own."""
    if max_tokens is not None and max_tokens < multiple:
        raise AlchemyError(f"max_tokens = {max_tokens} is less than multiple = {multiple}", hint="raise max_tokens")
    whole = None if max_tokens is None else max_tokens // multiple * multiple
    return min((number for number in (whole, max_length) if number), default=None)


def _check(given: dict[str, Any], options: dict[str, Any]) -> None:
    for name in ("max_tokens", "max_sentences", "required_batch_size_multiple", "max_length"):
        value = given.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise AlchemyError(f"{name} must be a whole number of at least 1, not {value!r}")
    if given.get("too_long", "error") not in ("error", "skip", "truncate"):
        raise AlchemyError(f"too_long must be 'error', 'skip' or 'truncate', not {given['too_long']!r}")
    if "max_tokens" not in given and "max_sentences" not in given:
        raise AlchemyError(f"{next(iter(given))} needs a budget", hint="give max_tokens, or max_sentences")
    if given.get("too_long") == "truncate" and not given.keys() & {"max_tokens", "max_length"}:
        raise AlchemyError('too_long = "truncate" needs to know at what length', hint="give max_length")
    clash = [key for key in ("batch_size", "batch_sampler", "sampler", "drop_last") if options.get(key)]
    if clash:
        hint = "remove one or the other; max_sentences limits the samples of a batch"
        raise AlchemyError(f"max_tokens excludes {', '.join(clash)}", hint=hint)
