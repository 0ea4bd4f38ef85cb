"""The arguments of a loader: everything that torch would accept and get wrong, or refuse without naming it."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Mapping
from typing import Any

from loguru import logger
from torch.utils.data import DataLoader, IterableDataset

from alchemy.data.budget import OPTIONS
from alchemy.data.chain import Link, has_index, splitter_of, times_split, title, walk
from alchemy.errors import AlchemyError, did_you_mean

ARGUMENTS = [name for name in inspect.signature(DataLoader.__init__).parameters if name not in ("self", "dataset")]


def check_arguments(dataset: object, options: Mapping[str, Any], ranks: int) -> None:
    """Raises for the first argument that is unknown, has a wrong value, or does not go with the others."""
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
    elif not has_index(dataset):
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


def _check_iterable(dataset: object, options: Mapping[str, Any], workers: int) -> None:
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
    pipes = [pipe for pipe in walk(dataset) if isinstance(pipe, Link)]
    if workers < 2 or not pipes:
        return
    splits = times_split(dataset)
    if splits > 1:
        raise AlchemyError(f"the data is split {splits} times, so that samples are lost", hint="keep one SplitByWorker")
    if splitter_of(dataset) is not None:
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
