"""Build one or more optimizers from the `[optim]` table."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from loguru import logger
from torch.optim import Optimizer

from alchemy.config.part_slots import is_several
from alchemy.context import Run
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.optim.base import OURS, AlchemyOptimizer, being_built
from alchemy.optim.multiple import Optimizers
from alchemy.optim.optimizers import Wrapped
from alchemy.registry import add_location, construct, parameters, resolve, where_of


def build_optimizer(run: Run) -> AlchemyOptimizer:
    """Build the optimizer from `[optim]`, or one optimizer per `[optim.NAME]` table."""
    table = run.table("optim")
    if is_several(table):
        return Optimizers({name: _build_named(run, name) for name in table})
    if "type" not in table:
        raise AlchemyError(
            "training needs an [optim] table with a 'type'",
            section="optim",
            hint='such as type = "alchemy.optim.AdamW"',
        )
    return _build(run, table, "optim")


def _build_named(run: Run, name: str) -> AlchemyOptimizer:
    table, section = run.table("optim")[name], f"optim.{name}"
    if "type" not in table:
        hint = 'such as type = "alchemy.optim.AdamW"'
        raise AlchemyError(f"[{section}] has no 'type'", where=where_of(table), section=section, hint=hint)
    if table.get("params") is None and not _has_hook(run):
        hint = f'set a pattern, such as params = "{name}.*", or define optim_params(self, name, **table)'
        raise AlchemyError(
            "the parameters of this optimizer are not set", where=where_of(table), section=section, hint=hint
        )
    token = being_built.set(name)
    try:
        return _build(run, table, section)
    finally:
        being_built.reset(token)


def _build(run: Run, table: Mapping[str, Any], section: str) -> AlchemyOptimizer:
    """Build one optimizer; a torch class is wrapped."""
    cls = _class_of(table, section)
    names, takes_any = parameters(cls)
    if issubclass(cls, Optimizer):
        cls, names, takes_any = Wrapped, {**names, **dict.fromkeys(OURS, False)}, False
    drop = _left_to_model(run, table, names, section) if names and not takes_any else set()
    optim: AlchemyOptimizer = construct(cls, table, drop=drop, section=section)
    return optim


def _class_of(table: Mapping[str, Any], section: str) -> type:
    """Return the optimizer class for `type`, which may be a torch class; raise the registry's error for other names."""
    try:
        return AlchemyOptimizer.resolve_registered_module(table["type"])
    except AlchemyError as error:
        with contextlib.suppress(AlchemyError):
            found = resolve(table["type"])
            if isinstance(found, type) and issubclass(found, Optimizer):
                return found
        raise add_location(error, where_of(table, "type"), section) from error


def _has_hook(run: Run) -> bool:
    """Return whether the model overrides `optim_params`; the default implementation accepts any key and reads none."""
    return type(run.model).optim_params.__qualname__ != "AlchemyModel.optim_params"


def _left_to_model(run: Run, table: Mapping[str, Any], names: Collection[str], section: str) -> set[str]:
    """Return the keys accepted only by the model's `optim_params`, which receives the whole table."""
    claimed = {"params"} if section != "optim" and "params" in table else set()
    if claimed:  # with patterns, `optim_params` is not called
        return claimed
    if not _has_hook(run):
        if table.get("trf_lr") is not None and "trf_lr" in names:
            logger.warning("[optim] trf_lr is not used: {} does not define optim_params", type(run.model).__name__)
        return set()
    wanted, takes_any = parameters(type(run.model).optim_params)
    left = {key for key in table if key not in names and key != "type" and (key in wanted or takes_any)}
    for key in sorted(left - set(wanted)):
        hint = did_you_mean(key, [*names, *wanted])
        logger.warning(
            "[optim] {!r} is passed only to {}.optim_params{}", key, type(run.model).__name__, hint and f"; {hint}"
        )
    return left
