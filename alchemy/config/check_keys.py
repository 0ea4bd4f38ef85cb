"""Check the keys of each part's table against its constructor: unknown keys, missing keys, wrong types."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from alchemy.annotations import describe, find_mismatches, fits
from alchemy.config.known_tables import (
    BUILT_BY_LOADER,
    BY_CONVENTION,
    GIVEN,
    GIVEN_BY_LOADER,
    LISTS,
    NAMED_OPTIM,
    NOT_PASSED,
    RATES,
    SECTIONS,
)
from alchemy.config.part_slots import Layout, Slot
from alchemy.config.part_source import Part
from alchemy.config.short_names import as_table
from alchemy.config.signature import Param, forwards, words_in
from alchemy.config.tree import Table
from alchemy.config.vocabulary_sizes import network_sizes
from alchemy.errors import Problem, closest, did_you_mean
from alchemy.key_rules import LOADER_OPTIONS, check_loader_options, find_violations
from alchemy.synonyms import meanings, place_of

_PLAIN_MODEL = "alchemy.plain_model.PlainModel"
_DATA = ("data", "datasets")
UNREAD = "remove it, or use it in a part of your project"
_CRITERION = {name: Param(name, "str", "''") for name in ("target", "output")}  # keys of a plain module's loss


def check_keys(layout: Layout, strict: bool) -> Iterator[Problem]:
    """Yield all problems with the keys of parts, datasets and tables without a part."""
    for slot in layout.slots:
        if slot.section != "runner" and slot.part is not None:
            yield from _check_slot(slot, slot.part, layout, strict)
    for split, table in layout.splits.items():
        yield from _check_split(split, table, layout, strict)
    for section in (name for name, (kind, _) in SECTIONS.items() if not kind):
        yield from _check_lists(section, layout.doc.table(section))


def _check_slot(slot: Slot, part: Part, layout: Layout, strict: bool) -> Iterator[Problem]:
    provided, params = _provided_arguments(slot), _collect_params(slot, part, layout)
    others, claimed = _extra_keys(slot, layout), _find_conflicts(slot, part, layout)
    takes_any = _takes_any(slot, part, layout)
    for key, value in slot.table.items():
        if key == "type" or key in NOT_PASSED.get(slot.section, ()):
            continue
        if key in provided:
            hint = f"remove it: {provided[key]}"
            yield slot.problem(f"{key!r} cannot be set in the config", key, hint=hint)
        elif key in claimed:
            hint = f"rename the argument, or wrap {part.name} in a function that uses a different name for it"
            yield slot.problem(f"{key!r} is both a key of alchemy and an argument of {part.name}", key, hint=hint)
        elif key in params:
            for text, hint in find_mismatches(key, value, params[key].annotation, params[key].default):
                # old-style parts were never checked against their annotations, so wrong annotations went unnoticed
                hint = hint or as_table(key, value)
                yield slot.problem(f"{part.name}: {text}", key, hint=hint, error=part.ours or not part.takes_kwargs)
        elif not takes_any and key not in others:
            names = [name for name in params if name not in provided and name != "type"]
            accepted = (
                f"it takes {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}" if names else "it takes nothing"
            )
            not_passed = NOT_PASSED.get(slot.section, ())
            hint = (
                _data_hint(slot, key)
                or _section_hint(key, slot, layout)
                or did_you_mean(key, [*names, *others, *not_passed])
                or accepted
            )
            yield slot.problem(f"{part.name} has no option {key!r}", key, hint=hint)
        elif takes_any and key not in others:
            yield from _check_unread(slot, part, key, layout, strict)
    missing = (
        _find_missing(slot, part, params, provided)
        if slot.parent is None or (slot.built_by_loader and not takes_any)
        else []
    )
    yield from missing
    if part.ours and not missing:
        yield from _check_rules(slot, part, params, layout)


def refused_keys(slot: Slot, layout: Layout) -> list[str]:
    """Return the keys of a table that its part certainly does not accept."""
    part = slot.part
    if part is None or slot.section == "runner" or _takes_any(slot, part, layout):
        return []
    known = {
        "type",
        *NOT_PASSED.get(slot.section, ()),
        *_provided_arguments(slot),
        *_collect_params(slot, part, layout),
    }
    return [key for key in slot.table if key not in known and key not in _extra_keys(slot, layout)]


# -- keys that a table may contain


def _collect_params(slot: Slot, part: Part, layout: Layout) -> dict[str, Param]:
    params = {p.name: p for p in part.params}
    adapter = layout.sources.find(_adapter(slot, part))
    params |= {p.name: p for p in (adapter.params if adapter else ()) if p.name not in (*params, "module")}
    if slot.kind == "loss" and _gives_targets(layout):
        params |= _CRITERION
    if _is_named_optimizer(slot):
        params |= {name: Param(name, text, "None") for name, text in NAMED_OPTIM.items()}
    if slot.kind == "optim" and not part.ours:  # torch optimizers declare no limits in their signatures
        known = [name for name in RATES if name in params or part.old_style]
        params |= {name: Param(name, RATES[name], params[name].default if name in params else "None") for name in known}
    return params


def _adapter(slot: Slot, part: Part) -> str:
    """Return the alchemy class that wraps a third-party part; the keys of both share one table."""
    if slot.kind == "optim" and part.is_torch_optimizer:
        return "alchemy.optim.Wrapped"
    return _PLAIN_MODEL if slot.kind == "model" and part.is_plain_model else ""


def _find_conflicts(slot: Slot, part: Part, layout: Layout) -> list[str]:
    """Return the keys that a plain module's constructor never receives, because alchemy has keys of the same names."""
    plain = layout.sources.find(_PLAIN_MODEL) if _adapter(slot, part) == _PLAIN_MODEL and part.complete else None
    return [p.name for p in plain.params if p.name != "module" and part.param(p.name)] if plain else []


