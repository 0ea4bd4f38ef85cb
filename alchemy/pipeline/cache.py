"""A pipe that keeps the samples which reach it, and reads them in place while their key is the same."""

from __future__ import annotations

import functools
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from loguru import logger

from alchemy.context import sym_tbl
from alchemy.data.batch_digest import content_digest
from alchemy.data.cache.cache_key import Key, changed_facts
from alchemy.data.cache.entries import (
    cache_folder,
    entries,
    format_size,
    inspect_entry,
    keep_samples,
    nearest,
    read_entry,
    short,
)
from alchemy.data.cache.file_hashes import Hashes
from alchemy.data.cache.sample_store import CacheNotWritable, CacheRemoved, NotCacheable, Stored
from alchemy.data.pipe_chain import find_splitter, has_index, link_of, read_all, title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before
from alchemy.seeds import Generators, derive, reseed, sample_has_drawn, set_current_sample

__all__ = ["Cache"]

SHOWN = 4  # changed_facts that the log names


@DataPipeline.register()
class Cache(LstDataPipeline):
    """Keeps the samples that reach it, once for all runs whose data, options, tokenizers and code are the same.

    Stands behind the pipes whose result is to be kept, a stream or a list. `also` names files, or words, that matter
    and that the chain does not name; `strict` makes an error of what keeps samples from being kept.
    """

    keeps = True
    where = where_before

    def __init__(
        self,
        datapipe: object,
        *,
        overwrite_cache: bool = False,
        also: list[str] | None = None,
        strict: bool = False,
        views: bool = False,
    ) -> None:
        super().__init__(datapipe)
        if find_splitter(datapipe) is not None:
            hint = "put SplitByWorker behind the cache"
            raise AlchemyError("Cache stands behind a pipe that splits the data among workers", hint=hint)
        self.overwrite_cache, self.also, self.strict, self.views = overwrite_cache, also or [], strict, views
        self.samples = self._found()
        self.digest = self.samples.digest if isinstance(self.samples, Stored) else None  # None: they are not kept
        if not len(self.samples):
            hint = "is the file empty, or a filter too strict?"
            raise AlchemyError(f"Cache: {title(datapipe)} yields nothing", hint=hint)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    def lengths(self) -> Mapping[str, np.ndarray]:
        return link_of(self.samples).lengths()

    def _found(self) -> Sequence[Any]:
        """The samples, kept where that is possible; else a list as it is, and those of a stream in memory."""
        no_file = bool(sym_tbl().try_get_global("no_file", False))
        hashes = Hashes(cache_folder())
        try:
            key = Key(self.datapipe, hashes, self.also)
            return self._read(key) if no_file else self._kept(key)
        except (NotCacheable, CacheNotWritable, CacheRemoved) as error:
            if self.strict and not no_file:
                raise AlchemyError(f"the samples are not kept: {error}", hint="mend it, or leave out strict") from error
            logger.log("INFO" if no_file else "WARNING", "cache: the samples are not kept, but made anew: {}", error)
        finally:
            if not no_file:
                hashes.save()
        return self.datapipe if has_index(self.datapipe) else list(self._made())

    def _read(self, key: Key) -> Stored:
        entry = None if self.overwrite_cache else read_entry(cache_folder() / key.hash)
        if entry is None:
            raise NotCacheable("nothing is to be written")
        return entry.open(views=self.views)

    def _kept(self, key: Key) -> Stored:
        about = {"chain": key.chain, "facts": key.facts}
        fill = functools.partial(self._made, key)
        entry, made = keep_samples(cache_folder(), key.hash, about, fill, overwrite=self.overwrite_cache)
        text = "{:,} samples are kept, {}" if made else "nothing has changed, {:,} samples are reused, {}"
        logger.info(f"cache {{}}: {text}", short(entry.key), entry.samples, format_size(entry.bytes))
        entry.touch()
        return entry.open(views=self.views)

    def _made(self, key: Key | None = None) -> Generator[Any, None, None]:
        """Reads the chain from its start, as a function of the key alone: whatever it draws, nobody else sees it."""
        if key is not None:
            _say_why(key)  # those who wait for another process to do it never come here
        seed, drawn = derive(0, "cache", key.hash if key is not None else ""), False
        generators = Generators()
        outside = generators.state_dict()
        reseed(seed)
        fresh = content_digest(generators.state_dict())
        try:
            set_current_sample(seed, 0)
            for number, sample in enumerate(read_all(self.datapipe)):
                drawn |= sample_has_drawn()
                yield sample
                set_current_sample(seed, number + 1)
            drawn |= content_digest(generators.state_dict()) != fresh
        finally:
            generators.load_state_dict(outside)
        if drawn:
            text = "cache: {} draws random numbers, or a pipe before it: they are kept as well, the same in every epoch"
            logger.warning(f"{text}; put what draws behind the cache", title(self.datapipe))
        if key is not None and (changed := key.changed()):
            raise NotCacheable(f"{changed[0]} changed while it was read")


def _say_why(key: Key) -> None:
    """Logs why the samples are made."""
    there, name = inspect_entry(cache_folder() / key.hash, "changed"), short(key.hash)
    if there is not None and there.damage:
        logger.warning("cache {}: it is damaged: {}; the samples are made again", name, there.damage)
    elif there is not None:
        logger.info("cache {}: it is made again, as overwrite_cache says", name)
    elif (near := nearest(key.chain, key.facts, entries(cache_folder()))) is None:
        logger.info("cache {}: nothing of this chain is kept yet; the samples are made", name)
    else:
        changes = changed_facts(key.facts, near.facts)
        more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
        text = "cache {}: {} cannot be reused: {}{}; the samples are made"
        logger.info(text, name, short(near.key), "; ".join(changes[:SHOWN]), more)
