"""The arguments of a loader: everything that torch would accept and get wrong, or refuse without naming it."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Mapping
from typing import Any

from loguru import logger
from torch.utils.data import DataLoader, IterableDataset

from alchemy.annotations import find_mismatches
from alchemy.data.pipe_chain import Link, has_index, times_split, title, walk
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.key_rules import BATCH_BUDGETS, LOADER_OPTIONS, check_loader_options

ARGUMENTS = [name for name in inspect.signature(DataLoader.__init__).parameters if name not in ("self", "dataset")]


def check_arguments(dataset: object, options: Mapping[str, Any], ranks: int) -> None:
    """Raises for the first argument that is unknown, has a wrong value, or does not go with the others."""
    for key, value in options.items():
        if key not in (*LOADER_OPTIONS, *ARGUMENTS):  # another version of torch may take more
            raise AlchemyError(
                f"the loader takes no {key!r}", hint=did_you_mean(key, [*LOADER_OPTIONS, *ARGUMENTS, "pipes"])
            )
        if isinstance(value, str | int | float | list | dict | None):  # what a config can say; code may give objects
            for text, hint in find_mismatches(key, value, LOADER_OPTIONS.get(key, "")):
                raise AlchemyError(text, hint=hint)
    workers = options.get("num_workers", 0)
    for _, text, hint in check_loader_options(options):
        raise AlchemyError(text, hint=hint)
    methods = multiprocessing.get_all_start_methods()
    context = options.get("multiprocessing_context")
    if isinstance(context, str) and context not in methods:
        hint = did_you_mean(context, methods) or f"it may be {', '.join(methods)}"
        raise AlchemyError(f"there is no multiprocessing_context {context!r}", hint=hint)
    if isinstance(dataset, IterableDataset):
        _check_iterable(dataset, options, max(workers, 1), ranks)
    elif not has_index(dataset):
        raise AlchemyError(
            f"{title(dataset)} is no data set", hint="give a torch Dataset, an IterableDataset or a list"
        )


def _check_iterable(dataset: object, options: Mapping[str, Any], workers: int, ranks: int) -> None:
    for key in (*BATCH_BUDGETS, "shuffle", "sampler", "batch_sampler"):
        if options.get(key):
            way = (
                "batch it with the pipe alchemy.pipeline.itr.BucketBatch"
                if key in BATCH_BUDGETS
                else "shuffle with itr.Shuffle"
            )
            hint = f"make a list of it with lst.ItrToLst, or {way}"
            raise AlchemyError(f"{key} cannot be used with iterable data ({title(dataset)})", hint=hint)
    pipes = [pipe for pipe in walk(dataset) if isinstance(pipe, Link)]
    if workers * ranks < 2 or not pipes:
        return
    splits = times_split(dataset)
    if splits > 1:
        raise AlchemyError(f"the data is split {splits} times, so that samples are lost", hint="keep one SplitByWorker")
    if splits or workers < 2:
        return
    text = f"{workers} workers would each read all of the data: no pipe splits it"
    hint = "put alchemy.pipeline.itr.SplitByWorker after the opener, or set num_workers = 0"
    if all(type(pipe).__module__.startswith("alchemy.") for pipe in pipes):
        raise AlchemyError(text, hint=hint)
    # a pipe of the project may split in its own way
    logger.warning("{}; {}, or set splits = True on the class of the pipe that does", text, hint)
