"""Fill in constructor keywords of schedulers, optimizers and handlers from the config, for legacy projects.

Legacy projects subclass these parts and call `super().__init__()` without arguments, or build them by name only.
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
    """Return `part` with missing constructor keywords taken from its config table; leave other parts unchanged."""
    run, cls = find_run(), part if isinstance(part, type) else object
    if issubclass(cls, AlchemyModel):
        complete_pretrained()  # transformers has been imported by now if the model uses it
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
    """Insert a class before `ours` in the MRO of `cls` that adds the keywords, only during construction."""

    def fill(self: object, **given: object) -> None:
        ours.__init__(self, **{**keywords, **given})

    def begin(self: Any, *args: object, **kwargs: object) -> None:
        cls.__init__(self, *args, **kwargs)  # type: ignore[misc]
        self.__class__ = cls

    between = type(ours.__name__, (ours,), {"__init__": fill})
    return type(cls.__name__, (cls, between), {"__init__": begin, "__module__": cls.__module__})
