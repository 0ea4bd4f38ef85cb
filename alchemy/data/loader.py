"""The loader: batches in an order that is a function of the seed, every argument of torch's reachable from a config."""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import pickle
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from torch.utils.data import DataLoader, IterableDataset

from alchemy.data.blame import blamed
from alchemy.data.budget import OPTIONS, asked, budgeted
from alchemy.data.chain import (
    acting_as,
    counts_its_share,
    seed_chain,
    share_out,
    splits_by_worker,
    times_split,
    title,
    walk,
)
from alchemy.data.collate import Pad
from alchemy.data.device import batch_to_device
from alchemy.data.digest import content_digest
from alchemy.data.named import named
from alchemy.data.order import UNKNOWN, WHOLE, Cut, Deal, Order, Place, Single, Unpack
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import plain
from alchemy.seeds import derive, reseed

__all__ = ["Loader", "batch_to_device", "get_dataloader"]

ARGUMENTS = [name for name in inspect.signature(DataLoader.__init__).parameters if name not in ("self", "dataset")]
# below this, pinned pages (which cannot be swapped out) would starve the rest of the machine
PIN_FROM_BYTES = 4 * 2**30


class Loader(DataLoader[Any]):
    """A torch DataLoader that seeds the pipes it reads, counts what workers share, and names what goes wrong."""

    seed = 0
    passes = 0
    place = WHOLE
    deal: Deal | None = None  # of data with an index
    given = UNKNOWN  # what is known of the batch that was given last
    skipped: Any = None  # the last batch of a stream before the start

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        seed_chain(self.dataset, self.seed, self.passes)
        share_out(self.dataset, self.place.rank, self.place.ranks)
        if self.deal is not None:
            self.deal.new_pass(self.passes)
        self.passes += 1
        empty = not self.place.start
        try:
            for batch in self._placed(self._start()):
                empty = False
                yield batch
        except AlchemyError as error:
            raise blamed(error, self.dataset) or _from_worker(error) from error
        except Exception as error:
            culprit = blamed(error, self.dataset)
            if culprit is None:
                raise
            raise culprit from error
        if empty:
            raise _nothing(self)

    def _placed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches from the start that was asked for; a stream has to be read up to there."""
        if self.deal is not None:
            for batch in batches:
                handed = self.deal.handed.popleft()
                # out of order nobody knows which batch this is
                self.given = handed if self.in_order else UNKNOWN._replace(real=handed.real)
                yield batch
            return
        if self.place.start:
            logger.info("the stream is read again up to batch {}, where training goes on", self.place.start)
        for number in itertools.count():
            if not self.num_workers:
                # what its pipes draw must not depend on what the model has drawn in between
                reseed(derive(self.seed, "stream", number))
            try:
                batch = next(batches)
            except StopIteration:
                return
            if number >= self.place.start:
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

    @property
    def _index_sampler(self) -> Any:
        return super()._index_sampler if self.deal is None else self.deal

    @property
    def _auto_collation(self) -> bool:
        # a sample that is a batch travels as a batch of one: only lists can carry the seed of their samples
        return super()._auto_collation if self.deal is None else True

    def __len__(self) -> int:
        workers = self.num_workers
        if workers < 2 or not isinstance(self.dataset, IterableDataset) or not counts_its_share(self.dataset):
            return super().__len__()
        # each worker makes its own last, smaller batch, so the total depends on how many there are
        total = 0
        for worker in range(workers):
            with acting_as(worker, workers):
                count = len(self.dataset)  # type: ignore[arg-type]
            size = self.batch_size or 1
            total += count // size if self.drop_last else -(-count // size)
        return total

    def _read(self, deal: Deal) -> Iterator[Any]:
        """As torch reads without workers, in a third of the time: a small model would wait for it."""
        fetch = getattr(self.dataset, "__getitems__", None)
        for ids in deal:
            yield self.collate_fn(fetch(ids) if fetch else [self.dataset[index] for index in ids])

    def _start(self) -> Any:
        if (
            self.deal is not None
            and isinstance(self.deal.batches, Order)
            and not self.num_workers
            and not self.pin_memory
        ):
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


def get_dataloader(dataset: Any, seed: int = 0, *, place: Place = WHOLE, **kwargs: Any) -> Loader:
    """The loader of a data set; keywords are those of `torch.utils.data.DataLoader`, as a config can write them.

    `sampler`, `batch_sampler`, `collate_fn` and `worker_init_fn` may be an import path or a table with a `type`.
    The order is a function of `seed` alone, for shuffling samplers and for shuffling pipes, with any number of workers;
    whoever trains for several epochs gives each its own seed. Without `batch_size` a sample is a batch already, unless
    `max_tokens` or `max_sentences` make batches of samples of like length (`alchemy.data.budget`).
    """
    options = {key: plain(value) for key, value in kwargs.items()}
    _check(dataset, options, place.ranks)
    per_device = options.pop("per_device", False)
    wanted = asked(options)
    own = getattr(dataset, "collate", None)
    if own is not None and options.get("collate_fn") not in (None, own):
        hint = "leave out collate_fn, or put a pipe after it, as alchemy.pipeline.lst.Map, to get samples"
        raise AlchemyError(f"{title(dataset)} makes its batches itself", hint=hint)
    if wanted and own is None:
        options.setdefault("collate_fn", Pad(dataset=dataset))  # samples of a budget differ in length
    if "collate_fn" not in options and own is not None:
        options["collate_fn"] = own
        if not wanted and not options.get("batch_size") and options.get("batch_sampler") is None:
            hint = "give max_tokens, max_sentences or batch_size"
            raise AlchemyError(f"nothing says how large a batch of {title(dataset)} is", hint=hint)
    seed, generator = _seeded(seed, options.get("generator"))
    options["generator"] = generator
    given = {"data_source": dataset, "dataset": dataset, "generator": generator, "seed": seed % 2**32}
    for key in ("sampler", "batch_sampler", "collate_fn", "worker_init_fn"):
        if options.get(key) is not None:
            options[key] = named(options[key], what=key, given=given)
    collate, shuffle = options.get("collate_fn"), bool(options.get("shuffle"))
    budget = budgeted(dataset, wanted, shuffle=shuffle, collate=collate) if wanted else None
    if options.get("batch_sampler") is None:
        options.setdefault("batch_size", None)
    if options.get("pin_memory") is None:
        options["pin_memory"] = _may_pin()
    try:
        loader = Loader(dataset, **options)
    except (TypeError, ValueError) as error:
        raise AlchemyError(f"the loader cannot be made of {_shown(options)}: {error}") from error
    loader.seed = seed
    loader.place = place._replace(per_device=per_device or loader.batch_size is None)
    share_out(dataset, place.rank, place.ranks)  # its length is that of the share
    if not isinstance(dataset, IterableDataset):
        loader.deal = Deal(_batches(loader, options) if budget is None else budget, loader.place, seed)
        if budget is None and loader.batch_size is None and options.get("batch_sampler") is None:
            loader.collate_fn = Unpack(loader.collate_fn)
    return loader


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


def _batches(loader: Loader, options: Mapping[str, Any]) -> Any:
    """What the batches of an epoch are made by: a sampler of the project, or our own cut."""
    if options.get("batch_sampler") is not None:
        return loader.batch_sampler
    if options.get("sampler") is not None:
        return loader.batch_sampler if loader.batch_size is not None else Single(loader.sampler)
    shuffle, size = bool(options.get("shuffle")), loader.batch_size or 1
    return Cut(len(loader.dataset), size, shuffle=shuffle, drop_last=loader.drop_last)  # type: ignore[arg-type]


def _check(dataset: Any, options: Mapping[str, Any], ranks: int) -> None:
    """Everything that torch would accept and get wrong, or refuse without naming the argument."""
    for key in options:
        if key not in (*ARGUMENTS, *OPTIONS, "per_device"):
            hint = did_you_mean(key, [*ARGUMENTS, *OPTIONS, "per_device", "pipes"])
            raise AlchemyError(f"the loader takes no {key!r}", hint=hint)
    _check_number(options, "batch_size", 1)
    _check_number(options, "num_workers", 0)
    _check_number(options, "prefetch_factor", 1)
    _check_number(options, "timeout", 0, float)
    for key in ("shuffle", "drop_last", "persistent_workers", "in_order", "pin_memory", "per_device"):
        if not isinstance(options.get(key), bool | None):
            raise AlchemyError(f"{key} must be true or false, not {options[key]!r}")
    workers = options.get("num_workers", 0)
    for key in ("prefetch_factor", "persistent_workers", "timeout"):
        if options.get(key) and not workers:
            raise AlchemyError(f"{key} = {options[key]} needs workers", hint=f"set num_workers, or remove {key}")
    methods = multiprocessing.get_all_start_methods()
    context = options.get("multiprocessing_context")
    if isinstance(context, str) and context not in methods:
        hint = did_you_mean(context, methods) or f"it may be {', '.join(methods)}"
        raise AlchemyError(f"there is no multiprocessing_context {context!r}", hint=hint)
    if isinstance(dataset, IterableDataset):
        _check_iterable(dataset, options, max(workers, 1) * ranks)
    elif not hasattr(dataset, "__getitem__"):
        raise AlchemyError(
            f"{title(dataset)} is no data set", hint="give a torch Dataset, an IterableDataset or a list"
        )
    if options.get("batch_sampler") is not None:
        clash = [key for key in ("batch_size", "shuffle", "sampler", "drop_last") if options.get(key)]
        if clash:
            raise AlchemyError(f"batch_sampler excludes {', '.join(clash)}", hint="remove one or the other")
    elif options.get("drop_last") and options.get("batch_size") is None:
        raise AlchemyError("drop_last needs batch_size", hint="give Batch its drop_last where a pipe makes the batches")
    if options.get("sampler") is not None and options.get("shuffle"):
        raise AlchemyError("sampler excludes shuffle", hint="remove shuffle: the sampler decides about the order")


def _check_iterable(dataset: Any, options: Mapping[str, Any], workers: int) -> None:
    for key in ("max_tokens", "max_sentences"):
        if options.get(key):
            hint = "make a list of it with lst.ItrToLst, or batch it with the pipe alchemy.pipeline.itr.BucketBatch"
            raise AlchemyError(f"{key} cannot be used with iterable data ({title(dataset)})", hint=hint)
    for key in ("shuffle", "sampler", "batch_sampler"):
        if options.get(key):
            raise AlchemyError(
                f"{key} cannot be used with iterable data ({title(dataset)})",
                hint="shuffle with the pipe alchemy.pipeline.itr.Shuffle, or make a list of it with lst.ItrToLst",
            )
    pipes = [pipe for pipe in walk(dataset) if hasattr(pipe, "datapipe")]
    if workers < 2 or not pipes:
        return
    splits = times_split(dataset)
    if splits > 1:
        raise AlchemyError(f"the data is split {splits} times, so that samples are lost", hint="keep one SplitByWorker")
    if splits_by_worker(dataset):
        return
    text = f"{workers} workers would each read all of the data: no pipe splits it"
    hint = "put alchemy.pipeline.itr.SplitByWorker after the opener, or set num_workers = 0"
    if all(type(pipe).__module__.startswith("alchemy.") for pipe in pipes):
        raise AlchemyError(text, hint=hint)
    # a pipe of the project may split in its own way
    logger.warning("{}; {}, or set splits = True on the class of the pipe that does", text, hint)


def _check_number(options: Mapping[str, Any], key: str, least: int, kind: type[int] | type[float] = int) -> None:
    value = options.get(key)
    if value is None and key not in ("num_workers", "timeout"):
        return
    if key in options and (isinstance(value, bool) or not isinstance(value, int | kind) or value < least):
        raise AlchemyError(f"{key} must be a number of at least {least}, not {value!r}")


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
    chain = [pipe for pipe in reversed(list(walk(loader.dataset))) if hasattr(pipe, "datapipe")]
    if loader.drop_last or any(getattr(pipe, "drop_last", False) for pipe in chain):
        hint = "fewer samples than batch_size, and drop_last drops them"
    else:
        hint = "`alchemy data peek` shows what flows between the pipes"
    for pipe in chain:
        with_samples = False
        try:
            with_samples = next(iter(pipe), None) is not None
        except Exception:  # the loader has seen it through once without an error; only the emptiness matters here
            break
        if not with_samples:
            return AlchemyError(f"the data is empty: {title(pipe)} yields nothing", hint=hint)
    return AlchemyError(f"the data is empty: {title(loader.dataset)} yields nothing", hint=hint)


def _unpicklable(loader: Loader, error: Exception) -> AlchemyError:
    """Names the pipe and the member that cannot travel to a worker."""
    hint = "build it in __iter__ instead of the constructor, or set num_workers = 0"
    for pipe in [*walk(loader.dataset), loader.collate_fn, loader.worker_init_fn]:
        for name, value in getattr(pipe, "__dict__", {"": pipe}).items():
            if name in ("datapipe", "datapipes", "dataset", "datasets"):
                continue
            try:
                pickle.dumps(value)
            except Exception as reason:
                return AlchemyError(f"{title(pipe)}.{name} cannot be sent to a worker: {reason}", hint=hint)
    return AlchemyError(f"the data cannot be sent to a worker: {error}", hint=hint)
