"""One batch out of every data set, and what its pipes hold that would not survive a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from alchemy.config.tree import Document
from alchemy.data.blame import unpicklable
from alchemy.data.chain import Link, link_of, title, walk
from alchemy.data.loader import get_dataloader
from alchemy.data.peek import peek
from alchemy.errors import Problem

# what only makes sense with workers: a first batch is taken without them
_OF_WORKERS = ("num_workers", "prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


def first_batch(dataset: Any, options: Mapping[str, Any], seed: int) -> Any:
    """The first batch, made in this process so that an error shows where it happened."""
    plain = {key: value for key, value in options.items() if key not in _OF_WORKERS}
    return next(iter(get_dataloader(dataset, seed=seed, **plain)))


def check_workers(split: str, dataset: Any, options: Mapping[str, Any], doc: Document) -> Iterator[Problem]:
    """Tensors between pipes, and members that cannot be pickled, where workers are asked for."""
    if not options.get("num_workers"):
        return
    spawned = options.get("multiprocessing_context") in ("spawn", "forkserver")
    places = _places(split, dataset, doc)
    for pipe in reversed(list(walk(dataset))):
        place, section = places.get(id(pipe), ("", f"task.datasets.{split}"))
        for name, error in unpicklable(pipe) if isinstance(pipe, Link) else ():
            text = f"{name!r} of {title(pipe)} cannot be sent to a worker: {error}"
            hint = "make it in __iter__, or when it is first used, in place of the constructor"
            yield Problem(text, place, section, hint, error=spawned)
    for stage in peek(dataset, 1):
        if any(_holds_tensor(item) for item in stage.items):
            text = f"{stage.name} gives tensors, which workers cannot hand over safely"
            hint = "give numpy arrays, and make tensors of them in collate_fn"
            yield Problem(text, section=f"task.datasets.{split}", hint=hint, error=False)
            return


def _holds_tensor(item: Any, depth: int = 0) -> bool:
    """Whether a tensor is anywhere inside a sample."""
    if isinstance(item, Tensor):
        return True
    if depth > 4 or not isinstance(item, list | tuple | Mapping):
        return False
    return any(_holds_tensor(value, depth + 1) for value in (item.values() if isinstance(item, Mapping) else item))


def _places(split: str, dataset: Any, doc: Document) -> dict[int, tuple[str, str]]:
    """The line and section of each pipe of a chain that the config lists."""
    tables = doc.get("task", {}).get("datasets", {}).get(split, {}).get("pipes", [])
    chain = [dataset]
    while isinstance(above := link_of(chain[-1]).datapipe, Link):
        chain.append(above)
    if len(chain) != len(tables):
        return {}
    rows = enumerate(zip(reversed(chain), tables, strict=True))
    return {id(pipe): (table.where(), f"task.datasets.{split}.pipes.{i}") for i, (pipe, table) in rows}
