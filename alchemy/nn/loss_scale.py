"""Dynamic loss scaling for float16."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from alchemy.errors import RunFailed

SMALLEST = 1e-4  # below this, gradients that do not overflow would vanish


class LossScale:
    """The loss scale: halved on overflow, doubled after `every` updates without overflow, constant within an update."""

    def __init__(self, value: float = 65536.0, every: int = 2000) -> None:
        self.value, self.every = float(value), every
        self.good = 0  # updates since the scale last changed
        self.skipped = 0
        self._overflow: Tensor | None = None

    def unscale(self, params: Sequence[nn.Parameter]) -> None:
        """Divide the gradients by the scale and check in the same pass whether all of them are finite."""
        lists: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
        for param in params:
            if param.grad is not None:
                values = param.grad._values() if param.grad.is_sparse else param.grad
                lists[values.device, values.dtype].append(values)
        flags = {device: torch.zeros((), device=device) for device, _ in lists}
        for (device, _), grads in lists.items():
            inverse = torch.full((), 1.0 / self.value, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(grads, flags[device], inverse)
        found = [flag.to(next(iter(flags))) for flag in flags.values()]
        self._overflow = torch.stack(found).sum() if found else None

    def is_good(self) -> bool:
        """Return whether the gradients are finite, and adjust the scale. This synchronizes with the device."""
        overflow, self._overflow = self._overflow, None
        if overflow is not None and overflow.item():
            self.value, self.good, self.skipped = self.value / 2, 0, self.skipped + 1
            if self.value < SMALLEST:
                hint = "is the loss finite? dtype = 'bf16' has the range of float32"
                raise RunFailed(f"gradients overflow in float16 even with a loss scale of {self.value:g}", hint=hint)
            return False
        self.good += 1
        if self.good >= self.every:
            self.value, self.good = self.value * 2, 0
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.value, "good": self.good, "skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.value, self.good, self.skipped = float(state["scale"]), int(state["good"]), int(state["skipped"])
