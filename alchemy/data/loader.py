"""The data loader: a torch DataLoader whose order depends only on the seed."""

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
    assign_ranks,
    has_worker_length,
    is_unsplit,
    link_of,
    make_fetcher,
    members,
    seed_chain,
    title,
    walk,
)
from alchemy.data.pipe_errors import locate_error, unpicklable
from alchemy.data.token_budget import build_budget, pop_budget_options
from alchemy.errors import AlchemyError
from alchemy.registry import plain
from alchemy.seeds import derive, reseed

__all__ = ["Loader", "batch_to_device", "get_dataloader"]

# with less memory, pinned pages, which cannot be swapped out, would starve the rest of the machine
PIN_FROM_BYTES = 4 * 2**30


class Loader(DataLoader[Any]):
    """A torch DataLoader that seeds its pipes, supports `len` for data split among workers, and locates errors.

    `index_sampler` is the batch sampler for data with an index; it is None for a stream.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        seed: int,
        place: EpochPosition,
        index_sampler: ShardedBatchSampler | None,
        **options: Any,
    ) -> None:
        super().__init__(dataset, **options if index_sampler is None else {**options, "batch_sampler": index_sampler})
        self.seed, self.place, self.index_sampler = seed, place, index_sampler
        self.passes = 0
        self.last_samples = UNKNOWN  # the samples of the last batch
        self.skipped: Any = None  # a batch of a stream that was read but not yielded
        # if no pipe splits a stream, every process reads all of it and takes every n-th batch
        self.turn, self.turns = (place.rank, place.ranks) if is_unsplit(dataset) else (0, 1)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        seed_chain(self.dataset, self.seed, self.passes)
        assign_ranks(self.dataset, self.place.rank, self.place.ranks)
        if self.index_sampler is not None:
            self.index_sampler.start_pass(self.passes)
        self.passes += 1
        empty = not self.place.start
        self.skipped = None
        try:
            for batch in self._iter_stream() if self.index_sampler is None else self._iter_indexed(self.index_sampler):
                empty = False
                yield batch
        except AlchemyError as error:
            raise locate_error(error, self.dataset) or _unwrap_worker_error(error) from error
        except Exception as error:
            culprit = locate_error(error, self.dataset)
            if culprit is None:
                raise
            raise culprit from error
        if empty and self.skipped is None:
            raise _empty_error(self)

    def _iter_indexed(self, index_sampler: ShardedBatchSampler) -> Iterator[Any]:
        """Yield the batches of data with an index, and update `last_samples`."""
        for batch in self._start():
            issued = index_sampler.issued.popleft()
            # batches that arrive out of order cannot be matched with their indices
            self.last_samples = issued if self.in_order else UNKNOWN._replace(real=issued.real)
            yield batch

    def _iter_stream(self) -> Iterator[Any]:
        """Yield the batches of a stream from the start position; read and discard the batches before it."""
        if self.place.start:
            logger.info("reading the stream up to batch {}, where training resumes", self.place.start)
        batches = self._start()
        for number in itertools.count():
            if not self.num_workers:
                # the pipes' random numbers must not depend on how many the model draws in between
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
        """The sample indices of the last batch of all processes; None for a stream or non-integer keys."""
        return self.last_samples.everyone

    @property
    def own(self) -> list[int] | None:
        """The sample indices of the last batch of this process."""
        return self.last_samples.own

    @property
    def real(self) -> bool:
        """Whether the last batch belongs to this process; otherwise it only keeps the processes in sync."""
        return self.last_samples.real

    def digest(self, batch: Any) -> bytes | None:
        """Return a hash of a batch whose indices are unknown, or None if the indices are known."""
        return content_digest(batch) if self.own is None else None

    def coverage(self) -> tuple[int | None, list[int]]:
        """Return the number of samples (None if unknown), and the samples that the epoch leaves out."""
        return (None, []) if self.index_sampler is None or not self.in_order else self.index_sampler.coverage()

    def __len__(self) -> int:
        workers = self.num_workers
        if workers < 2 or not isinstance(self.dataset, IterableDataset) or not has_worker_length(self.dataset):
            return count_batches(super().__len__() - self.turn, self.turns, drop_last=False)
        # each worker ends with its own incomplete batch, so the total depends on the number of workers
        total = 0
        for worker in range(workers):
            with acting_as(worker, workers):
                count = len(self.dataset)  # type: ignore[arg-type]
            total += count_batches(count, self.batch_size or 1, self.drop_last)
        return total

    def _read(self, index_sampler: ShardedBatchSampler) -> Iterator[Any]:
        """Read batches like torch without workers, but with half the overhead, which matters for small models."""
        fetch = make_fetcher(self.dataset)
        for ids in index_sampler:
            yield self.collate_fn(fetch(ids))

    def _start(self) -> Iterator[Any]:
        in_process = not self.num_workers and not self.pin_memory
        if in_process and self.index_sampler is not None and isinstance(self.index_sampler.batches, BatchOrder):
            return self._read(self.index_sampler)
        try:
            with warnings.catch_warnings():
                # torch warns before it raises; the error below is clearer
                warnings.filterwarnings("ignore", message="Got pickle error")
                return super().__iter__()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            if self.num_workers and "pickle" in str(error):
                raise _pickling_error(self, error) from error
            raise


def get_dataloader(dataset: Any, seed: int = 0, *, place: EpochPosition = WHOLE, **kwargs: Any) -> Loader:
    """Return the loader for a dataset; accepts the keyword arguments of `torch.utils.data.DataLoader`.

    `sampler`, `batch_sampler`, `collate_fn` and `worker_init_fn` may be an import path or a table with a `type`.
    The order of samplers and shuffling pipes depends only on `seed`, not on the number of workers; pass a
    different seed for each epoch. Without `batch_size`, each sample is already a batch, unless `max_tokens` or
    `max_sentences` is set; these options batch samples of similar length (see `alchemy.data.token_budget`).
    """
    options = {key: plain(value) for key, value in kwargs.items()}
    check_arguments(dataset, options, place.ranks)
    place = place._replace(per_device=options.pop("per_device", False) or options.get("batch_size") is None)
    budget = pop_budget_options(options)
    _choose_collate(dataset, options, budget)
    seed, generator = _prepare_seed(seed, options.get("generator"))
    options["generator"] = generator
    given = {"data_source": dataset, "dataset": dataset, "generator": generator, "seed": seed % 2**32}
    for key in ("sampler", "batch_sampler", "collate_fn", "worker_init_fn"):
        if options.get(key) is not None:
            options[key] = import_named(options[key], what=key, given=given)
        if key.endswith("sampler") and inspect.isroutine(options.get(key)):
            text = f"{key} is the function {options[key].__name__}, which is not iterable"
            raise AlchemyError(text, hint="use a class, such as torch.utils.data.RandomSampler")
    if options.get("pin_memory") is None:
        options["pin_memory"] = _should_pin()
    assign_ranks(dataset, place.rank, place.ranks)  # must precede len(), which returns the length of the share
    index_sampler = None
    if isinstance(dataset, IterableDataset):
        options.setdefault("batch_size", None)
    else:
        index_sampler = ShardedBatchSampler(_pop_batches(dataset, options, budget), place, seed)
    try:
        return Loader(dataset, seed=seed, place=place, index_sampler=index_sampler, **options)
    except (TypeError, ValueError) as error:
        raise AlchemyError(f"cannot create the loader with {_format_options(options)}: {error}") from error


def _choose_collate(dataset: Any, options: dict[str, Any], budget: Mapping[str, Any]) -> None:
    """Set the default `collate_fn`: the dataset's own, or `Pad` for batches with a token budget."""
    own = link_of(dataset).collate
    if own is None:
        if budget:
            options.setdefault("collate_fn", Pad(dataset=dataset))
        return
    if options.get("collate_fn") not in (None, own):
        hint = "remove collate_fn, or add a pipe after the dataset, such as alchemy.pipeline.lst.Map"
        raise AlchemyError(f"{title(dataset)} has its own collate function", hint=hint)
    if "collate_fn" in options:
        return
    options["collate_fn"] = own
    if not budget and not options.get("batch_size") and options.get("batch_sampler") is None:
        hint = "set max_tokens, max_sentences or batch_size"
        raise AlchemyError(f"the batch size for {title(dataset)} is not set", hint=hint)


