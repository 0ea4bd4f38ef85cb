"""The symbols of a run: members, globals, and frames of which only the top one is seen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.errors import KeyExists, MissingKey, NoFrame, did_you_mean
from alchemy.registry import Registrable

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from alchemy.model import AlchemyModel
    from alchemy.optim import AlchemyOptimizer
    from alchemy.sched import AlchemyTrainScheduler
    from alchemy.task import AlchemyTask


class SymbolTbl:
    """Members, globals, and a stack of frames of which only the top one is seen."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets everything; what nobody else holds is freed."""
        self.cfg: Any = None
        self.device_info: dict[str, Any] | None = None
        self.device: torch.device | None = None
        self.console: Console | None = None
        self.plugins: Any = None
        self.registry: type[Registrable] = Registrable
        # parts are Any here: they are None between runs, and no caller should have to say so
        self.task: AlchemyTask | Any = None
        self.model: AlchemyModel | Any = None
        self.optim: AlchemyOptimizer | Any = None
        self.train_sched: AlchemyTrainScheduler | Any = None
        self.ctime: Any = None
        self.ret: Any = None
        self._globals: dict[str, Any] = {"record_dir": None}
        self._frames: list[dict[str, Any]] = []

    @property
    def optimizer(self) -> Any:
        return self.optim

    @optimizer.setter
    def optimizer(self, value: Any) -> None:
        self.optim = value

    @property
    def record_dir(self) -> Path | None:
        """The record folder; one value, whether it is read here or among the globals."""
        return self._globals.get("record_dir")

    @record_dir.setter
    def record_dir(self, value: Path | None) -> None:
        self._globals["record_dir"] = value

    # -- globals: setting again is normal (an evaluation sets the same key each time)
    def set_global(self, key: str, value: Any) -> None:
        self._globals[key] = value

    force_set_global = set_global

    def try_set_global(self, key: str, value: Any) -> bool:
        return _try_set(self._globals, key, value)

    def get_global(self, key: str) -> Any:
        return _get(self._globals, key, "global")

    def try_get_global(self, key: str, default: Any = None) -> Any:
        return self._globals.get(key, default)

    def pop_global(self, key: str) -> Any:
        _get(self._globals, key, "global")
        return self._globals.pop(key)

    def try_pop_global(self, key: str, default: Any = None) -> Any:
        return self._globals.pop(key, default)

    def contains_global(self, key: str) -> bool:
        return key in self._globals

    # -- frames
    @property
    def _frame(self) -> dict[str, Any]:
        if not self._frames:
            raise NoFrame("there is no scope to hold local symbols", hint="open one with `with new_scope():`")
        return self._frames[-1]

    def set(self, key: str, value: Any) -> None:
        if not _try_set(self._frame, key, value):
            held = self._frame[key]
            raise KeyExists(f"{key!r} is set already, to {_short(held)}", hint="overwrite it with force_set")

    def force_set(self, key: str, value: Any) -> None:
        self._frame[key] = value

    def try_set(self, key: str, value: Any) -> bool:
        return _try_set(self._frame, key, value)

    def get(self, key: str) -> Any:
        return _get(self._frame, key, "symbol of this scope")

    def try_get(self, key: str, default: Any = None) -> Any:
        return self._frame.get(key, default)

    def pop(self, key: str) -> Any:
        self.get(key)
        return self._frame.pop(key)

    def try_pop(self, key: str, default: Any = None) -> Any:
        return self._frame.pop(key, default)

    def contains(self, key: str) -> bool:
        return key in self._frame

    __getitem__, __setitem__, __contains__ = get, force_set, contains

    @contextlib.contextmanager
    def new_frame(self) -> Iterator[SymbolTbl]:
        frame: dict[str, Any] = {}
        self._frames.append(frame)
        try:
            yield self
        finally:
            while self._frames and self._frames.pop() is not frame:
                pass


def _try_set(symbols: dict[str, Any], key: str, value: Any) -> bool:
    if key in symbols:
        return False
    symbols[key] = value
    return True


def _get(symbols: dict[str, Any], key: str, kind: str) -> Any:
    try:
        return symbols[key]
    except KeyError:
        there = ", ".join(sorted(map(str, symbols))) or "nothing"
        hint = did_you_mean(str(key), map(str, symbols))
        raise MissingKey(f"{kind} {key!r} is not set; there is {there}", hint=hint) from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
