"""A pipe that caches processed samples on disk and memory-maps them as long as the cache key is unchanged."""

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
from alchemy.files import readable_size
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before
from alchemy.seeds import Generators, derive, reseed, sample_has_drawn, set_current_sample

__all__ = ["Cache"]

SHOWN = 4  # changes listed in a log line


@DataPipeline.register()
class Cache(LstDataPipeline):
    """Caches the samples of the preceding pipes; runs with the same data, options, tokenizers and code share a cache.

    The preceding pipe may be a stream or a list. `also` adds files or strings that the chain does not mention to the
    cache key; `strict` raises an error instead of logging a warning if the samples cannot be cached.
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
            hint = "put SplitByWorker after the cache"
            raise AlchemyError("Cache cannot follow a pipe that splits the data among workers", hint=hint)
        self.overwrite_cache, self.also, self.strict, self.views = overwrite_cache, also or [], strict, views
        self.samples = self._open_samples()
        self.digest = self.samples.digest if isinstance(self.samples, Stored) else None  # None: not cached
        if not len(self.samples):
            hint = "is the file empty, or is a filter too strict?"
            raise AlchemyError(f"Cache: {title(datapipe)} yields no samples", hint=hint)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    def lengths(self) -> Mapping[str, np.ndarray]:
        return link_of(self.samples).lengths()

    def _open_samples(self) -> Sequence[Any]:
        """Return the cached samples; if caching fails, return the preceding list, or read the stream into memory."""
        no_file = bool(sym_tbl().try_get_global("no_file", False))
        hashes = Hashes(cache_folder())
        try:
            key = Key(self.datapipe, hashes, self.also)
            return self._read_entry(key) if no_file else self._read_or_fill(key)
        except (NotCacheable, CacheNotWritable, CacheRemoved) as error:
            if self.strict and not no_file:
                raise AlchemyError(f"cannot cache the samples: {error}", hint="fix it, or remove strict") from error
            logger.log("INFO" if no_file else "WARNING", "cache: not used, computing the samples again: {}", error)
        finally:
            if not no_file:
                hashes.save()
        return self.datapipe if has_index(self.datapipe) else list(self._compute_samples())

    def _read_entry(self, key: Key) -> Stored:
        entry = None if self.overwrite_cache else read_entry(cache_folder() / key.hash)
        if entry is None:
            raise NotCacheable("no_file is set, so nothing is written")
        return entry.open(views=self.views)

    def _read_or_fill(self, key: Key) -> Stored:
        about = {"chain": key.chain, "facts": key.facts}
        fill = functools.partial(self._compute_samples, key)
        entry, made = keep_samples(cache_folder(), key.hash, about, fill, overwrite=self.overwrite_cache)
        text = "stored {:,} samples, {}" if made else "no changes, reusing {:,} samples, {}"
        logger.info(f"cache {{}}: {text}", short(entry.key), entry.samples, readable_size(entry.bytes))
        entry.touch()
        return entry.open(views=self.views)

    def _compute_samples(self, key: Key | None = None) -> Generator[Any, None, None]:
        """Read the chain from the start with random generators seeded by the key; restore their state afterwards."""
        if key is not None:
            _log_reason(key)  # logged only by the process that fills the cache, not by those waiting for it
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
            text = "cache: {} or a pipe before it draws random numbers, which are cached, so they repeat in every epoch"
            logger.warning(f"{text}; move random pipes after the cache", title(self.datapipe))
        if key is not None and (changed := key.changed()):
            raise NotCacheable(f"{changed[0]} changed while it was being read")


def _log_reason(key: Key) -> None:
    """Log why the samples are being computed."""
    there, name = inspect_entry(cache_folder() / key.hash, "changed"), short(key.hash)
    if there is not None and there.damage:
        logger.warning("cache {}: damaged ({}); computing the samples again", name, there.damage)
    elif there is not None:
        logger.info("cache {}: computing the samples again, since overwrite_cache is set", name)
    elif (near := nearest(key.chain, key.facts, entries(cache_folder()))) is None:
        logger.info("cache {}: no entry for this chain yet; computing the samples", name)
    else:
        changes = changed_facts(key.facts, near.facts)
        more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
        text = "cache {}: cannot reuse {}: {}{}; computing the samples"
        logger.info(text, name, short(near.key), "; ".join(changes[:SHOWN]), more)