def _prepare_seed(seed: int, given: Any) -> tuple[int, torch.Generator]:
    """Return the seed for the order and the generator for samplers; a configured generator is combined with `seed`."""
    if given is None:
        return seed, torch.Generator().manual_seed(seed % 2**63)
    if isinstance(given, torch.Generator):
        return derive(given.initial_seed(), seed), given
    if isinstance(given, bool) or not isinstance(given, int):
        raise AlchemyError(f"generator must be an integer or a torch.Generator, got {given!r}")
    seed = derive(given, seed)
    return seed, torch.Generator().manual_seed(seed)


def _pop_batches(
    dataset: Any, options: dict[str, Any], budget: Mapping[str, Any]
) -> BatchOrder | Iterable[Iterable[Any]]:
    """Return the batches of an epoch, from a custom or built-in sampler, and remove the options that define them."""
    size, shuffle, drop_last, sampler, batches = (
        options.pop(key, None) for key in ("batch_size", "shuffle", "drop_last", "sampler", "batch_sampler")
    )
    if budget:
        return build_budget(dataset, budget, shuffle=bool(shuffle), collate=options.get("collate_fn"))
    if batches is not None:
        return batches
    if size is None:
        # a sample that is already a batch is wrapped in a list, because only lists can carry the seed of their samples
        options["collate_fn"] = Unpack(options.get("collate_fn") or default_convert)
    if sampler is not None:
        return Single(sampler) if size is None else BatchSampler(sampler, size, bool(drop_last))
    return EqualBatches(len(dataset), size or 1, shuffle=bool(shuffle), drop_last=bool(drop_last))


