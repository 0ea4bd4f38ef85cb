"""The steps towards the next update: how many, what they count, and for whose parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from alchemy.context import Run
from alchemy.errors import AlchemyError


class Window:
    """What an optimiser has gathered since its last update: the one of the run, or with a name one of several."""

    def __init__(self, run: Run, name: str = "") -> None:
        self.run, self.name = run, name
        self.updates = 0
        self.fresh = True  # no loss has come yet: gradients that are there were computed before training
        self.clear()

    def clear(self) -> None:
        self.steps = 0
        self.count: float | Tensor = 0
        self.loss: float | Tensor = 0.0  # zero times the losses: NaN if one of them is not finite

    @property
    def optim(self) -> Any:
        optim: Any = self.run.optim
        return optim[self.name] if self.name else optim

    @property
    def section(self) -> str:
        return f"optim.{self.name}"

    @property
    def position(self) -> tuple[int, int, float]:
        return self.updates, self.steps, float(self.count)

    def add(self, loss: Tensor, count: float | Tensor) -> None:
        if isinstance(count, Tensor) and count.device.type == "cpu":
            count = count.item()
        self.count = self.count + count
        self.loss = self.loss + 0.0 * (loss.item() if loss.device.type == "cpu" else loss.detach())

    # -- one of several
    def differentiate(self, loss: Tensor, start: Tensor) -> None:
        """Adds the gradients of `start` times a loss to the parameters of this optimiser alone.

        Those of the others stay as they are. What the loss depends on beyond them is not walked through, so its graph
        can serve another loss.
        """
        inputs = [param for param in self.optim.params if param.requires_grad]
        if not inputs:  # all of it is frozen, perhaps for a while
            return
        loss.backward(start, inputs=inputs)
        if all(param.grad is None for param in inputs):
            raise AlchemyError(
                f"the loss of {self.name!r} does not depend on its parameters",
                section=self.section,
                hint="is something detached, or computed under no_grad, that it should go through?",
            )

    def log(self, loss: Tensor, count: float | Tensor) -> None:
        self.run.metrics.log(f"loss_{self.name}", loss.detach(), count)

    def log_update(self) -> None:
        last, optim = self.run.metrics.last, self.optim
        last(f"train/updates_{self.name}", self.updates)
        last(f"train/lr_{self.name}", optim.get_lr()[0])
        if optim.grad_norm is not None:
            last(f"train/grad_norm_{self.name}", optim.grad_norm)


class Windows:
    """One window for all parameters, or one for each optimiser that losses name; not both in one training."""

    def __init__(self, run: Run) -> None:
        self.run, self.whole = run, Window(run)
        self.named: dict[str, Window] = {}
        self.settled = (
            True  # no loss came since an update was counted: windows that are open then are part of the state
        )

    def __iter__(self) -> Iterator[Window]:
        yield self.whole
        yield from self.named.values()

    def of(self, name: str | None) -> Window:
        """The window that a loss goes into."""
        if name is None:
            if not self.named:
                return self.whole
            names = ", ".join(map(repr, self.named))
            hint = f"give every loss its optimiser, as backward(loss_sum, count=n, optim={next(iter(self.named))!r})"
            raise AlchemyError(f"a loss is for all optimisers, others are for {names}", section="optim", hint=hint)
        self.settled = False
        return self.named.get(name) or self._open(name)

    def _open(self, name: str) -> Window:
        if not isinstance(self.run.optim, Mapping):
            hint = f"give each a table, as [optim.{name}]"
            raise AlchemyError(
                f"a loss is for the optimiser {name!r}, and there is only one", section="optim", hint=hint
            )
        self.run.optim[name]  # says it where there is none of that name
        if self.whole.steps or self.whole.updates:
            hint = "name one in every call of backward, or in none"
            raise AlchemyError(f"a loss is for {name!r}, others were for all optimisers", section="optim", hint=hint)
        self.named[name] = Window(self.run, name)
        return self.named[name]

    @property
    def is_open(self) -> bool:
        return self.whole.steps > 0 or (not self.settled and any(window.steps for window in self.named.values()))

    def clear(self) -> None:
        for window in self:
            window.clear()

    # -- state
    def state_dict(self) -> dict[str, Any]:
        """Gradients that wait are part of the state."""
        state: dict[str, Any] = {}
        if self.named:
            positions = {name: window.position for name, window in self.named.items()}
            state["named"] = {name: list(position) for name, position in positions.items()}
        if any(window.steps for window in self):
            grads = {name: p.grad for name, p in self.run.model.named_parameters() if p.grad is not None}
            state["window"] = {"steps": self.whole.steps, "count": float(self.whole.count), "grads": grads}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, position in state.get("named", {}).items():
            window = self.named[name] = Window(self.run, name)
            window.updates, window.steps, window.count = position
        saved = state.get("window")
        if saved:
            self.whole.steps, self.whole.count = saved["steps"], saved["count"]
            for window in self:
                window.fresh = not window.steps
            for name, param in self.run.model.named_parameters():
                param.grad = saved["grads"][name].to(param.device).clone() if name in saved["grads"] else None
