"""The places of a config where a part is named, each with its table and with what its source says."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from alchemy.config.modules import locate, read
from alchemy.config.signature import literal
from alchemy.config.source import KINDS, Gap, Part, look, project_words
from alchemy.config.tables import (
    BUILT_BY_LOADER,
    DEFAULT_TYPES,
    INNER_TYPES,
    LISTS,
    NAMES_CODE,
    NOT_PASSED,
    OWN_TYPES,
    SAMPLERS,
    SECTIONS,
)
from alchemy.config.tree import Array, Document, Table
from alchemy.errors import Problem


@dataclass(eq=False)
class Slot:
    """One table with a `type`: what kind of part it wants, and the part that was found for it."""

    section: str
    table: Table
    kind: str = ""
    part: Part | None = None
    parent: Slot | None = None

    @property
    def name(self) -> str:
        return self.part.name if self.part else str(self.table.get("type", "")).rpartition(".")[2]

    @property
    def ours(self) -> bool:
        """Whether it is known to be a part of alchemy."""
        return self.part is not None and self.part.ours

    @property
    def order(self) -> int:
        """The place in its list, from 0."""
        last = self.section.rpartition(".")[2]
        return int(last) if last.isdigit() else 0

    @property
    def built_by_loader(self) -> bool:
        """Whether it is a sampler or the like, in the table of a split."""
        key = self.section.removeprefix(f"{self.parent.section}.").partition(".")[0] if self.parent else ""
        return self.parent is not None and self.parent.is_split and key in BUILT_BY_LOADER

    @property
    def is_split(self) -> bool:
        return self.section.startswith("task.datasets.") and self.kind == "" and self.parent is None

    def is_a(self, *names: str) -> bool:
        return self.part.is_a(*names) if self.part else self.name in names

    def problem(self, message: str, key: str = "", *, hint: str = "", error: bool = True) -> Problem:
        return Problem(message, where=self.table.where(key), section=self.section, hint=hint, error=error)

    def value(self, key: str) -> Any:
        """What the part will get for `key`: the config's value, or the default that its source shows."""
        if key in self.table:
            return self.table[key]
        param = self.part.param(key) if self.part else None
        return None if param is None or param.required else literal(param.default)


@dataclass
class Layout:
    """All parts of a config, and what was wrong with how they are written down."""

    doc: Document
    roots: tuple[str, ...]
    slots: list[Slot] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def at(self, section: str) -> Slot | None:
        return next((s for s in self.slots if s.section == section), None)

    def inside(self, section: str) -> list[Slot]:
        """The parts of a list, in order."""
        return [s for s in self.slots if s.section.rpartition(".")[0] == section and s.parent is None]

    def of_kind(self, kind: str) -> list[Slot]:
        """The parts of one kind that are no part of another one."""
        return [s for s in self.slots if s.kind == kind and s.parent is None]

    @property
    def splits(self) -> dict[str, Table]:
        datasets = self.doc.table("task").table("datasets")
        return {split: table for split, table in datasets.items() if isinstance(table, Table)}

    def own_method(self, section: str, name: str) -> ast.FunctionDef | None:
        """A method of the part at `section` that the project has written itself."""
        slot = self.at(section)
        found = slot.part.method(name) if slot and slot.part else None
        return found[1] if found and not found[0].dotted.startswith("alchemy.") else None

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word in the source of the project's own parts and of the modules that they import."""
        found: set[str] = set()
        for name in {s.part.module for s in self.slots if s.part and not _foreign(s.part)}:
            place = locate(name, self.roots)
            module = read(name, place) if place else None
            if module is not None:
                found |= project_words(module, self.roots)
        return frozenset(found)