def _should_pin() -> bool:
    """Return whether there is a GPU and enough memory: pinned memory speeds up copies but cannot be swapped out."""
    return torch.cuda.is_available() and memory_available() >= PIN_FROM_BYTES


def memory_available() -> int:
    """Return the available memory in bytes; 0 if it is unknown."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _format_options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in options.items() if key != "generator")


def _unwrap_worker_error(error: AlchemyError) -> AlchemyError:
    """Return the error without the worker traceback that torch adds to its message."""
    text = str(error)
    if "DataLoader worker process" not in text.partition("\n")[0]:
        return error
    tail = text.rpartition("alchemy.errors.")[2]
    return AlchemyError(tail.partition(": ")[2].strip() or text)


def _empty_error(loader: Loader) -> AlchemyError:
    """Return an error that names the first pipe with no output."""
    stages = peek(loader.dataset, 1)
    empty = next((stage.name for stage in stages if not stage.items), stages[-1].name)
    batches = members(loader if loader.index_sampler is None else loader.index_sampler.batches)
    if any(options.get("drop_last") for options in (batches, *(stage.params for stage in stages))):
        hint = "there are fewer samples than batch_size, and drop_last drops them"
    else:
        hint = "run `alchemy data peek` to see the output of each pipe"
    return AlchemyError(f"the data is empty: {empty} yields nothing", hint=hint)


def _pickling_error(loader: Loader, error: Exception) -> AlchemyError:
    """Return an error that names the pipe and the attribute that cannot be pickled."""
    hint = "create it in __iter__ instead of the constructor, or set num_workers = 0"
    for pipe in [*walk(loader.dataset), loader.collate_fn, loader.worker_init_fn]:
        for name, reason in unpicklable(pipe):
            return AlchemyError(f"{title(pipe)}.{name} cannot be sent to a worker: {reason}", hint=hint)
    return AlchemyError(f"the data cannot be sent to a worker: {error}", hint=hint)
