"""Find the places in a config that name a part, and load the source of each part."""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from alchemy.config.known_tables import (
    BUILT_BY_LOADER,
    DEFAULT_TYPES,
    INNER_TYPES,
    LISTS,
    NAMES_CODE,
    NOT_PASSED,
    SAMPLERS,
    SECTIONS,
)
from alchemy.config.part_source import KINDS, Gap, Part, Sources, parts
from alchemy.config.short_names import explain_name, with_article
from alchemy.config.signature import literal_value
from alchemy.config.tree import Array, Document, Table, children
from alchemy.errors import Problem

MOST_PROBLEMS = 1000  # per config: nobody would read more, and computing hints for 100,000 wrong keys takes minutes


@dataclass(eq=False)
class Slot:
    """One table with a `type`: the expected kind of part, and the part that was found."""

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
        """Whether the part is known to belong to alchemy."""
        return self.part is not None and self.part.ours

    @property
    def order(self) -> int:
        """The index of the slot in its list."""
        last = self.section.rpartition(".")[2]
        return int(last) if last.isdigit() else 0

    @property
    def built_by_loader(self) -> bool:
        """Whether the slot is for a sampler or similar object in the table of a split."""
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
        """Return the value that the part will receive for `key`: from the config, or the default in its source."""
        if key in self.table:
            return self.table[key]
        param = self.part.param(key) if self.part else None
        return None if param is None or param.required else literal_value(param.default)


@dataclass
class Layout:
    """All parts of a config, and the problems found while collecting them."""

    doc: Document
    sources: Sources
    slots: list[Slot] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _at: dict[str, Slot] = field(default_factory=dict)
    _inside: dict[str, list[Slot]] = field(default_factory=dict)

    def add(self, slot: Slot) -> None:
        self.slots.append(slot)
        self._at.setdefault(slot.section, slot)
        if slot.parent is None:
            self._inside.setdefault(slot.section.rpartition(".")[0], []).append(slot)

    def at(self, section: str) -> Slot | None:
        return self._at.get(section)

    def inside(self, section: str) -> list[Slot]:
        """Return the parts of a list, in order."""
        return self._inside.get(section, [])

    def of_kind(self, kind: str) -> list[Slot]:
        """Return the top-level parts of one kind; parts nested in other parts are excluded."""
        return [s for s in self.slots if s.kind == kind and s.parent is None]

    @cached_property
    def splits(self) -> dict[str, Table]:
        datasets = self.doc.table("task").table("datasets")
        return {split: table for split, table in datasets.items() if isinstance(table, Table)}

    def own_method(self, section: str, name: str) -> ast.FunctionDef | None:
        """Return a method of the part at `section` that is defined in the project, not in alchemy."""
        slot = self.at(section)
        found = slot.part.method(name) if slot and slot.part else None
        return found[1] if found and not found[0].dotted.startswith("alchemy.") else None

    @cached_property
    def words(self) -> frozenset[str]:
        """All identifiers and strings in the source of the project's parts and the modules they import."""
        found: set[str] = set()
        for name in {s.part.module for s in self.slots if s.part}:
            if name.split(".")[0] not in ("alchemy", "torch", "transformers", "torchvision", "timm"):
                found |= self.sources.words(name)
        return frozenset(found)


def collect_slots(doc: Document, sources: Sources) -> Layout:
    """Find every part that the config names."""
    layout = Layout(doc, sources)
    if isinstance(doc.get("runner"), str):
        _add(layout, Slot("runner", Table({"type": doc["runner"]}, origin=doc.origin_of("runner")), "runner"))
    for section, (kind, needs_type) in SECTIONS.items():
        table = doc.get(section)
        if isinstance(table, Table):
            if section == "optim" and _names_several(table):
                _add_several(layout, section, table, kind)
            elif needs_type or (kind and "type" in table and not _is_custom_loss(layout, section, table)):
                _add(layout, Slot(section, table, kind))
        elif table is not None:
            hint = (
                f"write [{section}], not [[{section}]]"
                if isinstance(table, list)
                else f"write [{section}] above its keys"
            )
            layout.problems.append(Problem("must be a table", doc.where(section), section, hint))
    for section, kind in LISTS.items():
        head = section.rpartition(".")[0]
        _add_list(layout, doc.table(head) if head else doc, section, kind)
    datasets = doc.table("task").table("datasets")
    for split, table in datasets.items():
        section = f"task.datasets.{split}"
        if isinstance(table, Table):
            _add_list(layout, table, f"{section}.pipes", "data pipe")
        else:
            layout.problems.append(Problem(f"the split {split!r} must be a table", datasets.where(split), section))
    splits = [Slot(f"task.datasets.{split}", table) for split, table in layout.splits.items()]
    for slot in [*splits, *layout.slots]:
        _add_nested(layout, slot)
    for slot in [*splits, *layout.slots]:
        _add_untyped(layout, slot)
        layout.problems += _check_named_code(layout, slot)
    return layout


