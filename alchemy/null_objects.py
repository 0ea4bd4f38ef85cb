"""Protocols for the optional collaborators of a run, each with its null object."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alchemy.checkpoint.manifest import Best, Where
    from alchemy.context import Run
    from alchemy.launch.process_group import Sharing
    from alchemy.loss_observer import Loss, Observer
    from alchemy.model import AlchemyModel
    from alchemy.optim import AlchemyOptimizer
    from alchemy.update import StepResult

Block = contextlib.AbstractContextManager[Any]
_NOTHING: contextlib.nullcontext[None] = contextlib.nullcontext()


@runtime_checkable
class Stateful(Protocol):
    """An object whose state is saved in checkpoints."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class _Stateless:
    """Base class for objects without state."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class ProcessGroup(Protocol):
    """The processes that train one model; all of them must call every method."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_main(self) -> bool: ...
    def sum(self, numbers: Sequence[float]) -> list[float]: ...
    def any(self, flag: bool) -> bool: ...
    def gather(self, value: object) -> list[Any]: ...
    def broadcast(self, value: object) -> Any: ...
    def barrier(self) -> None: ...
    def wrap(self, module: nn.Module, sharing: Sharing | None = None) -> nn.Module: ...
    def no_sync(self, module: nn.Module) -> Block: ...
    def average_grads(self, params: Iterable[nn.Parameter]) -> None: ...
    def unshared(self, module: nn.Module, optim: AlchemyOptimizer) -> Iterable[nn.Parameter]: ...


class SingleProcess:
    """Null object: a run with a single process."""

    rank = local_rank = 0
    size = 1
    is_main = True

    def sum(self, numbers: Sequence[float]) -> list[float]:
        return list(numbers)

    def any(self, flag: bool) -> bool:
        return flag

    def gather(self, value: object) -> list[Any]:
        return [value]

    def broadcast(self, value: object) -> Any:
        return value

    def barrier(self) -> None:
        pass

    def wrap(self, module: nn.Module, sharing: Sharing | None = None) -> nn.Module:
        return module

    def no_sync(self, module: nn.Module) -> Block:
        return _NOTHING

    def average_grads(self, params: Iterable[nn.Parameter]) -> None:
        pass

    def unshared(self, module: nn.Module, optim: AlchemyOptimizer) -> Iterable[nn.Parameter]:
        return ()


class CheckpointsLike(Stateful, Protocol):
    """Saves the checkpoints of a run and tracks the best score."""

    parts: dict[str, Any]
    unsaved: str

    @property
    def cost(self) -> Mapping[str, float]: ...
    @property
    def best(self) -> Best | None: ...
    def after_update(self, where: Where) -> None: ...
    def after_epoch(self, where: Where) -> None: ...
    def after_evaluation(
        self, split: str, scores: Mapping[str, object], where: Where, mid_window: bool = False
    ) -> list[str]: ...
    def save(self, where: Where, why: str) -> Path | None: ...


class NoCheckpoints(_Stateless):
    """Null object: saves nothing and tracks no best score, for runs that do not train."""

    cost: Mapping[str, float] = {"calling": 0.0, "writing": 0.0}
    unsaved = ""
    best: Best | None = None

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def after_update(self, where: Where) -> None:
        pass

    def after_epoch(self, where: Where) -> None:
        pass

    def after_evaluation(
        self, split: str, scores: Mapping[str, object], where: Where, mid_window: bool = False
    ) -> list[str]:
        return []

    def save(self, where: Where, why: str) -> Path | None:
        return None


Digest = Callable[[], bytes | None] | bytes | None


class SampleLedger(Stateful, Protocol):
    """Records which samples each update has seen."""

    def add_step(self, ids: Sequence[int] | None, digest: Digest = None) -> None: ...
    def close_update(self, update: int, epoch: int) -> None: ...
    def close_epoch(self, epoch: int, samples: int | None, left_out: Sequence[int] = ()) -> None: ...
    def resume(self, gen: int, from_update: int) -> None: ...
    def flush(self) -> None: ...
    def sync(self) -> bool: ...
    def close(self) -> None: ...
    @property
    def cost(self) -> Mapping[str, float]: ...
    @property
    def dropped(self) -> int: ...
    @property
    def error(self) -> str: ...


