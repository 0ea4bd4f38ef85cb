"""Activation checkpointing: selected modules recompute their activations in the backward pass."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.nn.param_groups import matches


def recompute(root: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Enable activation checkpointing for the matching modules and return their names; nested modules are skipped.

    A pattern is a class name, a shell pattern for module names, or a part of a module name.
    """
    chosen: dict[str, nn.Module] = {}
    for pattern in patterns:
        found = {name: module for name, module in root.named_modules() if _matches(name, module, pattern)}
        if not found:
            raise AlchemyError(f"no module matches {pattern!r}", hint=_suggest(root, pattern))
        chosen |= found
    names = [name for name in chosen if not any(_is_inside(name, other) for other in chosen)]
    for name in names:
        _wrap(chosen[name])
    return names


def _matches(name: str, module: nn.Module, pattern: str) -> bool:
    if type(module).forward is nn.Module.forward:  # containers such as ModuleList are never called
        return False
    return type(module).__name__ == pattern or matches(name, pattern)


def _is_inside(name: str, other: str) -> bool:
    return name != other and (not other or name.startswith(f"{other}."))


def _suggest(root: nn.Module, pattern: str) -> str:
    kinds = {type(module).__name__ for module in root.modules()}
    names = [name for name, _ in root.named_modules() if name]
    return did_you_mean(pattern, [*kinds, *names]) or f"modules: {', '.join(names[:8])}"


def _wrap(module: nn.Module) -> None:
    # an instance attribute shadows the method: weight names stay the same, and copies of the module recompute too
    if not isinstance(module.forward, functools.partial) or module.forward.func is not _forward:
        module.forward = functools.partial(_forward, module, module.forward)


def _forward(module: nn.Module, forward: Callable[..., Any], *args: object, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    norms = [part for part in module.modules() if isinstance(part, _NormBase) and part.track_running_stats]
    if not norms:  # torch.compile does not support context_fn
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    contexts = lambda: (contextlib.nullcontext(), _same_statistics(norms))  # noqa: E731
    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)


@contextlib.contextmanager
def _same_statistics(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Discard changes to the running statistics, because the second forward pass is not a new batch."""
    buffers = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    try:
        for norm, name, buffer in buffers:
            setattr(norm, name, buffer.clone())
        yield
    finally:
        for norm, name, buffer in buffers:
            setattr(norm, name, buffer)