def is_several(table: dict[str, Any]) -> bool:
    """Return whether [optim] contains several optimizers, each in its own named table."""
    return bool(table) and "type" not in table and all(isinstance(inner, dict) for inner in table.values())


def _names_several(table: Table) -> bool:
    """Return whether the table contains several optimizers, possibly mixed with misplaced keys."""
    some = any(isinstance(inner, Table) and "type" in inner for inner in table.values())
    return is_several(table) or (some and "type" not in table)


def _add_several(layout: Layout, section: str, table: Table, kind: str) -> None:
    for name, inner in table.items():
        if isinstance(inner, Table):
            _add(layout, Slot(f"{section}.{name}", inner, kind))
        else:
            text = f"[{section}] may contain only tables [{section}.NAME]: move {name!r} into them"
            layout.problems.append(Problem(text, table.where(name), section))


def _is_custom_loss(layout: Layout, section: str, table: Table) -> bool:
    """Return whether an old-style model reads the table itself and uses its own loss names: `type = "ce"`."""
    model = layout.at("model")
    if section != "criterion" or model is None or "." in str(table["type"]):
        return False
    return model.part is None or model.part.old_style


def _add_list(layout: Layout, owner: Table, section: str, kind: str) -> None:
    key = section.rpartition(".")[2]
    items = owner.get(key, [])
    if not isinstance(items, list):
        text, hint = f"{key!r} must be a list of tables", f'write {key} = [{{ type = "..." }}, ...]'
        layout.problems.append(Problem(text, owner.where(key), section, hint))
        return
    for i, item in enumerate(items):
        if isinstance(item, Table):
            _add(layout, Slot(f"{section}.{i}", item, kind))
        else:
            text, hint = f"{with_article(kind)} must be a table, not {item!r}", f'write {{ type = "{item}" }}'
            layout.problems.append(Problem(text, owner.where(key), f"{section}.{i}", hint))


def _add(layout: Layout, slot: Slot) -> None:
    """Look up the part of a slot and report problems with its `type`."""
    layout.add(slot)
    if len(layout.problems) > MOST_PROBLEMS:  # the check then stops and reports the limit
        return
    dotted = slot.table.get("type", DEFAULT_TYPES.get(slot.section))
    listed = f"`alchemy parts {shlex.quote(slot.kind)}` lists what"
    if dotted is None and "type" not in slot.table:
        hint = f'write type = "package.module.Class"; {listed} is available'
        layout.problems.append(slot.problem(f"{with_article(slot.kind)} needs a 'type'", "type", hint=hint))
    elif not isinstance(dotted, str):
        hint = "write it like 'package.module.Class'"
        layout.problems.append(slot.problem(f"'type' must be a string, not {dotted!r}", "type", hint=hint))
    elif "." not in dotted:
        message, hint = explain_name(dotted, slot.kind)
        layout.problems.append(slot.problem(message, "type", hint=hint))
    else:
        found = layout.sources.look(dotted, base=KINDS[slot.kind][0].rpartition(".")[2])
        if isinstance(found, Gap):
            layout.problems += _gap_problem(found, dotted, slot)
            return
        slot.part = found
        wrong = _wrong_kind(found, slot.kind)
        if wrong:
            layout.problems.append(slot.problem(f"{dotted!r} is {wrong}", "type", hint=f"{listed} is available"))


