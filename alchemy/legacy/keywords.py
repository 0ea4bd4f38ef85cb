"""Keywords of our schedules, optimizers and handlers that older projects leave to the config.

They subclass our parts and call `super().__init__()` bare, or build ours by name alone: what the config says counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from alchemy.context import Run, find_run
from alchemy.legacy.backward import BackwardHandler
from alchemy.legacy.pretrained import complete_pretrained
from alchemy.model import AlchemyModel
from alchemy.optim.base import AlchemyOptimizer, own_table
from alchemy.registry import parameters, plain
from alchemy.sched.base import AlchemyTrainScheduler

_TABLES: dict[type, Callable[[Run], Mapping[str, Any]]] = {
    AlchemyTrainScheduler: lambda run: run.table("sched"),
    AlchemyOptimizer: own_table,
    BackwardHandler: lambda run: run.table("backward"),
}


def fill_keywords(part: Callable[..., Any]) -> Callable[..., Any]:
    """`part`, whose constructor gets from the part's table what it is not given; other parts stay as they are."""
    run, cls = find_run(), part if isinstance(part, type) else object
    if issubclass(cls, AlchemyModel):
        complete_pretrained()  # its module, and with it transformers, is imported by now
    base = next((base for base in _TABLES if issubclass(cls, base)), None)
    if run is None or base is None:
        return part
    table = _TABLES[base](run)
    ours = next(kind for kind in cls.__mro__ if issubclass(kind, base) and kind.__module__.startswith("alchemy."))
    keywords = {name: plain(table[name]) for name in parameters(ours)[0] if name in table}
    if ours is cls or not keywords:
        return functools.partial(part, **keywords)
    return _with_ancestor(cls, ours, keywords)


def _with_ancestor(cls: type, ours: Any, keywords: Mapping[str, Any]) -> type:
    """`cls` with a class between its own and ours, to which `super().__init__()` leads; only while it is built."""

    def fill(self: object, **given: object) -> None:
        ours.__init__(self, **{**keywords, **given})

    def begin(self: Any, *args: object, **kwargs: object) -> None:
        cls.__init__(self, *args, **kwargs)  # type: ignore[misc]
        self.__class__ = cls

    between = type(ours.__name__, (ours,), {"__init__": fill})
    return type(cls.__name__, (cls, between), {"__init__": begin, "__module__": cls.__module__})