def collect(doc: Document, roots: Sequence[str]) -> Layout:
    """Finds every part that the config names."""
    layout = Layout(doc, tuple(roots))
    runner = doc.get("runner")
    if isinstance(runner, str):
        _add(layout, Slot("runner", Table({"type": runner}, origin=doc.origin_of("runner")), "runner"))
    for section, (kind, needs_type) in SECTIONS.items():
        table = doc.get(section)
        if isinstance(table, Table):
            if section == "optim" and (is_several(table) or _is_mixed(table)):
                _collect_several(layout, section, table, kind)
            elif needs_type or (kind and "type" in table and not _own_word(layout, section, table)):
                _add(layout, Slot(section, table, kind))
        elif table is not None:
            _wrong(layout, f"[{section}] must be a table", doc.where(section), section)
    for section, kind in LISTS.items():
        head = section.rpartition(".")[0]
        _collect_list(layout, doc.table(head) if head else doc, section, kind)
    datasets = doc.table("task").table("datasets")
    for split, table in datasets.items():
        if not isinstance(table, Table):
            _wrong(layout, f"the split {split!r} must be a table", datasets.where(split), f"task.datasets.{split}")
        else:
            _collect_list(layout, table, f"task.datasets.{split}.pipes", "data pipe")
    for split, table in layout.splits.items():
        slots = Slot(f"task.datasets.{split}", table)
        _nested(layout, slots, skip=("pipes",))
        _named_code(layout, slots)
    for slot in list(layout.slots):
        if slot.parent is None:
            _nested(layout, slot, skip=NOT_PASSED.get(slot.section, ()))
            _owned(layout, slot)
        _named_code(layout, slot)
    return layout


def is_several(table: dict[str, Any]) -> bool:
    """Whether [optim] holds several optimisers, each in a table with a name of its own."""
    return bool(table) and "type" not in table and all(isinstance(inner, dict) for inner in table.values())


def _is_mixed(table: Table) -> bool:
    """Whether it holds several optimisers, and beside them what was meant for each."""
    return "type" not in table and any(isinstance(inner, Table) and "type" in inner for inner in table.values())


def _collect_several(layout: Layout, section: str, table: Table, kind: str) -> None:
    for name, inner in table.items():
        if isinstance(inner, Table):
            _add(layout, Slot(f"{section}.{name}", inner, kind))
        else:
            text = f"beside the tables [{section}.NAME], [{section}] holds nothing else: move {name!r} into them"
            _wrong(layout, text, table.where(name), section)


def _own_word(layout: Layout, section: str, table: Table) -> bool:
    """Whether an old-style model reads the table itself and names its loss in a word of its own: `type = "ce"`."""
    model = layout.at("model")
    if section != "criterion" or model is None or "." in str(table.get("type")):
        return False
    return model.part is None or model.part.old_style


def _collect_list(layout: Layout, owner: Table, section: str, kind: str) -> None:
    key = section.rpartition(".")[2]
    if key not in owner:
        return
    items = owner[key]
    if not isinstance(items, list):
        _wrong(layout, f"{key!r} must be a list of tables", owner.where(key), section, '[{ type = "..." }, ...]')
        return
    for i, item in enumerate(items):
        if isinstance(item, Table):
            _add(layout, Slot(f"{section}.{i}", item, kind))
        else:
            text = f"{_article(kind)} must be a table, not {item!r}"
            _wrong(layout, text, owner.where(key), f"{section}.{i}", f'write {{ type = "{item}" }}')


def _nested(layout: Layout, parent: Slot, skip: tuple[str, ...]) -> None:
    """Parts inside the table of a part, such as a collate or an encoder; what they mean is the parent's business."""
    for section, table in _inner_tables(parent.table, parent.section, skip=skip):
        dotted = table.get("type")
        if isinstance(dotted, str) and "." in dotted:
            found = look(dotted, layout.roots)
            if isinstance(found, Part):
                layout.slots.append(Slot(section, table, "", found, parent))
                _untyped(layout, layout.slots[-1])
            elif found.reason != "unreadable":
                sure = parent.kind == "" or (parent.part is not None and not parent.part.old_style)
                layout.problems.append(_gap_problem(found, dotted, section, table.where("type"), error=sure))


def _untyped(layout: Layout, slot: Slot) -> None:
    """Tables that need not say their type, since the part around them knows it."""
    for (path, key), default in INNER_TYPES.items():
        found, inner = look(default, layout.roots), slot.table.get(key)
        if slot.table.get("type") == path and isinstance(found, Part) and isinstance(inner, Table):
            rows = [(name, table) for name, table in inner.items() if isinstance(table, Table) and "type" not in table]
            layout.slots += [Slot(f"{slot.section}.{key}.{name}", table, "", found, slot) for name, table in rows]


def _owned(layout: Layout, slot: Slot) -> None:
    """Tables without a type that are the arguments of a class which only the part around them builds."""
    line = (f"{slot.part.module}.{slot.part.name}", *slot.part.bases) if slot.part else ()
    for (path, key), default in OWN_TYPES.items():
        inner = slot.table.get(key)
        if path in line and isinstance(inner, Table):
            found = look(default, layout.roots)
            if isinstance(found, Part):
                layout.slots.append(Slot(f"{slot.section}.{key}", inner, "", found, slot))