def _add_nested(layout: Layout, parent: Slot) -> None:
    """Add parts nested in the table of another part, such as a collate function or an encoder."""
    skip = ("pipes",) if parent.is_split else NOT_PASSED.get(parent.section, ())
    for section, table in _inner_tables(parent.table, parent.section, skip):
        dotted = table.get("type")
        if isinstance(dotted, str) and "." in dotted and len(layout.problems) <= MOST_PROBLEMS:
            slot, found = Slot(section, table, parent=parent), layout.sources.look(dotted)
            if isinstance(found, Part):
                slot.part = found
                layout.add(slot)
            else:
                sure = parent.is_split or (parent.part is not None and not parent.part.old_style)
                layout.problems += _gap_problem(found, dotted, slot, error=sure)


def _inner_tables(value: Table | Array, section: str, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, Table]]:
    for key, item in children(value):
        if isinstance(item, Table | Array) and key not in skip:
            path = f"{section}.{key}"
            if isinstance(item, Table) and "type" in item:
                yield path, item
            yield from _inner_tables(item, path)


def _add_untyped(layout: Layout, slot: Slot) -> None:
    """Add tables without a `type` whose type is known from the part that contains them."""
    line = (f"{slot.part.module}.{slot.part.name}", *slot.part.bases) if slot.part else ()
    for (path, key), (default, each) in INNER_TYPES.items():
        inner = slot.table.table(key)
        tables = {f"{key}.{name}": item for name, item in inner.items()} if each else {key: slot.table.get(key)}
        for name, table in tables.items() if path in line else ():
            if isinstance(table, Table) and "type" not in table:
                layout.add(Slot(f"{slot.section}.{name}", table, "", layout.sources.find(default), slot))


def _check_named_code(layout: Layout, slot: Slot) -> Iterator[Problem]:
    """Check functions and classes given by their import path: `fn = "src.text.split"`."""
    for key in NAMES_CODE if slot.ours or slot.is_split else ():
        dotted = slot.table.get(key)
        found = layout.sources.look(dotted) if isinstance(dotted, str) else None
        if isinstance(found, Gap) and found.reason not in ("unreadable", "syntax"):
            why = "it is not an import path" if found.reason == "form" else found.message
            yield slot.problem(f"{key} = {dotted!r}: {why}", key, hint=found.hint)
        elif found is not None and key in SAMPLERS and _is_function(found, str(dotted)):
            hint = "name a class, such as torch.utils.data.RandomSampler"
            yield slot.problem(f"{key} = {dotted!r} is a function, which cannot be iterated over", key, hint=hint)


def _is_function(found: Part | Gap, dotted: str) -> bool:
    """Return whether a name is known not to be a class; the partly compiled standard library contains no samplers."""
    return found.function if isinstance(found, Part) else dotted.split(".")[0] in sys.stdlib_module_names


def _wrong_kind(part: Part, kind: str) -> str:
    """Describe a part of the wrong kind; return "" if the kind is right or the ancestors are unknown."""
    foreign = {"optim": part.is_torch_optimizer, "model": part.is_plain_model, "loss": not part.kinds}
    if kind in part.kinds or not part.complete or foreign.get(kind):
        return ""
    if kind == "optim" and part.module.startswith("torch."):
        return "not an optimizer"
    known = f"{with_article(*sorted(part.kinds))}, " if part.kinds else ""
    return f"{known}not {with_article(kind)}"


def _gap_problem(gap: Gap, dotted: str, slot: Slot, *, error: bool = True) -> list[Problem]:
    place = slot.table.where("type")
    if gap.reason == "unreadable":
        return []
    if gap.reason == "syntax":
        return [Problem(gap.message, gap.where, slot.section, f"it is needed by type = {dotted!r} at {place}", error)]
    message = gap.message if gap.reason == "form" else f"unknown type {dotted!r}: {gap.message}"
    return [Problem(message, place, slot.section, _suggest_path(dotted) or gap.hint, error)]


def _suggest_path(dotted: str) -> str:
    """Suggest the part of alchemy with the same name in another module."""
    head, _, name = dotted.rpartition(".")
    found = _paths_by_name().get(name, []) if head.partition(".")[0] == "alchemy" else []
    return f"did you mean {found[0]!r}?" if len(found) == 1 else ""


@lru_cache(maxsize=1)  # parsing all of alchemy is slow, and many unknown types may need the result
def _paths_by_name() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in parts():
        found.setdefault(part.name, []).append(part.path)
    return found