def _is_named_optimizer(slot: Slot) -> bool:
    """Return whether the slot is one of several named optimizers, each of which selects its own parameters."""
    return slot.kind == "optim" and slot.section != "optim"


def _gives_targets(layout: Layout) -> bool:
    """Return whether the loss is called with a model output and a batch field, as for plain modules."""
    model = layout.at("model")
    return model is None or model.part is None or model.part.is_plain_model


def _provided_arguments(slot: Slot) -> dict[str, str]:
    """Map constructor arguments that do not come from the config to an explanation of their source."""
    if slot.kind == "data pipe":
        return {"datapipe": "each pipe receives the previous one"} if slot.order else {}
    if slot.kind == "optim":
        return {} if _is_named_optimizer(slot) else {"params": "the parameters come from the model"}
    return dict.fromkeys(GIVEN.get(slot.kind, ()), "the runner provides it")


def _takes_any(slot: Slot, part: Part, layout: Layout) -> bool:
    if part.old_style:
        return slot.section != "model" or not part.is_plain_model or part.takes_kwargs or not part.readable
    if slot.built_by_loader:
        return layout.own_method("task", "load_dataset") is not None
    return slot.parent is not None and (slot.parent.part is None or slot.parent.part.old_style)


def _extra_keys(slot: Slot, layout: Layout) -> Collection[str]:
    """Return keys that a table may contain even though its part does not declare them."""
    if slot.kind == "model":
        return BY_CONVENTION["model"]  # the runner loads the weights if the model does not
    # the model's own `optim_params(**table)` receives all keys of [optim]
    function = layout.own_method("model", "optim_params") if slot.kind == "optim" else None
    return words_in(function) if function else ()


# -- unknown keys


def _check_unread(slot: Slot, part: Part, key: str, layout: Layout, strict: bool) -> Iterator[Problem]:
    """Report a key that the source of an old-style part does not appear to use."""
    convention = BY_CONVENTION.get(slot.kind, ())
    if not part.readable or key in part.words or key in convention or key in layout.words:
        return
    near = did_you_mean(key, [*part.known, *convention])
    function = layout.own_method("model", "optim_params") if slot.kind == "optim" else None
    readers = [c.node for c in part.line if c.node and not c.dotted.startswith(("alchemy.", "torch."))]
    if near or not any(forwards(node) for node in (*readers, function) if node):
        hint = near or _section_hint(key, slot, layout) or UNREAD
        yield slot.problem(f"{key!r} is not used in the source of {part.name}", key, hint=hint, error=strict)


def _data_hint(slot: Slot, key: str) -> str:
    """Return a hint for a misspelled data table."""
    near = find_misspelled_data(slot).get(key, "")
    return f"did you mean [task.{near}]?" if near else ""


