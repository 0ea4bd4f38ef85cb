"""Validate the arguments of a loader, including those that torch would silently accept."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Mapping
from typing import Any

from loguru import logger
from torch.utils.data import DataLoader, IterableDataset

from alchemy.annotations import find_mismatches
from alchemy.data.pipe_chain import Link, count_splits, has_index, title, walk
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.key_rules import BATCH_BUDGETS, LOADER_OPTIONS, check_loader_options

ARGUMENTS = [name for name in inspect.signature(DataLoader.__init__).parameters if name not in ("self", "dataset")]


def check_arguments(dataset: object, options: Mapping[str, Any], ranks: int) -> None:
    """Raise for the first argument that is unknown, invalid or in conflict with the others."""
    for key, value in options.items():
        if key not in (*LOADER_OPTIONS, *ARGUMENTS):  # other versions of torch may accept more
            raise AlchemyError(
                f"unknown loader option {key!r}", hint=did_you_mean(key, [*LOADER_OPTIONS, *ARGUMENTS, "pipes"])
            )
        if isinstance(value, str | int | float | list | dict | None):  # config values; code may pass objects
            for text, hint in find_mismatches(key, value, LOADER_OPTIONS.get(key, "")):
                raise AlchemyError(text, hint=hint)
    workers = options.get("num_workers", 0)
    for _, text, hint in check_loader_options(options):
        raise AlchemyError(text, hint=hint)
    methods = multiprocessing.get_all_start_methods()
    context = options.get("multiprocessing_context")
    if isinstance(context, str) and context not in methods:
        hint = did_you_mean(context, methods) or f"choose {', '.join(methods)}"
        raise AlchemyError(f"unknown multiprocessing_context {context!r}", hint=hint)
    if isinstance(dataset, IterableDataset):
        _check_iterable(dataset, options, max(workers, 1), ranks)
    elif not has_index(dataset):
        raise AlchemyError(
            f"{title(dataset)} is not a dataset", hint="use a torch Dataset, an IterableDataset or a list"
        )


def _check_iterable(dataset: object, options: Mapping[str, Any], workers: int, ranks: int) -> None:
    for key in (*BATCH_BUDGETS, "shuffle", "sampler", "batch_sampler"):
        if options.get(key):
            alternative = (
                "batch it with the pipe alchemy.pipeline.itr.BucketBatch"
                if key in BATCH_BUDGETS
                else "shuffle with itr.Shuffle"
            )
            hint = f"convert it to a list with lst.ItrToLst, or {alternative}"
            raise AlchemyError(f"{key} cannot be used with iterable data ({title(dataset)})", hint=hint)
    pipes = [pipe for pipe in walk(dataset) if isinstance(pipe, Link)]
    if workers * ranks < 2 or not pipes:
        return
    splits = count_splits(dataset)
    if splits > 1:
        raise AlchemyError(f"the data is split {splits} times, which loses samples", hint="keep only one SplitByWorker")
    if splits or workers < 2:
        return
    text = f"each of {workers} workers would read all of the data, because no pipe splits it"
    hint = "put alchemy.pipeline.itr.SplitByWorker after the opener, or set num_workers = 0"
    if all(type(pipe).__module__.startswith("alchemy.") for pipe in pipes):
        raise AlchemyError(text, hint=hint)
    # a custom pipe may split the data in its own way
    logger.warning("{}; {}, or set splits = True on the class of the pipe that splits it", text, hint)
