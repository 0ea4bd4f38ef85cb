"""The keys of a part's table against what its constructor takes: unknown, missing, of the wrong type."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from alchemy.annotations import expected, fits, misfits
from alchemy.config.names import Class
from alchemy.config.signature import Param, forwards, function_parameters
from alchemy.config.slots import Layout, Slot
from alchemy.config.source import Part, find
from alchemy.config.tables import (
    BUILT_BY_LOADER,
    BY_CONVENTION,
    GIVEN,
    GIVEN_BY_LOADER,
    LISTS,
    NAMED_OPTIM,
    NOT_PASSED,
    RATES,
    SECTIONS,
    WRAPPER,
)
from alchemy.config.tree import Table
from alchemy.config.vocabularies import network_sizes
from alchemy.errors import Problem, did_you_mean
from alchemy.rules import LOADER, broken, broken_options

PLAIN_MODEL = "alchemy.plain.PlainModel"
UNREAD = "remove it, or let a part of the project read it"
CRITERION = {name: Param(name, "str", "''") for name in ("target", "output")}  # of the loss of a plain module


def check_keys(layout: Layout, strict: bool) -> Iterator[Problem]:
    """All problems with the keys of all parts, of the data sets, and of the tables without a part."""
    for slot in layout.slots:
        if slot.section != "runner" and slot.part is not None:
            yield from _check_slot(slot, slot.part, layout, strict)
    for split, table in layout.splits.items():
        yield from _check_split(split, table, layout, strict)
    for section in (name for name, (kind, _) in SECTIONS.items() if not kind):
        yield from _check_lists(section, layout.doc.table(section))


def _check_slot(slot: Slot, part: Part, layout: Layout, strict: bool) -> Iterator[Problem]:
    handed = _handed(slot)
    params = _params(slot, part, layout)
    for key, value in slot.table.items():
        if key == "type" or key in NOT_PASSED.get(slot.section, ()):
            continue
        if key in handed:
            hint = f"remove it: {handed[key]}"
            yield slot.problem(f"{key!r} is not for the config to give", key, hint=hint)
        elif key in _claimed_twice(slot, part, layout):
            hint = f"rename the argument, or wrap it in a function that takes another name for {key!r}"
            yield slot.problem(f"{key!r} is a key of alchemy and an argument of {part.name}", key, hint=hint)
        elif key in params:
            yield from _check_type(slot, part, params[key], value)
        elif not _takes_any(slot, part, layout) and key not in _extra(slot, layout):
            yield _unknown(slot, part, key, [*params, *_extra(slot, layout)], layout)
        elif _unclaimed(slot, part, key, layout):
            yield _unclaimed_problem(slot, part, key, layout, strict)
    missing = list(_missing(slot, part, params, handed)) if _needs_all(slot, part, layout) else []
    yield from missing
    if part.ours and not missing:
        yield from _check_rules(slot, part, params, layout)


def _needs_all(slot: Slot, part: Part, layout: Layout) -> bool:
    """Whether nobody but its table and those who are known can give what a part requires."""
    return slot.parent is None or (slot.built_by_loader and not part.function and not _takes_any(slot, part, layout))


def _params(slot: Slot, part: Part, layout: Layout) -> dict[str, Param]:
    params = {p.name: p for p in part.params}
    for adapter in _adapters(slot, part):
        found = find(adapter, layout.roots)
        params |= {p.name: p for p in (found.params if found else ()) if p.name not in (*params, "module")}
    if slot.kind == "loss" and _gives_targets(layout):
        params |= CRITERION
    if _named(slot):
        params |= {name: Param(name, text, "None") for name, text in NAMED_OPTIM.items()}
    if slot.kind == "optim" and not part.ours:  # those of torch say nothing about limits in their signatures
        known = [name for name in RATES if name in params or part.old_style]
        params |= {name: Param(name, RATES[name], params[name].default if name in params else "None") for name in known}
    return params


def _claimed_twice(slot: Slot, part: Part, layout: Layout) -> list[str]:
    """Keys of alchemy that the constructor of a plain module takes too: it would never get them."""
    plain = find(PLAIN_MODEL, layout.roots) if PLAIN_MODEL in _adapters(slot, part) and part.complete else None
    return [p.name for p in plain.params if p.name != "module" and part.param(p.name)] if plain else []


def _named(slot: Slot) -> bool:
    """Whether it is one of several optimisers, which says itself what parameters it takes."""
    return slot.kind == "optim" and slot.section != "optim"


def _adapters(slot: Slot, part: Part) -> list[str]:
    """What alchemy puts around a part that is not its own; the keys of both stand in one table."""
    if slot.kind == "optim" and part.is_torch_optimizer:
        return ["alchemy.optim.Wrapped"]
    return [PLAIN_MODEL] if slot.kind == "model" and part.is_plain_model else []


def _gives_targets(layout: Layout) -> bool:
    """Whether the loss is given an output and a field of the batch, as plain modules need it."""
    model = layout.at("model")
    return model is None or model.part is None or model.part.is_plain_model


def _handed(slot: Slot) -> dict[str, str]:
    """Names that somebody else gives to the constructor, and who."""
    if slot.kind == "data pipe":
        return {"datapipe": "each pipe gets the one before it"} if slot.order else {}
    if slot.kind == "optim":
        return {} if _named(slot) else {"params": "the parameters come from the model"}
    return dict.fromkeys(GIVEN.get(slot.kind, ()), "the runner gives it")


def _takes_any(slot: Slot, part: Part, layout: Layout) -> bool:
    if slot.built_by_loader:
        return part.old_style or layout.own_loading is not None
    if slot.parent is not None:
        return part.old_style or slot.parent.part is None or slot.parent.part.old_style
    if slot.section == "model" and part.is_plain_model:
        return part.takes_kwargs or not part.readable
    return part.old_style


def _extra(slot: Slot, layout: Layout) -> tuple[str, ...]:
    """Keys that a table may hold though its part does not name them: others read them."""
    if slot.kind == "model":
        return BY_CONVENTION["model"]  # whoever builds the model loads the weights itself where the model does not
    if slot.kind != "optim":
        return ()
    keys = WRAPPER if slot.part is not None and slot.part.is_torch_optimizer else ()
    return (*keys, *_optim_params_keys(layout))


def _optim_params_keys(layout: Layout) -> tuple[str, ...]:
    """What the model's own `optim_params(**table)` reads of [optim]."""
    model = layout.at("model")
    found = model.part.method("optim_params") if model and model.part else None
    if found is None:
        return ()
    klass, function = found
    if klass.dotted.startswith("alchemy.") or klass.module is None:
        return ()
    params, _ = function_parameters(function, klass.module, bound=True)
    strings = [n.value for n in ast.walk(function) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return (*(p.name for p in params), *strings)


def _unclaimed(slot: Slot, part: Part, key: str, layout: Layout) -> bool:
    """Whether nobody seems to read a key of an old-style part; its code, not its signature, tells."""
    if not part.readable or key in part.words or key in BY_CONVENTION.get(slot.kind, ()) or key in layout.words:
        return False
    if slot.kind == "optim" and key in _optim_params_keys(layout):
        return False
    if _hands_on(part) or (slot.kind == "optim" and _model_hands_on(layout)):
        return bool(did_you_mean(key, _near(slot, part)))
    return True


def _hands_on(part: Part) -> bool:
    own = (c.node for c in part.line if not c.dotted.startswith(("alchemy.", "torch.")))
    return any(node is not None and forwards(node) for node in own)


def _model_hands_on(layout: Layout) -> bool:
    model = layout.at("model")
    found = model.part.method("optim_params") if model and model.part else None
    return found is not None and not found[0].dotted.startswith("alchemy.") and forwards(found[1])


def _near(slot: Slot, part: Part) -> list[str]:
    return [*part.known, *BY_CONVENTION.get(slot.kind, ())]


def _unclaimed_problem(slot: Slot, part: Part, key: str, layout: Layout, strict: bool) -> Problem:
    hint = did_you_mean(key, _near(slot, part)) or _elsewhere(key, slot, layout) or UNREAD
    return slot.problem(f"nothing in the source of {part.name} reads {key!r}", key, hint=hint, error=strict)


def _unknown(slot: Slot, part: Part, key: str, names: Iterable[str], layout: Layout) -> Problem:
    names = [n for n in dict.fromkeys(names) if n not in _handed(slot) and n != "type"]
    listed = f"it takes {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}" if names else "it takes nothing"
    hint = did_you_mean(key, names) or _elsewhere(key, slot, layout) or listed
    return slot.problem(f"{part.name} takes no {key!r}", key, hint=hint)


def _elsewhere(key: str, slot: Slot, layout: Layout) -> str:
    """The section that does take a key which stands in the wrong one."""
    for other in layout.slots:
        if other is not slot and "." not in other.section and other.part is not None and key in other.part.known:
            return f"it belongs into [{other.section}]"
    return ""


def _missing(slot: Slot, part: Part, params: dict[str, Param], handed: dict[str, str]) -> Iterator[Problem]:
    for param in params.values():
        first_pipe = slot.kind == "data pipe" and param.name == "datapipe" and not slot.order
        given = param.name in slot.table or param.name in handed or param.name == "type"
        if param.required and not given and not (slot.built_by_loader and param.name in GIVEN_BY_LOADER):
            if first_pipe and slot.part is not None and slot.part.ours:
                hint = 'the first pipe reads from its own table: datapipe = ["file"]'
            else:
                hint = f"add {param.name} = ..." + (f" ({expected(param.annotation)})" if param.annotation else "")
            yield slot.problem(f"{part.name} needs {param.name!r}", hint=hint)


def _check_type(slot: Slot, part: Part, param: Param, value: Any) -> Iterator[Problem]:
    for text, hint in misfits(param.name, value, param.annotation, param.default):
        yield slot.problem(f"{part.name}: {text}", param.name, hint=hint, error=not _lenient(part))


def _check_rules(slot: Slot, part: Part, params: dict[str, Param], layout: Layout) -> Iterator[Problem]:
    """What is wrong with the values together; not asked while one of them is wrong by itself."""
    values = {name: slot.value(name) for name in params} | network_sizes(slot, layout)
    given = [param for name, param in params.items() if name in slot.table]
    if all(fits(values[param.name], param.annotation, param.default) for param in given):
        for klass in part.line:
            for key, text, hint in broken(klass.dotted, values):
                yield slot.problem(text, key if key in slot.table else "", hint=hint)


def _lenient(part: Part) -> bool:
    # old parts were never checked against their annotations, and a sloppy one worked
    return part.takes_kwargs and not part.ours


def _check_lists(section: str, table: Table) -> Iterator[Problem]:
    """A table that only holds lists of parts."""
    names = [path.partition(".")[2] for path in LISTS if path.startswith(f"{section}.")]
    for key in table:
        if key not in names:
            hint = did_you_mean(key, names) or f"it takes {' and '.join(names)}: lists of parts with a type each"
            yield Problem(f"[{section}] takes no {key!r}", table.where(key), section, hint)


# -- data sets: `pipes` are parts, everything else goes to the loader


def _check_split(split: str, table: Table, layout: Layout, strict: bool) -> Iterator[Problem]:
    section = f"task.datasets.{split}"
    task, own = layout.at("task"), layout.own_loading
    known_task = task is not None and task.part is not None and task.part.readable
    if known_task and not own and "pipes" not in table:
        hint = 'name its parts: pipes = [{ type = "..." }, ..]'
        yield Problem(f"the split {split!r} has no 'pipes' to read from", table.where(), section, hint)
    wrong = [(key, *row) for key, value in table.items() for row in misfits(key, value, LOADER.get(key, ""))]
    for key, text, hint in wrong or broken_options(table):
        yield Problem(text, table.where(key), section, hint, error=bool(wrong) or not own)
    for key, value in table.items():
        if key in BUILT_BY_LOADER and isinstance(value, Table) and "type" not in value and not own:
            hint = f'write {key} = {{ type = "package.module.Name", ... }}'
            yield Problem(f"{key} needs a 'type'", table.where(key), section, hint)
        elif key in LOADER or key == "pipes":
            continue
        elif own and task is not None and task.part is not None:
            place = Problem("", table.where(key), section, error=strict)
            yield from _own_loading(task.part, own, key, place, layout)
        else:
            hint = did_you_mean(key, [*LOADER, "pipes"]) or "it takes 'pipes' and the arguments of torch's DataLoader"
            yield Problem(f"the loader takes no {key!r}", table.where(key), section, hint, known_task or strict)


def _own_loading(
    part: Part, loads: tuple[Class, ast.FunctionDef], key: str, place: Problem, layout: Layout
) -> Iterator[Problem]:
    """A key of a split whose task has a `load_dataset` of its own: it may read anything."""
    klass, function = loads
    names = [p.name for p in function_parameters(function, klass.module, bound=True)[0]] if klass.module else []
    if key in names or key in part.words or key in layout.words:
        return
    hint = did_you_mean(key, [*LOADER, *names, "pipes"])
    if hint or not forwards(function):
        text = f"nothing in the source of {part.name} reads {key!r}"
        yield replace(place, message=text, hint=hint or UNREAD)
