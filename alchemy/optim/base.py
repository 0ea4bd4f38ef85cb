"""The optimizer as a part: which parameters, with which settings, clipped how."""

# annotations are evaluated here: optimizers in other modules inherit these fields with their types

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import torch
from loguru import logger
from torch import Tensor, nn
from torch.optim import Optimizer

from alchemy.constraints import Ge
from alchemy.context import Run, current_run
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.nn.grad_norm import clip_factor, norm_of, scalar_like, scale_grads
from alchemy.nn.param_groups import (
    Group,
    as_groups,
    find_hidden,
    find_undecayed,
    matches,
    plain_values,
    split_decay,
    unwrap_value,
)
from alchemy.nn.sparse_gradients import make_dense, takes_sparse
from alchemy.registry import Registrable, parameters, where_of

# keys of [optim] that are ours, whatever class of torch does the work
OURS = ("max_grad_norm", "clip_value", "no_decay")

# the one of several optimizers that is being built; it must know its table before its constructor is through
being_built: ContextVar[str] = ContextVar("alchemy_optim", default="")


def own_table(run: Run, name: str | None = None) -> Any:
    """`[optim]`, or `[optim.NAME]` of one of several: of the one that is being built, unless it has a `name`."""
    table, name = run.table("optim"), being_built.get() if name is None else name
    return table[name] if name else table


