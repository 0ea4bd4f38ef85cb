"""Lazy imports for the names in a package, so that importing the package is fast."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; `homes` maps each name to its submodule.

    A name that is its own home stands for the submodule itself.

    >>> fetch, names = lazy("alchemy", {"did_you_mean": "errors"})
    >>> fetch("did_you_mean")("epoch", ["epochs"]), names()
    ("did you mean 'epochs'?", ['did_you_mean'])
    """

    def fetch(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(f"{package}.{homes[name]}")
        return home if homes[name] == name else getattr(home, name)

    return fetch, lambda: sorted(homes)
