"""Parameter groups: every parameter is in exactly one group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from alchemy.errors import AlchemyError

Group = dict[str, Any]


def as_groups(given: Any) -> list[Group]:
    """Convert the result of `optim_params` to a list of groups, with each parameter in exactly one group.

    Accepts parameters, `(name, parameter)` pairs or groups, including one-shot iterators.
    """
    if isinstance(given, Tensor):
        given = [given]
    rows = [given] if isinstance(given, Mapping) else list(given)
    if not all(isinstance(row, Mapping) for row in rows):
        rows = [{"params": rows}]
    groups: list[Group] = []
    owner: dict[int, int] = {}
    for number, row in enumerate(rows):
        if "params" not in row:
            raise AlchemyError(
                f"group {number} of optim_params has no 'params', only {', '.join(map(repr, row)) or 'nothing'}",
                hint="return groups like {'params': [...], 'lr': 1e-4}",
            )
        params = _own_params(row["params"], number, owner)
        if params:
            groups.append({**row, "params": params})
    return groups


def _own_params(given: Any, number: int, owner: dict[int, int]) -> list[Tensor]:
    params: dict[int, Tensor] = {}
    for item in [given] if isinstance(given, Tensor) else given:
        param = item[1] if isinstance(item, tuple) and len(item) == 2 else item
        if not isinstance(param, Tensor):
            raise AlchemyError(
                f"optim_params returned a {type(param).__name__}",
                hint="return parameters, (name, parameter) pairs, or groups like {'params': [...], 'lr': 1e-4}",
            )
        first = owner.setdefault(id(param), number)
        if first != number:
            raise AlchemyError(
                f"a parameter of shape {tuple(param.shape)} is in group {first} and in group {number} of optim_params",
                hint="tied weights have two names but are one parameter: leave it out of one group",
            )
        params[id(param)] = param
    return list(params.values())


def find_undecayed(model: nn.Module, rule: bool | Sequence[str]) -> set[int]:
    """Return the ids of parameters without weight decay: biases and normalization, or those that match a pattern."""
    if rule is False:
        return set()
    if rule is True:
        # LSTM has bias_ih_l0, MultiheadAttention in_proj_bias
        return {id(param) for owner, name, param in _owned(model) if "bias" in name or _is_norm(owner)}
    return {id(p) for name, p in model.named_parameters(remove_duplicate=False) if any(matches(name, r) for r in rule)}


def _is_norm(module: nn.Module) -> bool:
    """Return whether a module is a normalization layer, based on its class name so that any library is covered."""
    return any(kind.__name__.rstrip("0123456789d").lower().endswith("norm") for kind in type(module).__mro__)


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a shell pattern like `*.weight` or contains a string like `LayerNorm.weight`."""
    return fnmatchcase(name, pattern) or pattern in name


def split_decay(groups: Iterable[Group], spared: Collection[int]) -> list[Group]:
    """Split each group into parameters with and without weight decay."""
    result: list[Group] = []
    for group in groups:
        kept = [param for param in group["params"] if id(param) not in spared]
        free = [param for param in group["params"] if id(param) in spared]
        if kept:
            result.append({**group, "params": kept})
        if free:
            result.append({**group, "params": free, "weight_decay": 0.0})
    return result


def trf_groups(
    model: nn.Module,
    trf: nn.Module,
    weight_decay: float = 1e-2,
    trf_lr: float | None = 2e-5,
    no_decay: bool | Sequence[str] = True,
) -> list[Group]:
    """Return groups for a new head and a pretrained encoder, which has its own learning rate unless `trf_lr` is None.

    With its own learning rate, the encoder keeps the optimizer's weight decay, as old projects expect.
    """
    spared = find_undecayed(model, no_decay)
    params = list(model.parameters())
    if trf_lr is None:
        return split_decay([{"params": params, "weight_decay": weight_decay}], spared)
    inner = {id(param) for param in trf.parameters()}
    head = [param for param in params if id(param) not in inner]
    groups = split_decay([{"params": head, "weight_decay": weight_decay}], spared)
    return [{"params": list(trf.parameters()), "lr": trf_lr}, *groups]


def find_hidden(root: nn.Module) -> list[tuple[str, int]]:
    """Find plain lists and dicts that hide parameters from torch; return their names and parameter counts."""
    known = {id(param) for param in root.parameters()}
    found = []
    for prefix, module in root.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") or not isinstance(value, list | tuple | dict):
                continue
            lost = {id(param) for param in _inside(value)} - known
            if lost:
                found.append((f"{prefix}.{name}".lstrip("."), len(lost)))
    return found


def _inside(value: object, depth: int = 0) -> Iterator[nn.Parameter]:
    if isinstance(value, nn.Parameter):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
    elif isinstance(value, list | tuple | dict) and depth < 3:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inside(item, depth + 1)


def _owned(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    for module in model.modules():
        for name, param in module.named_parameters(recurse=False, remove_duplicate=False):
            yield module, name, param


def plain_values(groups: Iterable[Group]) -> None:
    """Convert every setting of the groups to a plain Python value, in place."""
    for group in groups:
        for key, value in group.items():
            if key != "params":
                group[key] = unwrap_value(value)


def unwrap_value(value: Any) -> Any:
    """Convert a setting to plain Python, because tomlkit's subclasses of float etc. would end up in the saved state."""
    if type(value).__module__.startswith("tomlkit"):
        return value.unwrap()
    if isinstance(value, list | tuple):
        return (tuple if isinstance(value, tuple) else list)(unwrap_value(item) for item in value)
    kind = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
    return value if kind is None or type(value) is kind else kind(value)
