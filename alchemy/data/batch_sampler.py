"""The order of an epoch: which samples make which batch, from where on, and for which of several processes."""

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
    """From which batch on an epoch is read, and by which of how many processes."""

    start: int = 0  # in batches of all processes together
    rank: int = 0
    ranks: int = 1
    per_device: bool = False  # a batch is for one process, instead of being cut for all of them


WHOLE = EpochPosition()


class Ids(list[Any]):
    """The indices or keys of a batch; whoever reads them one by one, in this process or in a worker, gets random
    numbers that are a function of (seed, epoch, sample), not of the worker."""

    def __init__(self, indices: Iterable[Any], seed: int) -> None:
        super().__init__(indices)
        self.seed = seed

    def __iter__(self) -> Iterator[Any]:
        # code that draws from the global generators is seeded once a batch: three seeds a sample would cost too much
        first = self[0] if len(self) else -1
        reseed(mix(self.seed, first) if type(first) is int else derive(self.seed, "batch", first))
        for index in super().__iter__():
            set_current_sample(self.seed, index)
            yield index

    def __reduce__(self) -> tuple[Any, ...]:
        return Ids, (list.copy(self), self.seed)


def count_batches(samples: int, size: int, drop_last: bool) -> int:
    """How many batches of a size samples give."""
    return samples // size if drop_last else -(-samples // size)


class BatchOrder:
    """The batches of an epoch, as lists of sample numbers; any of them is found without a walk."""

    total: int  # samples of the data set

    def __len__(self) -> int:
        raise NotImplementedError

    def left_out(self, seed: int) -> list[int]:
        """The samples that are in no batch."""
        raise NotImplementedError

    def from_batch(self, start: int, seed: int) -> Iterator[list[int]]:
        raise NotImplementedError


class EqualBatches(BatchOrder):
    """The samples of an epoch in the order of its seed, cut into batches of one size."""

    def __init__(self, samples: int, size: int, *, shuffle: bool, drop_last: bool) -> None:
        self.total, self.size, self.shuffle, self.drop_last = samples, size, shuffle, drop_last

    def __len__(self) -> int:
        return count_batches(self.total, self.size, self.drop_last)

    @property
    def samples(self) -> int:
        """How many samples the batches have."""
        return min(self.total, len(self) * self.size)

    def left_out(self, seed: int) -> list[int]:
        """Those that do not fill a last batch."""
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
    """What a loader was given in one step."""

    everyone: list[int] | None  # the indices of all processes, in their order; None where a sampler gives other keys
    own: list[int] | None  # those of this one
    real: bool  # whether it has any; else it reads what another one does


UNKNOWN = StepSamples(None, None, True)  # a batch of which nobody knows the samples
NOTHING = StepSamples(None, [], False)  # in a step that only others have something to do in


class ShardedBatchSampler:
    """A batch sampler: the batches of one process, and a note of each that was handed to the loader.

    A batch is cut into as many pieces as there are processes, so that an update has the same samples for any number
    of them; with `per_device` whole batches are dealt in turn. A process for which nothing is left gets a copy of what
    another one has, marked as not real: it takes part in the update with a count of zero.
    """

    def __init__(self, batches: BatchOrder | Iterable[Iterable[Any]], place: EpochPosition, seed: int) -> None:
        self.batches, self.place, self.seed = batches, place, seed
        self.handed: deque[StepSamples] = deque()

    def whole(self) -> tuple[int | None, list[int]]:
        """How many samples there are, and which of them an epoch leaves out; None where a sampler chooses them."""
        if not isinstance(self.batches, BatchOrder):
            return None, []
        return self.batches.total, self.batches.left_out(self.seed)

    def new_pass(self, number: int) -> None:
        """A loader that is read a second time gives another order."""
        if number:
            self.seed = derive(self.seed, "pass", number)

    def __len__(self) -> int:
        left = max(0, len(self.batches) - self.place.start)  # type: ignore[arg-type]
        return -(-left // self.place.ranks) if self.place.per_device else left

    def __iter__(self) -> Iterator[Ids]:
        self.handed.clear()
        if self.place.ranks == 1 and isinstance(
            self.batches, BatchOrder
        ):  # nothing to share, and all of them are numbers
            for batch in self.batches.from_batch(self.place.start, self.seed):
                self.handed.append(StepSamples(batch, batch, True))
                yield Ids(batch, self.seed)
            return
        rank = self.place.rank
        for pieces in self._steps():
            own = pieces[rank] if rank < len(pieces) else []
            self.handed.append(_noted(pieces, own))
            yield Ids(own or pieces[0], self.seed)

    def _steps(self) -> Iterator[list[list[Any]]]:
        """What the processes read in each step, the first process first."""
        start, _, ranks, per_device = self.place
        batches = (_keys(batch) for batch in self._from(start))
        if not per_device:
            return (cut_evenly(batch, ranks) for batch in batches)
        return iter(lambda: list(itertools.islice(batches, ranks)), [])

    def _from(self, start: int) -> Iterator[Iterable[Any]]:
        if isinstance(self.batches, BatchOrder):
            return self.batches.from_batch(start, self.seed)
        return itertools.islice(_drawn_apart(self.batches, derive(self.seed, "sampler")), start, None)


def _keys(batch: Iterable[Any]) -> list[Any]:
    """Plain numbers where a sampler gives indices; anything else, as texts or tuples, as it is."""
    keys = list(batch)
    try:
        return list(map(operator.index, keys))
    except TypeError:
        return keys


def _noted(pieces: list[list[Any]], own: list[Any]) -> StepSamples:
    everyone = [key for piece in pieces for key in piece]
    if set(map(type, everyone)) <= {int}:
        return StepSamples(everyone, own, bool(own))
    return StepSamples(None, None if own else [], bool(own))


def _drawn_apart(batches: Iterable[Iterable[Any]], seed: int) -> Iterator[Iterable[Any]]:
    """The batches of a sampler of the project's own: what it draws from the global generators, batch by batch, is a
    function of the seed, whatever else is drawn in between; and nobody else sees that it has drawn."""
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
    """`items` in `parts` pieces whose sizes differ by one at most, the larger ones first."""
    size, more = divmod(len(items), parts)
    ends = list(itertools.accumulate(size + (part < more) for part in range(parts)))
    return [items[end - size - (part < more) : end] for part, end in enumerate(ends)]


class Single:
    """Makes batches of one sample, for data whose samples are batches already."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[Any]]:
        return ([key] for key in self.sampler)


class Unpack:
    """The collate function of such batches: takes the one sample out of its list."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, samples: list[Any]) -> Any:
        sample = samples[0]
        if self.collate is default_convert and type(sample) is dict and all(map(torch.is_tensor, sample.values())):
            return dict(sample)  # all that torch's function would do, in a tenth of the time
        return self.collate(sample)
