"""A pipe that keeps the samples which reach it, and reads them in place while all that decides them is the same."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
from loguru import logger
from torch.utils.data import IterableDataset

from alchemy.context import sym_tbl
from alchemy.data.cache.entries import (
    Damaged,
    Entry,
    cache_folder,
    entries,
    keep,
    launch,
    look,
    nearest,
    read_entry,
    short,
    told_age,
    told_size,
)
from alchemy.data.cache.hashes import Hashes
from alchemy.data.cache.identity import Identity, differences, identity_of
from alchemy.data.cache.readset import ReadSet, changed_read
from alchemy.data.cache.store import Gone, Stored, Unwritable
from alchemy.data.cache.values import Unkept
from alchemy.data.chain import Order, splits_by_worker, title
from alchemy.data.digest import content_digest
from alchemy.errors import AlchemyError
from alchemy.files import hash_text
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before
from alchemy.registry import plain
from alchemy.seeds import Generators, at_sample, derive, reseed, sample_has_drawn

__all__ = ["Cache"]

TRIES = 5
SHOWN = 4  # reasons that are told of
warned: set[str] = set()  # troubles with the disk that a warning has named


@DataPipeline.register()
class Cache(LstDataPipeline):
    """Keeps the samples that reach it, once for all runs whose data, options, code and versions are the same.

    Stands behind the pipes whose result is to be kept, a stream or a list. `also` names files, or words, that matter
    and cannot be seen from the chain; `strict` makes an error of what keeps samples from being kept.
    """

    keeps = True
    where = where_before

    def __init__(
        self,
        datapipe: Any,
        *,
        overwrite_cache: bool = False,
        also: list[str] | None = None,
        strict: bool = False,
        views: bool = False,
    ) -> None:
        super().__init__(datapipe)
        if splits_by_worker(datapipe):
            hint = "put SplitByWorker behind the cache"
            raise AlchemyError("Cache stands behind a pipe that splits the data among workers", hint=hint)
        self.overwrite_cache, self.also, self.strict, self.views = overwrite_cache, also or [], strict, views
        hashes = Hashes(cache_folder())
        self.found = identity_of(self.datapipe, hashes, self.also)
        self.samples: Sequence[Any] = self._kept(hashes)
        if not len(self.samples):
            hint = "is the file empty, or a filter too strict?"
            raise AlchemyError(f"Cache: {title(datapipe)} yields nothing", hint=hint)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.samples, Stored):
            # opened now, and not while a sample is loaded, whose random numbers making it again would change;
            # what is wrong is told when a sample is asked for, since a worker passes on only that
            with contextlib.suppress(Exception):
                _ = self[0]

    def __getitem__(self, index: int) -> Any:
        try:
            return self.samples[index]
        except Gone:  # before this worker could open it
            self.samples = self._made_again(self.samples)
            return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def digest(self) -> str | None:
        """What a resume knows the samples by; None where they are not kept."""
        return self.samples.digest if isinstance(self.samples, Stored) else None

    def lengths(self) -> dict[str, np.ndarray]:
        """How long the fields that are lists or arrays of one axis are, as far as that is known without reading."""
        told = getattr(self.samples, "lengths", dict)
        lengths: dict[str, np.ndarray] = told() if callable(told) else told
        return lengths

    def _kept(self, hashes: Hashes) -> Sequence[Any]:
        found = self.found
        if found.asks_run:
            self._add_config()
        if found.unknown:
            return self._without(f"it cannot be told when they change: {_few(found.unknown)}")
        if sym_tbl().try_get_global("no_file", False):
            found.read_only = True
            entry = None if self.overwrite_cache else read_entry(cache_folder() / found.key)
            stale = entry is None or changed_read(entry.reads, hashes)
            return self._without("nothing is to be written") if entry is None or stale else self._read(entry)
        try:
            kept = self._opened(hashes)
            with contextlib.suppress(OSError):
                hashes.save()
        except Unkept as error:
            return self._without(f"{error}")
        except Unwritable as error:
            return self._without(f"the cache cannot be written: {error}", once=True)
        return kept

    def _add_config(self) -> None:
        try:
            self.found.facts["the config of the run"] = hash_text(json.dumps(plain(_config()), default=repr))
        except (ValueError, RecursionError) as error:
            self.found.unknown.append(f"the config of the run: {error}")

    def _opened(self, hashes: Hashes) -> Stored:
        for _ in range(TRIES):
            with contextlib.suppress(Gone):  # removed by somebody else in this moment
                return self._entry(self.found, hashes).open(views=self.views)
        raise Unwritable("it is removed again and again")

    def _made_again(self, before: Any) -> Stored:
        """What was removed after this run had found it, as it was."""
        key, why = self.found.key, "it was made anew, and is not the same"
        root, about = before.folder.parent, {"chain": self.found.chain, "facts": self.found.facts}
        try:
            if self.found.read_only:
                raise Unwritable("nothing is to be written")
            read = Reading(self.datapipe, self.found)
            entry, _ = keep(root, key, about, read, before_naming=functools.partial(read.settled, Hashes(root)))
            kept = entry.open(views=self.views)
            if kept.digest == before.digest:
                return kept
        except (Unkept, Unwritable, Gone) as error:
            why = f"it cannot be made again: {error}"
        hint = "start again; what a run with spawned workers reads should stay while it runs"
        raise AlchemyError(f"cache {short(key)} was removed while it was read, and {why}", hint=hint)

    def _entry(self, found: Identity, hashes: Hashes) -> Entry:
        root = cache_folder()
        entry = read_entry(root / found.key)
        accepts = functools.partial(self._accepts, hashes=hashes)
        if entry is None or not accepts(entry):
            about = {"chain": found.chain, "facts": found.facts}
            read = Reading(self.datapipe, found, functools.partial(_say_why, found, entry, hashes))
            settled = functools.partial(read.settled, hashes)
            entry, made = keep(root, found.key, about, read, accept=accepts, before_naming=settled)
            if made:
                size = told_size(entry.bytes)
                logger.info("cache {}: {:,} samples are kept, {}", short(entry.key), entry.samples, size)
                read.say_drawn()
                return entry
        self._say_reused(entry)
        entry.touch()
        return entry

    def _accepts(self, entry: Entry, hashes: Hashes) -> bool:
        """With `overwrite_cache` only what this start of the program has made, by whichever of its ranks."""
        return not (self.overwrite_cache and entry.launch != launch()) and not changed_read(entry.reads, hashes)

    def _read(self, entry: Entry) -> Sequence[Any]:
        try:
            kept = entry.open(views=self.views)
        except Gone:
            return self._without("nothing is to be written")
        self._say_reused(entry)
        return kept

    def _say_reused(self, entry: Entry) -> None:
        age, size = told_age(time.time() - entry.created), told_size(entry.bytes)
        text = "cache {}: nothing has changed, {:,} samples are reused, {}, made {} ago"
        logger.info(text, short(entry.key), entry.samples, size, age)

    def _without(self, why: str, *, once: bool = False) -> Sequence[Any]:
        """The samples without a cache: those of a list when they are asked for, those of a stream in memory."""
        no_file = sym_tbl().try_get_global("no_file", False)
        if self.strict and not no_file:
            raise AlchemyError(f"the samples are not kept: {why}", hint="mend it, or leave out strict")
        if no_file:
            logger.info("cache: the samples are not kept: {}", why)
        elif not once or why not in warned:
            logger.warning("cache: the samples are not kept, but made anew: {}", why)
            warned.update([why] if once else [])
        return list(Reading(self.datapipe, self.found)()) if _is_stream(self.datapipe) else self.datapipe


class Reading:
    """Reads a chain from its start, as a function of the key alone: whatever it draws, nobody else sees it."""

    def __init__(self, datapipe: Any, found: Identity, begin: Callable[[], None] = lambda: None) -> None:
        self.datapipe, self.seed, self.begin = datapipe, derive(0, "cache", found.key), begin
        self.orders, self.drawn = found.orders, False
        self.found, self.reads = found, ReadSet()

    def __call__(self) -> Generator[Any, None, None]:
        self.begin()  # those who wait for another process to do it never come here
        generators = Generators()
        outside, others = generators.state_dict(), [(order, order.seed, order.passes) for order, _, _ in self.orders]
        _set(self.orders)
        reseed(self.seed)
        fresh = content_digest(generators.state_dict())
        try:
            with self.reads:
                for number, sample in enumerate(self._samples()):
                    self.drawn |= sample_has_drawn()
                    yield sample
                    at_sample(self.seed, number + 1)
            self.drawn |= content_digest(generators.state_dict()) != fresh
        finally:
            generators.load_state_dict(outside)
            _set(others)

    def _samples(self) -> Iterator[Any]:
        at_sample(self.seed, 0)
        if _is_stream(self.datapipe):
            return iter(self.datapipe)
        return (self.datapipe[index] for index in range(len(self.datapipe)))

    def settled(self, hashes: Hashes) -> dict[str, Any]:
        """What was read beside all that was known before; samples of files that changed meanwhile belong to no key."""
        changed = self.found.changed(hashes)
        if changed:
            raise Unkept(f"{_few(changed)} changed while it was read")
        return {"reads": self.reads.settled(self.found.files, hashes)}

    def say_drawn(self) -> None:
        if self.drawn:
            logger.warning(
                "cache: {} draws random numbers, or a pipe before it: they are kept as well, the same in every epoch; "
                "put what draws behind the cache",
                title(self.datapipe),
            )


def _say_why(found: Identity, entry: Entry | None, hashes: Hashes) -> None:
    if entry is not None:
        changed = changed_read(entry.reads, hashes)
        why = f": {changed} has changed, which is read on the way" if changed else ", as overwrite_cache says"
        logger.info("cache {}: it is made again{}", short(found.key), why)
        return
    there = look(cache_folder() / found.key, "changed")
    if isinstance(there, Damaged):
        logger.warning("cache {}: it is damaged: {}; the samples are made again", short(found.key), there.why)
        return
    near = nearest(found.chain, found.facts, entries(cache_folder()))
    why = "nothing of this chain is kept yet"
    if near is not None:
        why = f"{short(near.key)} cannot be reused: {_few(differences(found.facts, near.facts))}"
    logger.info("cache {}: {}; the samples are made", short(found.key), why)


def _few(reasons: list[str]) -> str:
    more = len(reasons) - SHOWN
    return "; ".join(reasons[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _config() -> Any:
    return getattr(sym_tbl(), "cfg", None)


def _is_stream(datapipe: Any) -> bool:
    return isinstance(datapipe, IterableDataset) or not hasattr(datapipe, "__getitem__")


def _set(orders: list[tuple[Order, int | str, int]]) -> None:
    for order, seed, passes in orders:
        order.seed, order.passes = seed, passes
