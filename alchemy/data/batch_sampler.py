"""Batch samplers: the order of batches in an epoch, the start position, and distribution across processes."""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_convert

from alchemy.seeds import Generators, derive, mix, reseed, set_current_sample


class EpochPosition(NamedTuple):
    """The batch at which an epoch starts, the rank of this process, and the number of processes."""

    start: int = 0  # in batches, counted across all processes
    rank: int = 0
    ranks: int = 1
    per_device: bool = False  # each batch goes to one process, instead of being split among all of them


WHOLE = EpochPosition()


class Ids(list[Any]):
    """The indices or keys of a batch.

    Iterating over them, in this process or in a worker, seeds the random number generators, so random numbers
    depend on (seed, epoch, sample) and not on the worker.
    """

    def __init__(self, indices: Iterable[Any], seed: int) -> None:
        super().__init__(indices)
        self.seed = seed

    def __iter__(self) -> Iterator[Any]:
        # the global generators are seeded once per batch: seeding three of them per sample is too expensive
        first = self[0] if len(self) else -1
        reseed(mix(self.seed, first) if type(first) is int else derive(self.seed, "batch", first))
        for index in super().__iter__():
            set_current_sample(self.seed, index)
            yield index

    def __reduce__(self) -> tuple[Any, ...]:
        return Ids, (list.copy(self), self.seed)


def count_batches(samples: int, size: int, drop_last: bool) -> int:
    """Return the number of batches of size `size` in `samples` samples."""
    return samples // size if drop_last else -(-samples // size)


class BatchOrder:
    """The batches of an epoch as lists of sample indices; iteration can start at any batch."""

    total: int  # number of samples in the dataset

    def __len__(self) -> int:
        raise NotImplementedError

    def left_out(self, seed: int) -> list[int]:
        """Return the samples that are not in any batch."""
        raise NotImplementedError

    def from_batch(self, start: int, seed: int) -> Iterator[list[int]]:
        """Yield the batches of an epoch, beginning with batch `start`."""
        raise NotImplementedError


class EqualBatches(BatchOrder):
    """Batches of a fixed size, with the samples in order or shuffled with the epoch's seed."""

    def __init__(self, samples: int, size: int, *, shuffle: bool, drop_last: bool) -> None:
        self.total, self.size, self.shuffle, self.drop_last = samples, size, shuffle, drop_last

    def __len__(self) -> int:
        return count_batches(self.total, self.size, self.drop_last)

    @property
    def samples(self) -> int:
        """The number of samples in all batches."""
        return min(self.total, len(self) * self.size)

    def left_out(self, seed: int) -> list[int]:
        """Return the samples of the incomplete last batch, if it is dropped."""
        if not self.drop_last:
            return []
        order = self._order(seed)
        return list(range(self.samples, self.total)) if order is None else order[self.samples :].tolist()

    def _order(self, seed: int) -> torch.Tensor | None:
        return torch.randperm(self.total, generator=torch.Generator().manual_seed(seed)) if self.shuffle else None

    def from_batch(self, start: int, seed: int) -> Iterator[list[int]]:
        order = self._order(seed)
        for begin in range(start * self.size, self.samples, self.size):
            end = min(begin + self.size, self.total)
            yield list(range(begin, end)) if order is None else order[begin:end].tolist()


class StepSamples(NamedTuple):
    """The samples of one step."""

    everyone: list[int] | None  # the indices of all processes, in rank order; None if keys are not integers
    own: list[int] | None  # the indices of this process
    real: bool  # False if this process has no samples and reads a copy of another process's batch


UNKNOWN = StepSamples(None, None, True)  # a batch whose indices are unknown
NOTHING = StepSamples(None, [], False)  # a step in which only other processes have samples