def _named_code(layout: Layout, slot: Slot) -> None:
    """Functions and classes that a table names by their import path alone: `fn = "src.text.split"`."""
    for key in NAMES_CODE:
        dotted = slot.table.get(key)
        ours = slot.part.ours if slot.part else slot.kind == ""
        if isinstance(dotted, str) and ours:
            found = look(dotted, layout.roots)
            if isinstance(found, Gap) and found.reason not in ("unreadable", "syntax"):
                why = "it is not an import path" if found.reason == "form" else found.message
                _wrong(layout, f"{key} = {dotted!r}: {why}", slot.table.where(key), slot.section, found.hint)
            elif key in SAMPLERS and _is_function(found, dotted):
                hint = "name a class, such as torch.utils.data.RandomSampler"
                text = f"{key} = {dotted!r} is a function, and cannot be iterated over"
                _wrong(layout, text, slot.table.where(key), slot.section, hint)


def _is_function(found: Part | Gap, dotted: str) -> bool:
    """Whether a name is surely no class; the standard library, which may be compiled, has no sampler at all."""
    return found.function if isinstance(found, Part) else dotted.split(".")[0] in sys.stdlib_module_names


def _inner_tables(value: Table | Array, section: str, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, Table]]:
    for key, item in value.items() if isinstance(value, Table) else enumerate(value):
        if isinstance(item, Table | Array) and key not in skip:
            path = f"{section}.{key}"
            if isinstance(item, Table) and "type" in item:
                yield path, item
            yield from _inner_tables(item, path)


def _add(layout: Layout, slot: Slot) -> None:
    """Looks the part of a slot up, and notes what is wrong with its `type`."""
    layout.slots.append(slot)
    place = slot.table.where("type")
    if "type" not in slot.table and slot.section not in DEFAULT_TYPES:
        hint = f'write type = "package.module.Class"; `alchemy parts {_slug(slot.kind)}` lists what there is'
        _wrong(layout, f"{_article(slot.kind)} needs a 'type'", place, slot.section, hint)
        return
    dotted = slot.table.get("type", DEFAULT_TYPES.get(slot.section))
    if not isinstance(dotted, str):
        hint = "write it like 'package.module.Class'"
        _wrong(layout, f"'type' must be a text, not {dotted!r}", place, slot.section, hint)
        return
    found = look(dotted, layout.roots, base=KINDS[slot.kind][0].rpartition(".")[2])
    if isinstance(found, Gap):
        if found.reason != "unreadable":
            layout.problems.append(_gap_problem(found, dotted, slot.section, place))
        return
    slot.part = found
    wrong = _wrong_kind(found, slot.kind)
    if wrong:
        hint = f"`alchemy parts {_slug(slot.kind)}` lists what fits here"
        _wrong(layout, f"{dotted!r} is {wrong}", place, slot.section, hint)


def _wrong_kind(part: Part, kind: str) -> str:
    """What a part is in place of what was wanted; nothing when it fits or its ancestors do not tell."""
    if kind in part.kinds or not part.complete:
        return ""
    if kind == "optim" and part.module.startswith("torch.") and not part.is_torch_optimizer:
        return "not an optimiser"
    if kind == "loss" and not part.kinds:
        return ""  # any callable or nn.Module
    if (kind == "optim" and part.is_torch_optimizer) or (kind == "model" and part.is_plain_model):
        return ""
    if part.kinds:
        return f"{_article(' and '.join(sorted(part.kinds)))}, not {_article(kind)}"
    return f"not {_article(kind)}"


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _slug(kind: str) -> str:
    return f"'{kind}'" if " " in kind else kind


def _gap_problem(gap: Gap, dotted: str, section: str, place: str, *, error: bool = True) -> Problem:
    if gap.reason == "syntax":
        return Problem(gap.message, gap.where, section, f"type = {dotted!r} at {place} needs it", error)
    message = gap.message if gap.reason == "form" else f"unknown type {dotted!r}: {gap.message}"
    return Problem(message, place, section, gap.hint, error)


def _wrong(layout: Layout, message: str, place: str, section: str, hint: str = "") -> None:
    layout.problems.append(Problem(message, place, section, hint))


def _foreign(part: Part) -> bool:
    return part.ours or part.module.split(".")[0] in ("torch", "transformers", "torchvision", "timm")
