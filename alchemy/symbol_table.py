"""The symbol table of a run: members, globals, and a stack of local frames."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from alchemy.errors import KeyExists, MissingKey, NoFrame, did_you_mean
from alchemy.registry import Registrable

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from alchemy.model import AlchemyModel
    from alchemy.optim import AlchemyOptimizer
    from alchemy.sched import AlchemyTrainScheduler
    from alchemy.task import AlchemyTask


@dataclass(eq=False, repr=False)
class Members:
    """The parts of a run that projects access by name."""

    cfg: Any = None
    device_info: dict[str, Any] | None = None
    device: torch.device | None = None
    console: Console | None = None
    plugins: Any = None
    registry: type[Registrable] = Registrable
    # Any, because parts are None between runs and callers should not have to check
    task: AlchemyTask | Any = None
    model: AlchemyModel | Any = None
    optim: AlchemyOptimizer | Any = None
    train_sched: AlchemyTrainScheduler | Any = None
    ctime: Any = None
    ret: Any = None


class _Member:
    """Descriptor that reads and writes an attribute of the members."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __get__(self, table: SymbolTbl | None, owner: type) -> Any:
        return self if table is None else getattr(table.members, self.name)

    def __set__(self, table: SymbolTbl, value: object) -> None:
        setattr(table.members, self.name, value)


class TrainedAt(NamedTuple):
    """The training position of the loaded weights, with the attribute names of a scheduler."""

    num_updates: int
    cur_epoch: int
    cur_step: int


class _TrainSched(_Member):
    """The scheduler; outside training, the training position of the loaded weights, or None."""

    def __get__(self, table: SymbolTbl | None, owner: type) -> Any:
        sched = super().__get__(table, owner)
        return table.trained_at if table is not None and sched is None else sched


class SymbolTbl:
    """Members, globals and a stack of frames; only the top frame is visible."""

    cfg, device_info, device, console = _Member(), _Member(), _Member(), _Member()
    plugins, registry, task, model = _Member(), _Member(), _Member(), _Member()
    optim, train_sched, ctime, ret = _Member(), _TrainSched(), _Member(), _Member()
    optimizer = _Member("optim")

    def __init__(self, members: Members | None = None, symbols: dict[str, Any] | None = None) -> None:
        self.members = members or Members()
        self.globals: dict[str, Any] = {"record_dir": None} if symbols is None else symbols
        self.trained_at: TrainedAt | None = None
        self._frames: list[dict[str, Any]] = []

    def reset(self) -> None:
        """Clear all members, globals and frames."""
        for member in fields(Members):
            setattr(self.members, member.name, member.default)
        self.record_dir = None
        self.clear()

    def clear(self) -> None:
        """Clear globals and frames, but keep the record folder."""
        self.globals = {"record_dir": self.record_dir}
        self.trained_at = None
        self._frames = []

    @property
    def record_dir(self) -> Path | None:
        """The record folder, also available as a global."""
        return self.globals.get("record_dir")

    @record_dir.setter
    def record_dir(self, value: Path | None) -> None:
        self.globals["record_dir"] = value

    # -- globals: overwriting is allowed (every evaluation sets the same key)
    def set_global(self, key: str, value: object) -> None:
        self.globals[key] = value

    force_set_global = set_global

    def try_set_global(self, key: str, value: object) -> bool:
        return _try_set(self.globals, key, value)

    def get_global(self, key: str) -> Any:
        return _get(self.globals, key, "global")

    def try_get_global(self, key: str, default: object = None) -> Any:
        return self.globals.get(key, default)

    def pop_global(self, key: str) -> Any:
        _get(self.globals, key, "global")
        return self.globals.pop(key)

    def try_pop_global(self, key: str, default: object = None) -> Any:
        return self.globals.pop(key, default)

    def contains_global(self, key: str) -> bool:
        return key in self.globals

    # -- frames
    @property
    def _frame(self) -> dict[str, Any]:
        if not self._frames:
            raise NoFrame("no scope is open for local symbols", hint="open one with `with new_scope():`")
        return self._frames[-1]

    def set(self, key: str, value: object) -> None:
        if not _try_set(self._frame, key, value):
            value = self._frame[key]
            raise KeyExists(f"{key!r} is already set to {_short(value)}", hint="overwrite it with force_set")

    def force_set(self, key: str, value: object) -> None:
        self._frame[key] = value

    def try_set(self, key: str, value: object) -> bool:
        return _try_set(self._frame, key, value)

    def get(self, key: str) -> Any:
        return _get(self._frame, key, "symbol of this scope")

    def try_get(self, key: str, default: object = None) -> Any:
        return self._frame.get(key, default)

    def pop(self, key: str) -> Any:
        self.get(key)
        return self._frame.pop(key)

    def try_pop(self, key: str, default: object = None) -> Any:
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


def _try_set(symbols: dict[str, Any], key: str, value: object) -> bool:
    if key in symbols:
        return False
    symbols[key] = value
    return True


def _get(symbols: dict[str, Any], key: str, kind: str) -> Any:
    try:
        return symbols[key]
    except KeyError:
        available = ", ".join(sorted(map(str, symbols))) or "none"
        hint = did_you_mean(str(key), map(str, symbols))
        raise MissingKey(f"{kind} {key!r} is not set; available: {available}", hint=hint) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
