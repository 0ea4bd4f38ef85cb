"""Base class for optimizers: parameter groups, gradient clipping and resets."""

# no postponed annotations: optimizers in other modules inherit these fields with their types

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
from alchemy.nn.sparse_gradients import make_dense, supports_sparse
from alchemy.registry import Registrable, parameters, where_of

# keys of [optim] that alchemy handles, whichever torch class is used
OURS = ("max_grad_norm", "clip_value", "no_decay")

# the name of the optimizer being built, if there are several; its constructor needs it to find its table
being_built: ContextVar[str] = ContextVar("alchemy_optim", default="")


def own_table(run: Run, name: str | None = None) -> Any:
    """Return `[optim]`, or `[optim.NAME]` for one of several; `name` defaults to the optimizer being built."""
    table, name = run.table("optim"), being_built.get() if name is None else name
    return table[name] if name else table


@dataclass(kw_only=True, eq=False)
class AlchemyOptimizer(Registrable):
    """Wraps a torch optimizer; a norm or value of 0 disables clipping.

    A subclass is a dataclass that sets `torch_class` and has the arguments of that class as fields, or it calls
    `super().__init__()` and sets `self.optimizer`.
    """

    torch_class: ClassVar[type[Optimizer] | None] = None

    max_grad_norm: Annotated[float, Ge(0)] | None = None
    clip_value: Annotated[float, Ge(0)] | None = None
    no_decay: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        self.run: Run = current_run()
        self.name = being_built.get()  # NAME in [optim.NAME] if there are several
        self._optimizer: Optimizer
        self.grad_norm: Tensor | None = None  # norm in the last update, before clipping; stays on the device
        self._measured = False  # whether `grad_norm` belongs to the current gradients
        self._reported: set[str] = set()
        if self.torch_class is not None:
            self.make(self.torch_class, **self._options(self.torch_class))

    def _options(self, kind: type[Optimizer]) -> dict[str, Any]:
        """Return the fields that the torch class accepts."""
        taken = [field.name for field in fields(self) if field.name in parameters(kind)[0]]
        return {name: tuple(value) if isinstance(value := vars(self)[name], list) else value for name in taken}

    # -- parameters and settings
    @property
    def cfg(self) -> Any:
        """The `[optim]` or `[optim.NAME]` table."""
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
        """All parameters, read from the groups each time, because groups may change during training."""
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
        """Clip the gradients and update the parameters."""
        if self.max_grad_norm:
            self.clip(self.max_grad_norm)
        limit = self.clip_value
        # clamp after the norm is computed: clamping would hide infinite values from it
        grads = [grad._values() if grad.is_sparse else grad for grad in self._grads()] if limit else []
        if limit and grads:
            torch._foreach_clamp_min_(grads, -limit)
            torch._foreach_clamp_max_(grads, limit)
        self._optimizer.step()

    def measure(self) -> Tensor | None:
        """Return the norm of all gradients and store it as `grad_norm`; None if there are no gradients."""
        self.grad_norm, self._measured = norm_of(self.params), True
        return self.grad_norm

    def clip(self, max_norm: float) -> None:
        """Clip the gradient norm to `max_norm`, in half the time of `torch.nn.utils.clip_grad_norm_`."""
        norm = self.grad_norm if self._measured else self.measure()
        factor = None if norm is None else clip_factor(max_norm, norm)
        if norm is not None and factor is not None:
            scale_grads(self._grads(), factor, norm)
        self._measured = False

    @property
    def masks(self) -> bool:
        """Whether a step can be skipped by a flag on the device, without synchronization."""
        return bool(self._optimizer.defaults.get("fused"))

    @contextlib.contextmanager
    def masked(self, skip: Tensor) -> Iterator[None]:
        """Skip the steps in this block if `skip` is true; the decision is made on the device."""
        optimizer: Any = self._optimizer
        # the attributes that torch's GradScaler sets on a fused optimizer
        optimizer.grad_scale, optimizer.found_inf = None, skip.float()
        try:
            yield
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def _grads(self) -> list[Tensor]:
        return [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]

    # -- construction
    def make(self, kind: type[Optimizer], **options: Any) -> None:
        """Set `self.optimizer` to an instance of `kind` over the parameters from the model's `optim_params`."""
        self.optimizer = kind(self.groups(dict(self.cfg)), **options)
        if not supports_sparse(self.optimizer):
            for name in make_dense(self.run.model.module, self.optimizer):
                logger.info(
                    "{} uses dense gradients, because {} does not support sparse ones with these settings",
                    name,
                    kind.__name__,
                )
        self.report_missing()

    def groups(self, table: Mapping[str, Any]) -> list[Group]:
        """Return the model's groups, split by the no-decay rule, plus the parameters of learnable losses."""
        model = self.run.model
        groups = as_groups(self._select_params(table))
        if not groups:
            hint = "return the parameters to train"
            text = f"{type(model).__name__}.optim_params returned no parameters"
            raise AlchemyError(text, section=self.section, hint=hint)
        if self.no_decay is not False:
            groups = split_decay(groups, find_undecayed(model.module, self.no_decay))
        if self.name:  # with several optimizers, a loss must be assigned like any other module
            return groups
        listed = {id(param) for group in groups for param in group["params"]}
        extra = [param for loss in model.losses().values() for param in loss.parameters() if id(param) not in listed]
        # weight decay would pull gamma towards 0
        return [*groups, {"params": extra, "weight_decay": 0.0}] if extra else groups

    def _select_params(self, table: Mapping[str, Any]) -> Any:
        """Return the parameters from the model, or only those that match this optimizer's `params` patterns."""
        model = self.run.model
        if not self.name:
            return model.optim_params(**table)
        if table.get("params") is None:
            return model.optim_params(**{**table, "name": self.name})
        patterns = [table["params"]] if isinstance(table["params"], str) else table["params"]
        return self._match_params(patterns)

    def _match_params(self, patterns: Sequence[str]) -> list[nn.Parameter]:
        named = list(self.run.model.named_parameters())
        # an empty pattern would match every name
        empty = [text for text in patterns if not text or not any(matches(name, text) for name, _ in named)]
        if empty or not patterns:
            tops = list(dict.fromkeys(name.partition(".")[0] for name, _ in named))
            near = did_you_mean(empty[0], [*tops, *(f"{top}.*" for top in tops)]) if empty else ""
            raise AlchemyError(
                f"params = {empty[0] if empty else patterns!r} matches no parameter of {type(self.run.model).__name__}",
                where=where_of(self.cfg, "params"),
                section=self.section,
                hint=near or f"it has {', '.join(tops)}",
            )
        return [param for name, param in named if any(matches(name, text) for text in patterns)]

    def reset(self, **kwargs: object) -> None:
        """Create a new optimizer of the same class over the current parameters; `kwargs` override settings."""
        if "_optimizer" not in vars(self):  # a constructor that creates its optimizer in `reset` calls this first
            return
        kind = type(self._optimizer)
        names, takes_any = parameters(kind)
        known = {*names, *OURS, *self.cfg}
        for key in kwargs:
            if key not in known and not takes_any:
                hint = did_you_mean(key, known)
                raise AlchemyError(f"{kind.__name__} has no option {key!r}", section=self.section, hint=hint)
        vars(self).update({key: kwargs[key] for key in OURS if key in kwargs})
        options = {**self._optimizer.defaults, **kwargs}
        options = {key: value for key, value in options.items() if key in names and key not in OURS}
        self.optimizer = kind(self.groups({**self.cfg, **kwargs}), **options)
        if self.run.train_sched is not None:
            self.run.train_sched.write_lr()

    # -- parameters left untrained by mistake
    def missing(self) -> list[str]:
        """Return the trainable parameters of the model that are in no group."""
        listed = {id(param) for param in self.params}
        return [name for name, p in self.run.model.named_parameters() if p.requires_grad and id(p) not in listed]

    def report_missing(self) -> None:
        """Warn once about each parameter that will not be trained, even if it was created after the optimizer."""
        if self.run.model is None or self.name:  # another optimizer may train them
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
                "or call optim.reset() if they were created later",
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