def find_misspelled_data(task: Slot) -> dict[str, str]:
    """Return tables of a task that are probably misspellings of `[task.data]` or `[task.datasets]`."""
    if task.section != "task" or any(key in task.table for key in _DATA):
        return {}
    tables = [key for key, value in task.table.items() if isinstance(value, Table) and task.part]
    unknown = [key for key in tables if task.part is not None and task.part.param(key) is None]
    return {key: near for key in unknown if not meanings(key) and (near := closest(key, _DATA))}


def _section_hint(key: str, slot: Slot, layout: Layout) -> str:
    """Return a hint that names the section a misplaced key belongs to."""
    for other in layout.slots:
        if other is not slot and "." not in other.section and other.part is not None and key in other.part.known:
            return f"it belongs in [{other.section}]"
    return place_of(key, slot.section)


def _find_missing(slot: Slot, part: Part, params: dict[str, Param], provided: dict[str, str]) -> list[Problem]:
    given = {"type", *slot.table, *provided, *(GIVEN_BY_LOADER if slot.built_by_loader else ())}
    if slot.built_by_loader and part.function:
        return []  # only the caller knows the arguments
    found = []
    for param in params.values():
        if param.required and param.name not in given:
            wanted = describe(param.annotation) if param.annotation not in ("", "Any") else ""
            hint = f"add {param.name} = ..." + (f" ({wanted})" if wanted else "")
            if param.name == "tokenizer":
                hint = 'add tokenizer = "alchemy.text.Words", "alchemy.text.Characters", or the path of a folder'
            if slot.kind == "data pipe" and param.name == "datapipe" and part.ours:
                hint = 'set the source of the first pipe in its table: datapipe = ["file"]'
            found.append(slot.problem(f"{part.name} needs {param.name!r}", hint=hint))
    return found


def _check_rules(slot: Slot, part: Part, params: dict[str, Param], layout: Layout) -> Iterator[Problem]:
    """Check rules that involve several values, provided that each value is valid on its own."""
    values = {name: slot.value(name) for name in params} | network_sizes(slot, layout)
    given = [param for name, param in params.items() if name in slot.table]
    if all(fits(values[param.name], param.annotation, param.default) for param in given):
        for klass in part.line:
            for key, text, hint in find_violations(klass.dotted, values):
                yield slot.problem(text, key if key in slot.table else "", hint=hint)


def _check_lists(section: str, table: Table) -> Iterator[Problem]:
    """Check a table that contains only lists of parts."""
    names = [path.partition(".")[2] for path in LISTS if path.startswith(f"{section}.")]
    for key in table:
        if key not in names:
            hint = did_you_mean(key, names) or f"its keys are {' and '.join(map(repr, names))}, each a list of parts"
            yield Problem(f"has no option {key!r}", table.where(key), section, hint)


# -- datasets: `pipes` are parts, all other keys are passed to the loader


def _check_split(split: str, table: Table, layout: Layout, strict: bool) -> Iterator[Problem]:
    section = f"task.datasets.{split}"
    task, own = layout.at("task"), layout.own_method("task", "load_dataset")
    part = task.part if task else None
    known = part is not None and part.readable
    if known and not own and "pipes" not in table:
        hint = 'list its pipes: pipes = [{ type = "..." }, ..]'
        yield Problem(f"the split {split!r} has no 'pipes' to read from", table.where(), section, hint)
    wrong = [
        (key, *row) for key, value in table.items() for row in find_mismatches(key, value, LOADER_OPTIONS.get(key, ""))
    ]
    for key, text, hint in wrong or check_loader_options(table):
        yield Problem(text, table.where(key), section, hint, error=bool(wrong) or not own)
    for key, value in table.items():
        near = did_you_mean(key, [*LOADER_OPTIONS, "pipes"])
        if key in BUILT_BY_LOADER and isinstance(value, Table) and "type" not in value and not own:
            hint = f'write {key} = {{ type = "package.module.Name", ... }}'
            yield Problem(f"{key} needs a 'type'", table.where(key), section, hint)
        elif key in LOADER_OPTIONS or key == "pipes":
            continue
        elif own is None or part is None:
            hint = near or "it takes 'pipes' and the arguments of torch's DataLoader"
            yield Problem(f"unknown loader option {key!r}", table.where(key), section, hint, known or strict)
        elif key not in part.words | layout.words and (near or not forwards(own)):
            text = f"{key!r} is not used in the source of {part.name}"
            yield Problem(text, table.where(key), section, near or UNREAD, strict)
