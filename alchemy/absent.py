"""What stands in for the parts that a run does without, so that the loop never has to ask."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from alchemy.checkpoint.manifest import Where
    from alchemy.context import Run

from alchemy.errors import AlchemyError

_NOTHING: contextlib.nullcontext[None] = contextlib.nullcontext()


class Stateless:
    """Has nothing to save, and nothing to restore."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class Alone:
    """The group of a run that has one process."""

    rank = local_rank = 0
    size = 1
    is_main = True

    def sum(self, numbers: Sequence[float]) -> list[float]:
        return list(numbers)

    def any(self, flag: bool) -> bool:
        return flag

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def broadcast(self, value: Any) -> Any:
        return value

    def barrier(self) -> None:
        pass

    def wrap(self, module: Any, sharing: Any = None) -> Any:
        return module

    def no_sync(self, module: Any) -> contextlib.AbstractContextManager[Any]:
        return _NOTHING

    def average_grads(self, params: Iterable[Any]) -> None:
        pass

    def unshared(self, module: Any, optim: Any) -> Iterable[Any]:
        return ()


class CheckpointsLike(Protocol):
    """What a run needs of its checkpoints."""

    parts: dict[str, Any]

    @property
    def cost(self) -> Mapping[str, float]: ...
    def after_update(self, where: Where) -> None: ...
    def after_epoch(self, where: Where) -> None: ...
    def scored(
        self, split: str, scores: Mapping[str, object], where: Where, mid_window: bool = False
    ) -> dict[str, str]: ...
    def save(self, where: Where, why: str) -> Path | None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class NoCheckpoints(Stateless):
    """A run that keeps no state and knows no best score: one that does not train."""

    cost: Mapping[str, float] = {"calling": 0.0, "writing": 0.0}

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def after_update(self, where: Where) -> None:
        pass

    def after_epoch(self, where: Where) -> None:
        pass

    def scored(
        self, split: str, scores: Mapping[str, object], where: Where, mid_window: bool = False
    ) -> dict[str, str]:
        return {}

    def save(self, where: Where, why: str) -> Path | None:
        return None


class NoLedger(Stateless):
    """A run that does not write down which samples it has seen."""

    dropped, error = 0, ""
    cost: Mapping[str, float] = {"calling": 0.0, "writing": 0.0}

    def saw(self, ids: Sequence[int] | None, digest: Callable[[], bytes | None] | bytes | None = None) -> None:
        pass

    def close_update(self, update: int, epoch: int) -> None:
        pass

    def close_epoch(self, epoch: int, samples: int | None, left_out: Sequence[int] = ()) -> None:
        pass

    def resume(self, gen: int, from_update: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def flush(self, group: Any) -> None:
        pass


class FullPrecision(Stateless):
    """Numbers as the parameters have them: nothing is cast, scaled or compiled."""

    scales = False

    def attempt(self, step: Callable[..., Any], batch: Any, **kwargs: Any) -> Any:
        return step(batch, **kwargs)

    def gradients(self) -> contextlib.AbstractContextManager[Any]:
        return _NOTHING

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return _NOTHING

    def scale(self, loss: Any) -> Any:
        return loss

    def unscale(self, optim: Any) -> None:
        pass

    def accepts(self, optim: Any) -> bool:
        return True

    def after_step(self) -> None:
        pass

    def prepare(self, model: Any) -> None:
        pass


class NoUpdater(Stateless):
    """A run that does not train."""

    period, updates, skipped = 1, 0, 0
    is_open = is_full = has_moved = late = False
    position: Any = None
    why_whole = "nothing is trained here"

    def accumulate(self, loss: Any, optim: str = "") -> None:
        raise AlchemyError("this run does not train", hint="use alchemy.runner.Trainer, or a subclass of it")


class NoAverage(Stateless):
    """The weights are those of the last update."""

    def after_update(self, update: int) -> None:
        pass

    def applied(self) -> contextlib.AbstractContextManager[Any]:
        return _NOTHING


class StopRules(Protocol):
    """What a run needs of its stop rules: each method returns the reason to stop, or nothing."""

    def after_update(self, run: Run) -> str: ...
    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str: ...
    def after_log(self, run: Run, values: Mapping[str, float]) -> str: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class NoRules(Stateless):
    """Nothing but the schedule says when training ends."""

    def after_update(self, run: Run) -> str:
        return ""

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        return ""

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        return ""
