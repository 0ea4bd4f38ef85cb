"""The configuration of an experiment: read, checked, explained and written back, all without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alchemy.config.load import prepare_cfg
    from alchemy.config.tree import Document
    from alchemy.config.write import dump, dumps

__all__ = ["Document", "dump", "dumps", "prepare_cfg"]

_HOMES = {"Document": "tree", "dump": "write", "dumps": "write", "prepare_cfg": "load"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
