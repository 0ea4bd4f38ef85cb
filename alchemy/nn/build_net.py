"""Build a network from a config table, and fill in its number of classes and channels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import nn

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import construct, parameters, resolve, where_of

# names of the same parameter in alchemy, torchvision and timm, and transformers
CLASSES = ("classes", "num_classes", "num_labels")
CHANNELS = ("channels", "in_channels", "in_chans", "num_channels")


def build_net(
    table: Mapping[str, Any], *, classes: int = 0, channels: int = 0, section: str = "model.net"
) -> nn.Module:
    """Build the module named by `type`: a class, or a function that returns a module.

    A parameter named in `CLASSES` or `CHANNELS` receives the number given here, unless it is 0; a different number in
    the table is an error. A class from transformers has a `config` table with the keys of its configuration class.
    """
    if not isinstance(table, Mapping) or "type" not in table:
        hint = 'for example net = { type = "alchemy.nn.resnet.ResNet", stem = "small" }'
        raise AlchemyError("a network needs a 'type'", where=where_of(table), section=section, hint=hint)
    maker = resolve(str(table["type"]))
    if getattr(maker, "config_class", None) is not None:
        inner = table.get("config", {})
        given = {"config": _build_config(maker.config_class, inner, classes, channels, f"{section}.config")}
    else:
        given = _numbers(parameters(maker)[0], table, classes, channels, section)
    return build_module(maker, table, drop=("type", *given), given=given, section=section)


def build_module(
    maker: Callable[..., Any],
    table: Mapping[str, Any],
    *,
    drop: Collection[str] = ("type",),
    given: Mapping[str, Any] | None = None,
    section: str,
) -> nn.Module:
    """Call a class or function with the keys of a table, and check that it returns a module."""
    made = construct(maker, table, drop=drop, given=given, section=section)
    if not isinstance(made, nn.Module):
        text = f"{table['type']} returned a {type(made).__name__}, expected an nn.Module"
        raise AlchemyError(text, where=where_of(table, "type"), section=section)
    return made


def _numbers(
    names: Collection[str], table: Mapping[str, Any], classes: int, channels: int, section: str
) -> dict[str, int]:
    """Return the number of classes and channels by the names that the constructor has for them."""
    found = {}
    for known, number, what in ((CLASSES, classes, "classes"), (CHANNELS, channels, "channels")):
        name = next((name for name in known if name in names), "")
        if not name:
            continue
        if number and table.get(name, number) != number:
            text = f"{name} = {table[name]}, but the task has {number} {what}"
            hint = f"remove {name}: it is filled in from the task"
            raise AlchemyError(text, where=where_of(table, name), section=section, hint=hint)
        if number:
            found[name] = number
    return found


def _build_config(kind: Any, table: Mapping[str, Any], classes: int, channels: int, section: str) -> Any:
    """Build the configuration of a class from transformers; raise for misspelled keys, which transformers accepts."""
    usual = kind()
    odd = [key for key in table if not hasattr(usual, key)]
    if odd:
        hint = did_you_mean(odd[0], list(usual.to_dict()))
        raise AlchemyError(
            f"{kind.__name__} has no option {odd[0]!r}", where=where_of(table, odd[0]), section=section, hint=hint
        )
    numbers = _numbers(
        [name for name in ("num_labels", "num_channels") if hasattr(usual, name)], table, classes, channels, section
    )
    return kind(**{**table, **numbers})
