"""Several optimizers in one task, behind the interface of a single optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.nn.param_groups import Group
from alchemy.optim.base import AlchemyOptimizer


class _NotOne(AlchemyError, AttributeError):
    """Raised when a single torch optimizer is requested but there are several."""


class Optimizers(AlchemyOptimizer, Mapping[str, AlchemyOptimizer]):
    """Maps names to optimizers, as in `run.optim["generator"]`; methods without a name apply to all of them.

    A task that alternates between them passes a name with each loss: `updater.accumulate(loss, optim="generator")`.
    """

    def __init__(self, parts: Mapping[str, AlchemyOptimizer]) -> None:
        super().__init__()
        self._parts = dict(parts)
        self.check_owners()
        self.report_missing()

    # -- by name
    def __getitem__(self, name: str) -> AlchemyOptimizer:
        try:
            return self._parts[name]
        except KeyError:
            hint = did_you_mean(str(name), self._parts) or f"available: {', '.join(self._parts)}"
            raise AlchemyError(f"there is no optimizer {name!r}", section="optim", hint=hint) from None

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def optimizer(self) -> Optimizer:
        first = next(iter(self._parts))
        hint = f"select one, for example run.optim[{first!r}].optimizer"
        raise _NotOne(f"there are several optimizers: {', '.join(self._parts)}", section="optim", hint=hint)

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer) -> None:
        self.optimizer  # noqa: B018 (raises the error)

    # -- all of them
    @property
    def param_groups(self) -> list[Group]:
        return [group for part in self._parts.values() for group in part.param_groups]

    @property
    def masks(self) -> bool:
        return all(part.masks for part in self._parts.values())

    @contextlib.contextmanager
    def masked(self, skip: Tensor) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for part in self._parts.values():
                stack.enter_context(part.masked(skip))
            yield

    def step(self) -> None:
        """Update all parameters, for a loss without an optimizer name."""
        for part in self._parts.values():
            part.step()

    def reset(self, **kwargs: object) -> None:
        """Reset all optimizers; `run.optim["generator"].reset(..)` resets one."""
        for part in self._parts.values():
            part.reset(**kwargs)
        self.check_owners()

    def report_missing(self) -> None:
        self.check_owners()  # again, because one of them may have been reset
        super().report_missing()

    def check_owners(self) -> None:
        """Raise an error for a parameter that belongs to two optimizers."""
        owner: dict[int, str] = {}
        for name, part in self._parts.items():
            twice = {id(p): owner[id(p)] for p in part.params if owner.setdefault(id(p), name) != name}
            if twice:
                names = [known for known, p in self.run.model.named_parameters() if id(p) in twice]
                shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
                raise AlchemyError(
                    f"in [optim.{next(iter(twice.values()))}] and in [optim.{name}]: {shown}",
                    section="optim",
                    hint="assign each parameter to one optimizer; tied weights have two names but are one parameter",
                )

    # -- state
    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() != self._parts.keys():
            text = f"the state belongs to the optimizers {', '.join(map(str, state))}, not {', '.join(self._parts)}"
            raise AlchemyError(text, section="optim", hint="use the same names as before")
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