class NoLedger(_Stateless):
    """Null object: does not record samples."""

    dropped, error = 0, ""
    cost: Mapping[str, float] = {"calling": 0.0, "writing": 0.0}

    def add_step(self, ids: Sequence[int] | None, digest: Digest = None) -> None:
        pass

    def close_update(self, update: int, epoch: int) -> None:
        pass

    def close_epoch(self, epoch: int, samples: int | None, left_out: Sequence[int] = ()) -> None:
        pass

    def resume(self, gen: int, from_update: int) -> None:
        pass

    def sync(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class MixedPrecision(Stateful, Protocol):
    """Numeric precision of a run: `[precision]`."""

    @property
    def scales(self) -> bool: ...
    def attempt(self, step: Callable[..., Any], batch: object, **kwargs: Any) -> Any: ...
    def gradients(self) -> Block: ...
    def autocast(self) -> Block: ...
    def scale(self, loss: Tensor) -> Tensor: ...
    def unscale(self, optim: AlchemyOptimizer) -> None: ...
    def accepts(self, optim: AlchemyOptimizer) -> bool: ...
    def after_step(self) -> None: ...
    def prepare(self, model: AlchemyModel) -> None: ...


class FullPrecision(_Stateless):
    """Null object: uses the dtype of the parameters, without casting, scaling or compilation."""

    scales = False

    def attempt(self, step: Callable[..., Any], batch: object, **kwargs: Any) -> Any:
        return step(batch, **kwargs)

    def gradients(self) -> Block:
        return _NOTHING

    def autocast(self) -> Block:
        return _NOTHING

    def scale(self, loss: Tensor) -> Tensor:
        return loss

    def unscale(self, optim: AlchemyOptimizer) -> None:
        pass

    def accepts(self, optim: AlchemyOptimizer) -> bool:
        return True

    def after_step(self) -> None:
        pass

    def prepare(self, model: AlchemyModel) -> None:
        pass


class Updater(Stateful, Protocol):
    """Turns the losses of micro-batches into updates (`[backward]`). Called by the training loop."""

    period: int  # micro-batches per update in this process
    nonfinite: str
    observer: Observer

    @property
    def updates(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def has_stepped(self) -> bool: ...
    @property
    def late(self) -> bool: ...
    @property
    def position(self) -> object: ...
    @property
    def no_split_reason(self) -> str: ...
    def micro_batch(self, batch: object, *, last: bool = False, real: bool = True) -> Block: ...
    def accumulate(self, loss: Loss, optim: str = "") -> None: ...
    def end_micro_batch(self) -> None: ...
    def step(self) -> StepResult: ...
    def flush(self) -> None: ...
    def drop_window(self) -> None: ...
    def merge_losses(self) -> Block: ...


class NoUpdater(_Stateless):
    """Null object for runs that do not train."""

    period, updates, attempts, skipped, nonfinite = 1, 0, 0, 0, "stop"
    is_open = is_full = has_stepped = late = False
    position: object = None
    no_split_reason = "this run does not train"
    observer: Observer

    def micro_batch(self, batch: object, *, last: bool = False, real: bool = True) -> Block:
        return _NOTHING

    def accumulate(self, loss: Loss, optim: str = "") -> None:
        raise AlchemyError("this run does not train", hint="use alchemy.runner.Trainer, or a subclass of it")

    def end_micro_batch(self) -> None:
        pass

    def step(self) -> StepResult:
        raise AlchemyError("this run does not train", hint="use alchemy.runner.Trainer, or a subclass of it")

    def flush(self) -> None:
        pass

    def drop_window(self) -> None:
        pass

    def merge_losses(self) -> Block:
        return _NOTHING


class WeightAverage(Stateful, Protocol):
    """Averages the weights during training: `[ema]`."""

    def after_update(self, update: int) -> None: ...
    def applied(self) -> Block: ...


class NoAverage(_Stateless):
    """Null object: uses the weights of the last update."""

    def after_update(self, update: int) -> None:
        pass

    def applied(self) -> Block:
        return _NOTHING


class StopRules(Stateful, Protocol):
    """The stop rules of a run: each method returns a reason to stop, or an empty string."""

    def after_update(self, run: Run) -> str: ...
    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str: ...
    def after_log(self, run: Run, values: Mapping[str, float]) -> str: ...


class NoRules(_Stateless):
    """Null object: only the schedule ends training."""

    def after_update(self, run: Run) -> str:
        return ""

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        return ""

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        return ""
