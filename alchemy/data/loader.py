"""The loader: batches in an order that is a function of the seed, every argument of torch's reachable from a config."""

from __future__ import annotations

import inspect
import itertools
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, default_convert

from alchemy.data.batch_digest import content_digest
from alchemy.data.batch_sampler import (
    UNKNOWN,
    WHOLE,
    BatchOrder,
    EpochPosition,
    EqualBatches,
    ShardedBatchSampler,
    Single,
    Unpack,
    count_batches,
)
from alchemy.data.collate import Pad
from alchemy.data.device import batch_to_device
from alchemy.data.import_named import import_named
from alchemy.data.loader_arguments import check_arguments
from alchemy.data.peek import peek
from alchemy.data.pipe_chain import (
    acting_as,
    counts_its_share,
    fetcher,
    is_unsplit,
    link_of,
    members,
    seed_chain,
    share_out,
    title,
    walk,
)
from alchemy.data.pipe_errors import locate_error, unpicklable
from alchemy.data.token_budget import build_budget, pop_budget_options
from alchemy.errors import AlchemyError
from alchemy.registry import plain
from alchemy.seeds import derive, reseed

__all__ = ["Loader", "batch_to_device", "get_dataloader"]

# below this, pinned pages (which cannot be swapped out) would starve the rest of the machine
PIN_FROM_BYTES = 4 * 2**30


class Loader(DataLoader[Any]):
    """A torch DataLoader that seeds the pipes it reads, counts what workers share, and names what goes wrong.

    Data with an index comes in the batches of a `deal`, which is the batch sampler that torch is given.
    """

    def __init__(
        self, dataset: Any, *, seed: int, place: EpochPosition, deal: ShardedBatchSampler | None, **options: Any
    ) -> None:
        super().__init__(dataset, **options if deal is None else {**options, "batch_sampler": deal})
        self.seed, self.place, self.deal = seed, place, deal
        self.passes = 0
        self.given = UNKNOWN  # what is known of the batch that was given last
        self.skipped: Any = None  # a batch of a stream that was read and not given
        # of a stream that no pipe splits every process reads all, and takes the batches whose turn it is
        self.turn, self.turns = (place.rank, place.ranks) if is_unsplit(dataset) else (0, 1)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        seed_chain(self.dataset, self.seed, self.passes)
        share_out(self.dataset, self.place.rank, self.place.ranks)
        if self.deal is not None:
            self.deal.new_pass(self.passes)
        self.passes += 1
        empty = not self.place.start
        self.skipped = None
        try:
            for batch in self._stream() if self.deal is None else self._dealt(self.deal):
                empty = False
                yield batch
        except AlchemyError as error:
            raise locate_error(error, self.dataset) or _from_worker(error) from error
        except Exception as error:
            culprit = locate_error(error, self.dataset)
            if culprit is None:
                raise
            raise culprit from error
        if empty and self.skipped is None:
            raise _nothing(self)

    def _dealt(self, deal: ShardedBatchSampler) -> Iterator[Any]:
        """The batches of data with an index, and what is known of each."""
        for batch in self._start():
            handed = deal.handed.popleft()
            # out of order nobody knows which batch this is
            self.given = handed if self.in_order else UNKNOWN._replace(real=handed.real)
            yield batch

    def _stream(self) -> Iterator[Any]:
        """The batches of a stream, which has to be read up to the start that was asked for."""
        if self.place.start:
            logger.info("the stream is read again up to batch {}, where training goes on", self.place.start)
        batches = self._start()
        for number in itertools.count():
            if not self.num_workers:
                # what its pipes draw must not depend on what the model has drawn in between
                reseed(derive(self.seed, "stream", number))
            try:
                batch = next(batches)
            except StopIteration:
                return
            step, turn = divmod(number, self.turns)
            if turn == self.turn and step >= self.place.start:
                yield batch
            else:
                self.skipped = batch

    @property
    def ids(self) -> list[int] | None:
        """The samples of the last batch over all processes; None for a stream, and for keys that are no numbers."""
        return self.given.everyone

    @property
    def own(self) -> list[int] | None:
        """Those of this process."""
        return self.given.own

    @property
    def real(self) -> bool:
        """Whether the last batch is this process's own; else it only keeps the others company."""
        return self.given.real

    def digest(self, batch: Any) -> bytes | None:
        """What tells a batch of a stream from others; nothing where the indices do."""
        return content_digest(batch) if self.own is None else None

    def whole(self) -> tuple[int | None, list[int]]:
        """How many samples there are, and which of them an epoch leaves out; None where nobody can tell."""
        return (None, []) if self.deal is None or not self.in_order else self.deal.whole()

    def __len__(self) -> int:
        workers = self.num_workers
        if workers < 2 or not isinstance(self.dataset, IterableDataset) or not counts_its_share(self.dataset):
            return count_batches(super().__len__() - self.turn, self.turns, drop_last=False)
        # each worker makes its own last, smaller batch, so the total depends on how many there are
        total = 0
        for worker in range(workers):
            with acting_as(worker, workers):
                count = len(self.dataset)  # type: ignore[arg-type]
            total += count_batches(count, self.batch_size or 1, self.drop_last)
        return total

    def _read(self, deal: ShardedBatchSampler) -> Iterator[Any]:
        """As torch reads without workers, at half the cost: a small model would wait for it."""
        fetch = fetcher(self.dataset)
        for ids in deal:
            yield self.collate_fn(fetch(ids))

    def _start(self) -> Iterator[Any]:
        in_process = not self.num_workers and not self.pin_memory
        if in_process and self.deal is not None and isinstance(self.deal.batches, BatchOrder):
            return self._read(self.deal)
        try:
            with warnings.catch_warnings():
                # torch warns before it raises; the error below says it better
                warnings.filterwarnings("ignore", message="Got pickle error")
                return super().__iter__()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            if self.num_workers and "pickle" in str(error):
                raise _unpicklable(self, error) from error
            raise


