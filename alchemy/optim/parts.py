"""The optimisers that a config can name, each with typed settings; any other of torch is wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch

from alchemy.annotations import misfits
from alchemy.config.tables import RATES
from alchemy.constraints import Finite, FiniteFloat, Ge, Gt, Le, Lt, NonNegativeFloat
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.nn.adamw import BertAdamW
from alchemy.optim.base import OURS, AlchemyOptimizer
from alchemy.registry import parameters, resolve

Beta = Annotated[float, Ge(0), Lt(1)]


class Wrapped(AlchemyOptimizer):
    """Any torch optimiser by its dotted path: `type = "torch.optim.RAdam"` and the keys that the class takes."""

    def __init__(
        self,
        *,
        type: str,
        max_grad_norm: Annotated[float, Gt(0)] | None = None,
        clip_value: Annotated[float, Gt(0)] | None = None,
        no_decay: bool | Sequence[str] = False,
        **options: Any,
    ) -> None:
        super().__init__(max_grad_norm=max_grad_norm, clip_value=clip_value, no_decay=no_decay)
        kind = resolve(type)
        names, _ = parameters(kind)
        for key in options:
            if key not in names or key == "params":
                where = self.cfg.where(key) if hasattr(self.cfg, "where") else ""
                known = [name for name in (*names, *OURS) if name != "params"]
                hint = did_you_mean(key, known) or f"it takes {', '.join(known)}"
                raise AlchemyError(f"{type} takes no {key!r}", where=where, section=self.section, hint=hint)
        for key, value in options.items():
            for text, hint in misfits(key, value, RATES.get(key, "")):
                raise AlchemyError(f"{type}: {text}", section=self.section, hint=hint)
        self.make(kind, **{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})


@AlchemyOptimizer.register()
class AdamW(AlchemyOptimizer):
    """Adam with decoupled weight decay. `trf_lr` is not read here but by models that have an encoder."""

    def __init__(
        self,
        *,
        lr: NonNegativeFloat = 1e-3,
        weight_decay: NonNegativeFloat = 1e-2,
        betas: tuple[Beta, Beta] = (0.9, 0.999),
        eps: NonNegativeFloat = 1e-8,
        amsgrad: bool = False,
        fused: bool | None = None,
        max_grad_norm: Annotated[float, Gt(0)] | None = None,
        clip_value: Annotated[float, Gt(0)] | None = None,
        no_decay: bool | Sequence[str] = False,
        trf_lr: NonNegativeFloat | None = None,
    ) -> None:
        super().__init__(max_grad_norm=max_grad_norm, clip_value=clip_value, no_decay=no_decay)
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "amsgrad": amsgrad, "fused": fused}
        self.make(torch.optim.AdamW, weight_decay=weight_decay, **options)


@AlchemyOptimizer.register()
class HFAdamW(AlchemyOptimizer):
    """AdamW as transformers had it until version 4, with `correct_bias`."""

    def __init__(
        self,
        *,
        lr: NonNegativeFloat = 1e-3,
        weight_decay: NonNegativeFloat = 0.0,
        betas: tuple[Beta, Beta] = (0.9, 0.999),
        eps: NonNegativeFloat = 1e-6,
        correct_bias: bool = True,
        max_grad_norm: Annotated[float, Gt(0)] | None = None,
        clip_value: Annotated[float, Gt(0)] | None = None,
        no_decay: bool | Sequence[str] = False,
        trf_lr: NonNegativeFloat | None = None,
    ) -> None:
        super().__init__(max_grad_norm=max_grad_norm, clip_value=clip_value, no_decay=no_decay)
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        self.make(BertAdamW, correct_bias=correct_bias, **options)


@AlchemyOptimizer.register()
class Adam(AlchemyOptimizer):
    """Adam; its weight decay is an L2 penalty."""

    def __init__(
        self,
        *,
        lr: NonNegativeFloat = 1e-3,
        weight_decay: NonNegativeFloat = 0.0,
        betas: tuple[Beta, Beta] = (0.9, 0.999),
        eps: NonNegativeFloat = 1e-8,
        amsgrad: bool = False,
        fused: bool | None = None,
        max_grad_norm: Annotated[float, Gt(0)] | None = None,
        clip_value: Annotated[float, Gt(0)] | None = None,
        no_decay: bool | Sequence[str] = False,
    ) -> None:
        super().__init__(max_grad_norm=max_grad_norm, clip_value=clip_value, no_decay=no_decay)
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "amsgrad": amsgrad, "fused": fused}
        self.make(torch.optim.Adam, weight_decay=weight_decay, **options)


@AlchemyOptimizer.register()
class SGD(AlchemyOptimizer):
    """Stochastic gradient descent with momentum."""

    def __init__(
        self,
        *,
        lr: NonNegativeFloat = 1e-3,
        momentum: NonNegativeFloat = 0.0,
        dampening: FiniteFloat = 0.0,
        weight_decay: NonNegativeFloat = 0.0,
        nesterov: bool = False,
        fused: bool | None = None,
        max_grad_norm: Annotated[float, Gt(0)] | None = None,
        clip_value: Annotated[float, Gt(0)] | None = None,
        no_decay: bool | Sequence[str] = False,
    ) -> None:
        super().__init__(max_grad_norm=max_grad_norm, clip_value=clip_value, no_decay=no_decay)
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "nesterov": nesterov, "fused": fused}
        self.make(torch.optim.SGD, weight_decay=weight_decay, **options)


@AlchemyOptimizer.register()
class Adafactor(AlchemyOptimizer):
    """Adafactor, which keeps factors of the second moments in place of the moments."""

    def __init__(
        self,
        *,
        lr: NonNegativeFloat = 1e-2,
        beta2_decay: Annotated[float, Le(0), Finite()] = -0.8,
        eps: tuple[NonNegativeFloat | None, NonNegativeFloat] = (None, 1e-3),
        d: Annotated[float, Ge(1), Finite()] = 1.0,
        weight_decay: NonNegativeFloat = 0.0,
        max_grad_norm: Annotated[float, Gt(0)] | None = None,
        clip_value: Annotated[float, Gt(0)] | None = None,
        no_decay: bool | Sequence[str] = False,
    ) -> None:
        super().__init__(max_grad_norm=max_grad_norm, clip_value=clip_value, no_decay=no_decay)
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps": tuple(eps), "d": d, "weight_decay": weight_decay}
        self.make(torch.optim.Adafactor, **options)