class ShardedBatchSampler:
    """A batch sampler that yields the batches of one process and records them in `issued`.

    Each batch is split among the processes, so an update uses the same samples regardless of the number of processes.
    With `per_device`, whole batches are distributed round-robin. A process without samples gets a copy of another
    process's batch, marked as not real, and takes part in the update with a count of zero.
    """

    def __init__(self, batches: BatchOrder | Iterable[Iterable[Any]], place: EpochPosition, seed: int) -> None:
        self.batches, self.place, self.seed = batches, place, seed
        self.issued: deque[StepSamples] = deque()

    def coverage(self) -> tuple[int | None, list[int]]:
        """Return the number of samples (None with a custom sampler), and the samples that the epoch leaves out."""
        if not isinstance(self.batches, BatchOrder):
            return None, []
        return self.batches.total, self.batches.left_out(self.seed)

    def start_pass(self, number: int) -> None:
        """Set the order for pass `number`; every pass over the loader after the first uses a new order."""
        if number:
            self.seed = derive(self.seed, "pass", number)

    def __len__(self) -> int:
        left = max(0, len(self.batches) - self.place.start)  # type: ignore[arg-type]
        return -(-left // self.place.ranks) if self.place.per_device else left

    def __iter__(self) -> Iterator[Ids]:
        self.issued.clear()
        if self.place.ranks == 1 and isinstance(
            self.batches, BatchOrder
        ):  # nothing to split, and all keys are integers
            for batch in self.batches.from_batch(self.place.start, self.seed):
                self.issued.append(StepSamples(batch, batch, True))
                yield Ids(batch, self.seed)
            return
        rank = self.place.rank
        for pieces in self._steps():
            own = pieces[rank] if rank < len(pieces) else []
            self.issued.append(_make_step(pieces, own))
            yield Ids(own or pieces[0], self.seed)

    def _steps(self) -> Iterator[list[list[Any]]]:
        """Yield the keys of each step, one list per process."""
        start, _, ranks, per_device = self.place
        batches = (_to_keys(batch) for batch in self._batches_from(start))
        if not per_device:
            return (cut_evenly(batch, ranks) for batch in batches)
        return iter(lambda: list(itertools.islice(batches, ranks)), [])

    def _batches_from(self, start: int) -> Iterator[Iterable[Any]]:
        if isinstance(self.batches, BatchOrder):
            return self.batches.from_batch(start, self.seed)
        return itertools.islice(_isolate_rng(self.batches, derive(self.seed, "sampler")), start, None)


def _to_keys(batch: Iterable[Any]) -> list[Any]:
    """Convert indices to plain integers; leave other keys, such as strings or tuples, unchanged."""
    keys = list(batch)
    try:
        return list(map(operator.index, keys))
    except TypeError:
        return keys


def _make_step(pieces: list[list[Any]], own: list[Any]) -> StepSamples:
    everyone = [key for piece in pieces for key in piece]
    if set(map(type, everyone)) <= {int}:
        return StepSamples(everyone, own, bool(own))
    return StepSamples(None, None if own else [], bool(own))


def _isolate_rng(batches: Iterable[Iterable[Any]], seed: int) -> Iterator[Iterable[Any]]:
    """Yield the batches of a custom sampler, isolating its use of the global random number generators.

    The random numbers that the sampler draws depend only on the seed, and drawing them does not affect other code.
    """
    generators = Generators()
    outside = generators.state_dict()
    reseed(seed)
    iterator, own = iter(batches), generators.state_dict()
    generators.load_state_dict(outside)
    while True:
        outside = generators.state_dict()
        generators.load_state_dict(own)
        try:
            batch = next(iterator)
        except StopIteration:
            return
        finally:
            own = generators.state_dict()
            generators.load_state_dict(outside)
        yield batch


def cut_evenly(items: list[Any], parts: int) -> list[list[Any]]:
    """Split a list into `parts` pieces whose sizes differ by at most one, larger pieces first."""
    size, more = divmod(len(items), parts)
    ends = list(itertools.accumulate(size + (part < more) for part in range(parts)))
    return [items[end - size - (part < more) : end] for part, end in enumerate(ends)]


class Single:
    """A batch sampler with one sample per batch, for datasets whose samples are already batches."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[Any]]:
        return ([key] for key in self.sampler)


class Unpack:
    """The collate function for `Single`, which unwraps the sample from its list."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, samples: list[Any]) -> Any:
        sample = samples[0]
        if self.collate is default_convert and type(sample) is dict and all(map(torch.is_tensor, sample.values())):
            return dict(sample)  # same result as default_convert, but ten times faster
        return self.collate(sample)