def get_dataloader(dataset: Any, seed: int = 0, *, place: EpochPosition = WHOLE, **kwargs: Any) -> Loader:
    """The loader of a data set; keywords are those of `torch.utils.data.DataLoader`, as a config can write them.

    `sampler`, `batch_sampler`, `collate_fn` and `worker_init_fn` may be an import path or a table with a `type`.
    The order is a function of `seed` alone, for shuffling samplers and for shuffling pipes, with any number of workers;
    whoever trains for several epochs gives each its own seed. Without `batch_size` a sample is a batch already, unless
    `max_tokens` or `max_sentences` make batches of samples of like length (`alchemy.data.token_budget`).
    """
    options = {key: plain(value) for key, value in kwargs.items()}
    check_arguments(dataset, options, place.ranks)
    place = place._replace(per_device=options.pop("per_device", False) or options.get("batch_size") is None)
    budget = pop_budget_options(options)
    _choose_collate(dataset, options, budget)
    seed, generator = _seeded(seed, options.get("generator"))
    options["generator"] = generator
    given = {"data_source": dataset, "dataset": dataset, "generator": generator, "seed": seed % 2**32}
    for key in ("sampler", "batch_sampler", "collate_fn", "worker_init_fn"):
        if options.get(key) is not None:
            options[key] = import_named(options[key], what=key, given=given)
        if key.endswith("sampler") and inspect.isroutine(options.get(key)):
            text = f"{key} is the function {options[key].__name__}, and cannot be iterated over"
            raise AlchemyError(text, hint="name a class, such as torch.utils.data.RandomSampler")
    if options.get("pin_memory") is None:
        options["pin_memory"] = _may_pin()
    share_out(dataset, place.rank, place.ranks)  # its length is that of the share
    deal = None
    if isinstance(dataset, IterableDataset):
        options.setdefault("batch_size", None)
    else:
        deal = ShardedBatchSampler(_take_batches(dataset, options, budget), place, seed)
    try:
        return Loader(dataset, seed=seed, place=place, deal=deal, **options)
    except (TypeError, ValueError) as error:
        raise AlchemyError(f"the loader cannot be made of {_shown(options)}: {error}") from error


