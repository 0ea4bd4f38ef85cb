"""Built-in optimizers, and a wrapper for any other torch optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch

from alchemy.annotations import find_mismatches
from alchemy.config.known_tables import RATES
from alchemy.constraints import Finite, FiniteFloat, Ge, Le, Lt, NonNegativeFloat
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.nn.bert_adamw import BertAdamW
from alchemy.optim.base import OURS, AlchemyOptimizer
from alchemy.registry import parameters, resolve, where_of

Beta = Annotated[float, Ge(0), Lt(1)]


class Wrapped(AlchemyOptimizer):
    """Any torch optimizer by its import path, such as `type = "torch.optim.RAdam"`, with the keys of that class."""

    def __init__(
        self,
        *,
        type: str,
        max_grad_norm: Annotated[float, Ge(0)] | None = None,
        clip_value: Annotated[float, Ge(0)] | None = None,
        no_decay: bool | Sequence[str] = False,
        **options: Any,
    ) -> None:
        super().__init__(max_grad_norm=max_grad_norm, clip_value=clip_value, no_decay=no_decay)
        kind = resolve(type)
        known = [name for name in (*parameters(kind)[0], *OURS) if name != "params"]
        for key, value in options.items():
            if key not in known:
                hint = did_you_mean(key, known) or f"it takes {', '.join(known)}"
                where = where_of(self.cfg, key)
                raise AlchemyError(f"{type} has no option {key!r}", where=where, section=self.section, hint=hint)
            for text, hint in find_mismatches(key, value, RATES.get(key, "")):
                raise AlchemyError(f"{type}: {text}", section=self.section, hint=hint)
        self.make(kind, **{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})


@AlchemyOptimizer.register()
@dataclass(kw_only=True, eq=False)
class AdamW(AlchemyOptimizer):
    """Adam with decoupled weight decay. `trf_lr` is used by models with a pretrained encoder, not here."""

    torch_class = torch.optim.AdamW

    lr: NonNegativeFloat = 1e-3
    weight_decay: NonNegativeFloat = 1e-2
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-8
    amsgrad: bool = False
    fused: bool | None = None
    trf_lr: NonNegativeFloat | None = None


@AlchemyOptimizer.register()
@dataclass(kw_only=True, eq=False)
class HFAdamW(AlchemyOptimizer):
    """AdamW as in transformers up to version 4, with `correct_bias`."""

    torch_class = BertAdamW

    lr: NonNegativeFloat = 1e-3
    weight_decay: NonNegativeFloat = 0.0
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-6
    correct_bias: bool = True
    trf_lr: NonNegativeFloat | None = None


@AlchemyOptimizer.register()
@dataclass(kw_only=True, eq=False)
class Adam(AlchemyOptimizer):
    """Adam, with weight decay as an L2 penalty."""

    torch_class = torch.optim.Adam

    lr: NonNegativeFloat = 1e-3
    weight_decay: NonNegativeFloat = 0.0
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-8
    amsgrad: bool = False
    fused: bool | None = None


@AlchemyOptimizer.register()
@dataclass(kw_only=True, eq=False)
class SGD(AlchemyOptimizer):
    """Stochastic gradient descent with momentum."""

    torch_class = torch.optim.SGD

    lr: NonNegativeFloat = 1e-3
    momentum: NonNegativeFloat = 0.0
    dampening: FiniteFloat = 0.0
    weight_decay: NonNegativeFloat = 0.0
    nesterov: bool = False
    fused: bool | None = None


@AlchemyOptimizer.register()
@dataclass(kw_only=True, eq=False)
class Adagrad(AlchemyOptimizer):
    """Adagrad: frequently updated weights get smaller steps, so that rare features are learned as fast as common ones.

    Without weight decay, it supports the sparse gradients of large embedding tables.
    """

    torch_class = torch.optim.Adagrad

    lr: NonNegativeFloat = 1e-2
    lr_decay: NonNegativeFloat = 0.0
    weight_decay: NonNegativeFloat = 0.0
    initial_accumulator_value: NonNegativeFloat = 0.0
    eps: NonNegativeFloat = 1e-10
    fused: bool | None = None


@AlchemyOptimizer.register()
@dataclass(kw_only=True, eq=False)
class Adafactor(AlchemyOptimizer):
    """Adafactor, which stores factored second moments to save memory."""

    torch_class = torch.optim.Adafactor

    lr: NonNegativeFloat = 1e-2
    beta2_decay: Annotated[float, Le(0), Finite()] = -0.8
    eps: tuple[NonNegativeFloat | None, NonNegativeFloat] = (None, 1e-3)
    d: Annotated[float, Ge(1), Finite()] = 1.0
    weight_decay: NonNegativeFloat = 0.0
