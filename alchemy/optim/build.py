"""From the table `[optim]` to an optimiser, or to several."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from loguru import logger
from torch.optim import Optimizer

from alchemy.context import Run
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.optim.base import OURS, AlchemyOptimizer
from alchemy.optim.parts import Wrapped
from alchemy.registry import build, construct, parameters, resolve


def build_optimizer(run: Run) -> AlchemyOptimizer:
    """The optimiser that `[optim]` names; a class of torch is wrapped."""
    table = run.table("optim")
    if "type" not in table:
        raise AlchemyError(
            "training needs a table [optim] with a 'type'", section="optim", hint='such as type = "alchemy.optim.AdamW"'
        )
    kind = _torch_kind(table["type"])
    if kind is not None:
        drop = _left_to_model(run, table, {*parameters(kind)[0], *OURS})
        wrapped: AlchemyOptimizer = construct(Wrapped, table, drop=drop, section="optim")
        return wrapped
    try:
        names, takes_any = parameters(AlchemyOptimizer.resolve_registered_module(table["type"]))
    except AlchemyError:  # build says it again, with the line
        names, takes_any = {}, True
    drop = _left_to_model(run, table, names) if names and not takes_any else set()
    optim: AlchemyOptimizer = build(AlchemyOptimizer, table, drop=drop, section="optim")
    return optim


def _torch_kind(name: str) -> type[Optimizer] | None:
    """The torch optimiser of that name; nothing when it is a part, or when the registry is to say what is wrong."""
    try:
        AlchemyOptimizer.resolve_registered_module(name)
    except AlchemyError:
        with contextlib.suppress(AlchemyError):
            found = resolve(name)
            return found if isinstance(found, type) and issubclass(found, Optimizer) else None
    return None


def _left_to_model(run: Run, table: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Keys that the optimiser does not take but the model's own `optim_params`, which gets the whole table."""
    hook = type(run.model).optim_params
    if hook.__qualname__ == "AlchemyModel.optim_params":  # takes anything and reads nothing
        if table.get("trf_lr") is not None and "trf_lr" in names:
            logger.warning("[optim] trf_lr is not used: {} has no optim_params of its own", type(run.model).__name__)
        return set()
    wanted, takes_any = parameters(hook)
    left = {key for key in table if key not in names and key != "type" and (key in wanted or takes_any)}
    for key in sorted(left - set(wanted)):
        hint = did_you_mean(key, [*names, *wanted])
        logger.warning("[optim] {!r} is left to {}.optim_params{}", key, type(run.model).__name__, hint and f"; {hint}")
    return left