def _choose_collate(dataset: Any, options: dict[str, Any], budget: Mapping[str, Any]) -> None:
    """Samples of a budget differ in length, and are padded; a data set that makes its batches itself does so."""
    own = link_of(dataset).collate
    if own is None:
        if budget:
            options.setdefault("collate_fn", Pad(dataset=dataset))
        return
    if options.get("collate_fn") not in (None, own):
        hint = "leave out collate_fn, or put a pipe after it, as alchemy.pipeline.lst.Map, to get samples"
        raise AlchemyError(f"{title(dataset)} makes its batches itself", hint=hint)
    if "collate_fn" in options:
        return
    options["collate_fn"] = own
    if not budget and not options.get("batch_size") and options.get("batch_sampler") is None:
        hint = "give max_tokens, max_sentences or batch_size"
        raise AlchemyError(f"nothing says how large a batch of {title(dataset)} is", hint=hint)


def _seeded(seed: int, given: Any) -> tuple[int, torch.Generator]:
    """The seed of the order and the generator of samplers; one that was given has its say, anew in every epoch."""
    if given is None:
        return seed, torch.Generator().manual_seed(seed % 2**63)
    if isinstance(given, torch.Generator):
        return derive(given.initial_seed(), seed), given
    if isinstance(given, bool) or not isinstance(given, int):
        raise AlchemyError(f"generator must be a whole number or a torch.Generator, not {given!r}")
    seed = derive(given, seed)
    return seed, torch.Generator().manual_seed(seed)


def _take_batches(
    dataset: Any, options: dict[str, Any], budget: Mapping[str, Any]
) -> BatchOrder | Iterable[Iterable[Any]]:
    """What makes the batches of an epoch: a sampler of the project, or our own cut; torch gets none of its options."""
    size, shuffle, drop_last, sampler, batches = (
        options.pop(key, None) for key in ("batch_size", "shuffle", "drop_last", "sampler", "batch_sampler")
    )
    if budget:
        return build_budget(dataset, budget, shuffle=bool(shuffle), collate=options.get("collate_fn"))
    if batches is not None:
        return batches
    if size is None:
        # a sample that is a batch travels as a batch of one: only lists can carry the seed of their samples
        options["collate_fn"] = Unpack(options.get("collate_fn") or default_convert)
    if sampler is not None:
        return Single(sampler) if size is None else BatchSampler(sampler, size, bool(drop_last))
    return EqualBatches(len(dataset), size or 1, shuffle=bool(shuffle), drop_last=bool(drop_last))


def _may_pin() -> bool:
    """Pinning speeds up the copy to a GPU and costs memory that cannot be swapped: only where there is enough."""
    return torch.cuda.is_available() and memory_available() >= PIN_FROM_BYTES


def memory_available() -> int:
    """Bytes that the machine can still give away; 0 where it does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _shown(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in options.items() if key != "generator")


def _from_worker(error: AlchemyError) -> AlchemyError:
    """The error itself, without the traceback that torch wraps around it on the way out of a worker."""
    text = str(error)
    if "DataLoader worker process" not in text.partition("\n")[0]:
        return error
    tail = text.rpartition("alchemy.errors.")[2]
    return AlchemyError(tail.partition(": ")[2].strip() or text)


def _nothing(loader: Loader) -> AlchemyError:
    """Names the first pipe that yields nothing."""
    stages = peek(loader.dataset, 1)
    empty = next((stage.name for stage in stages if not stage.items), stages[-1].name)
    batches = members(loader if loader.deal is None else loader.deal.batches)
    if any(options.get("drop_last") for options in (batches, *(stage.params for stage in stages))):
        hint = "fewer samples than batch_size, and drop_last drops them"
    else:
        hint = "`alchemy data peek` shows what flows between the pipes"
    return AlchemyError(f"the data is empty: {empty} yields nothing", hint=hint)


def _unpicklable(loader: Loader, error: Exception) -> AlchemyError:
    """Names the pipe and the member that cannot travel to a worker."""
    hint = "build it in __iter__ instead of the constructor, or set num_workers = 0"
    for pipe in [*walk(loader.dataset), loader.collate_fn, loader.worker_init_fn]:
        for name, reason in unpicklable(pipe):
            return AlchemyError(f"{title(pipe)}.{name} cannot be sent to a worker: {reason}", hint=hint)
    return AlchemyError(f"the data cannot be sent to a worker: {error}", hint=hint)