@dataclass(kw_only=True, eq=False)
class AlchemyOptimizer(Registrable):
    """Wraps a torch optimizer; a norm or value of 0 does not clip.

    A subclass names its `torch_class`, with the arguments of that as fields of a dataclass; or it calls
    `super().__init__()` and sets `self.optimizer`.
    """

    torch_class: ClassVar[type[Optimizer] | None] = None

    max_grad_norm: Annotated[float, Ge(0)] | None = None
    clip_value: Annotated[float, Ge(0)] | None = None
    no_decay: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        self.run: Run = current_run()
        self.name = being_built.get()  # of one of several: NAME in [optim.NAME]
        self._optimizer: Optimizer
        self.grad_norm: Tensor | None = None  # of the last update, before clipping; stays on its device
        self._measured = False  # whether `grad_norm` is that of the gradients as they are now
        self._reported: set[str] = set()
        if self.torch_class is not None:
            self.make(self.torch_class, **self._options(self.torch_class))

    def _options(self, kind: type[Optimizer]) -> dict[str, Any]:
        """Those of its fields that the class of torch takes."""
        taken = [field.name for field in fields(self) if field.name in parameters(kind)[0]]
        return {name: tuple(value) if isinstance(value := vars(self)[name], list) else value for name in taken}

    # -- what it holds
    @property
    def cfg(self) -> Any:
        """The table `[optim]`, or `[optim.NAME]`."""
        return own_table(self.run, self.name)

    @property
    def section(self) -> str:
        return f"optim.{self.name}" if self.name else "optim"

    @property
    def optimizer(self) -> Optimizer:
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        plain_values(optimizer.param_groups)
        optimizer.defaults.update({key: unwrap_value(value) for key, value in optimizer.defaults.items()})

    @property
    def param_groups(self) -> list[Group]:
        return self._optimizer.param_groups

    @property
    def params(self) -> list[nn.Parameter]:
        """Every parameter; read from the groups each time, since these may change during training."""
        return [param for group in self.param_groups for param in group["params"]]

    def get_lr(self) -> list[float]:
        return [float(group["lr"]) for group in self.param_groups]

    # -- one update
    def zero_grad(self) -> None:
        self._measured = False
        for group in self.param_groups:
            for param in group["params"]:
                param.grad = None

    def multiply_grads(self, c: float | Tensor) -> None:
        grads = self._grads()
        if grads:
            torch._foreach_mul_(grads, scalar_like(c, grads[0]))

    def step(self) -> None:
        """Clips to `max_grad_norm` and updates."""
        if self.max_grad_norm:
            self.clip(self.max_grad_norm)
        limit = self.clip_value
        # entries are clipped only now: an infinite one would no longer be seen in the norm
        grads = [grad._values() if grad.is_sparse else grad for grad in self._grads()] if limit else []
        if limit and grads:
            torch._foreach_clamp_min_(grads, -limit)
            torch._foreach_clamp_max_(grads, limit)
        self._optimizer.step()

    def measure(self) -> Tensor | None:
        """The norm of all gradients, also kept as `grad_norm`; None when there are none."""
        self.grad_norm, self._measured = norm_of(self.params), True
        return self.grad_norm

    def clip(self, max_norm: float) -> None:
        """Scales the gradients down to `max_norm`; as `torch.nn.utils.clip_grad_norm_` in half the time."""
        norm = self.grad_norm if self._measured else self.measure()
        factor = None if norm is None else clip_factor(max_norm, norm)
        if norm is not None and factor is not None:
            scale_grads(self._grads(), factor, norm)
        self._measured = False

    @property
    def masks(self) -> bool:
        """Whether a step can be left out on the device, by a flag that nobody has to read."""
        return bool(self._optimizer.defaults.get("fused"))

    @contextlib.contextmanager
    def masked(self, skip: Tensor) -> Iterator[None]:
        """Steps inside change nothing where `skip` is true, on the device."""
        optimizer: Any = self._optimizer
        # the names by which torch's own scaler speaks to a fused optimizer
        optimizer.grad_scale, optimizer.found_inf = None, skip.float()
        try:
            yield
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def _grads(self) -> list[Tensor]:
        return [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]

    # -- making it
    def make(self, kind: type[Optimizer], **options: Any) -> None:
        """Sets `self.optimizer` to a `kind` over the parameters that the model wants optimized."""
        self.optimizer = kind(self.groups(dict(self.cfg)), **options)
        if not takes_sparse(self.optimizer):
            for name in make_dense(self.run.model.module, self.optimizer):
                logger.info("{} gives dense gradients: {} takes no sparse ones as it is set", name, kind.__name__)
        self.report_missing()

    def groups(self, table: Mapping[str, Any]) -> list[Group]:
        """The model's groups, cut by the no-decay rule, with the parameters of learnable losses beside them."""
        model = self.run.model
        groups = as_groups(self._wanted(table))
        if not groups:
            hint = "return the parameters to train"
            text = f"{type(model).__name__}.optim_params gives no parameters"
            raise AlchemyError(text, section=self.section, hint=hint)
        if self.no_decay is not False:
            groups = split_decay(groups, find_undecayed(model.module, self.no_decay))
        if self.name:  # a loss is claimed as the rest is: nobody else could tell whose it is
            return groups
        listed = {id(param) for group in groups for param in group["params"]}
        extra = [param for loss in model.losses().values() for param in loss.parameters() if id(param) not in listed]
        # a decayed gamma would be a preference for gamma = 0
        return [*groups, {"params": extra, "weight_decay": 0.0}] if extra else groups

    def _wanted(self, table: Mapping[str, Any]) -> Any:
        """What the model wants optimized; one of several may say itself, by patterns, what it takes."""
        model = self.run.model
        if not self.name:
            return model.optim_params(**table)
        if table.get("params") is None:
            return model.optim_params(**{**table, "name": self.name})
        patterns = [table["params"]] if isinstance(table["params"], str) else table["params"]
        return self._matched(patterns)

    def _matched(self, patterns: Sequence[str]) -> list[nn.Parameter]:
        named = list(self.run.model.named_parameters())
        # an empty text is a part of every name, which nobody means
        empty = [text for text in patterns if not text or not any(matches(name, text) for name, _ in named)]
        if empty or not patterns:
            tops = list(dict.fromkeys(name.partition(".")[0] for name, _ in named))
            near = did_you_mean(empty[0], [*tops, *(f"{top}.*" for top in tops)]) if empty else ""
            raise AlchemyError(
                f"params = {empty[0] if empty else patterns!r} names no parameter of {type(self.run.model).__name__}",
                where=where_of(self.cfg, "params"),
                section=self.section,
                hint=near or f"it has {', '.join(tops)}",
            )
        return [param for name, param in named if any(matches(name, text) for text in patterns)]

    def reset(self, **kwargs: object) -> None:
        """A fresh optimizer of the same kind over the model's parameters as they are now; `kwargs` replace settings."""
        if "_optimizer" not in vars(self):  # a constructor that makes its optimizer in `reset` calls ours first
            return
        kind = type(self._optimizer)
        names, takes_any = parameters(kind)
        known = {*names, *OURS, *self.cfg}
        for key in kwargs:
            if key not in known and not takes_any:
                hint = did_you_mean(key, known)
                raise AlchemyError(f"{kind.__name__} takes no {key!r}", section=self.section, hint=hint)
        vars(self).update({key: kwargs[key] for key in OURS if key in kwargs})
        options = {**self._optimizer.defaults, **kwargs}
        options = {key: value for key, value in options.items() if key in names and key not in OURS}
        self.optimizer = kind(self.groups({**self.cfg, **kwargs}), **options)
        if self.run.train_sched is not None:
            self.run.train_sched.write_lr()

    # -- what is not trained though it looks as if
    def missing(self) -> list[str]:
        """Trainable parameters of the model that are in no group."""
        listed = {id(param) for param in self.params}
        return [name for name, p in self.run.model.named_parameters() if p.requires_grad and id(p) not in listed]

    def report_missing(self) -> None:
        """Warns, once for each, of parameters that will not be trained; also of those made after the optimizer."""
        if self.run.model is None or self.name:  # what one of several does not have, another may
            return
        for name, number in find_hidden(self.run.model.module):
            self._report(
                f"{name}:hidden",
                f"{number} parameters in the plain list or dict '{name}' are not trained; use nn.ModuleList, "
                "nn.ModuleDict or nn.ParameterList",
            )
        names = [name for name in self.missing() if name not in self._reported]
        if names:
            self._reported.update(names)
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            logger.warning(
                "not in any optimizer group, so not trained: {}; return them from optim_params, "
                "or call optim.reset() if they were made later",
                shown,
            )

    def _report(self, key: str, message: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            logger.warning("{}", message)

    # -- state
    def state_dict(self) -> dict[str, Any]:
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state)
