"""AdamW as used to train BERT, with optional bias correction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT


class BertAdamW(Optimizer):
    """AdamW with optional bias correction.

    Weight decay is applied after the step, and `eps` is added before the correction.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "correct_bias": correct_bias}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if params:
                self._step_group(group, params)
        return loss

    def _step_group(self, group: dict[str, Any], params: list[Tensor]) -> None:
        grads = [param.grad for param in params if param.grad is not None]
        states = [self._state_of(param) for param in params]
        firsts = [state["exp_avg"] for state in states]
        seconds = [state["exp_avg_sq"] for state in states]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(firsts, grads, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, grads, grads, 1 - beta2)
        denominators = torch._foreach_sqrt(seconds)
        torch._foreach_add_(denominators, group["eps"])
        torch._foreach_addcdiv_(params, firsts, denominators, [_rate(group, state) for state in states])
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])

    def _state_of(self, param: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[param]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(param), exp_avg_sq=torch.zeros_like(param))
        state["step"] += 1
        return state


def _rate(group: dict[str, Any], state: dict[str, Any]) -> float:
    if not group["correct_bias"]:
        return -float(group["lr"])
    beta1, beta2 = group["betas"]
    step = state["step"]
    return float(-group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step))
