"""The places of a config where a part is named, each with its table and with what its source says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from alchemy.config.modules import locate, read
from alchemy.config.signature import literal
from alchemy.config.source import KINDS, Gap, Part, look, project_words
from alchemy.config.tables import DEFAULT_TYPES, INNER_TYPES, LISTS, NAMES_CODE, NOT_PASSED, OWN_TYPES, SECTIONS
from alchemy.errors import Problem


@dataclass(eq=False)
class Slot:
    """One table with a `type`: what kind of part it wants, and the part that was found for it."""

    section: str
    table: Any
    kind: str = ""
    part: Part | None = None
    parent: Slot | None = None

    @property
    def name(self) -> str:
        return self.part.name if self.part else str(entry(self.table, "type", "")).rpartition(".")[2]

    @property
    def order(self) -> int:
        """The place in its list, from 0."""
        last = self.section.rpartition(".")[2]
        return int(last) if last.isdigit() else 0

    def is_a(self, *names: str) -> bool:
        return self.part.is_a(*names) if self.part else self.name in names

    def problem(self, message: str, key: str = "", *, hint: str = "", error: bool = True) -> Problem:
        return Problem(message, where=where(self.table, key), section=self.section, hint=hint, error=error)

    def value(self, key: str) -> Any:
        """What the part will get for `key`: the config's value, or the default that its source shows."""
        if has(self.table, key):
            return entry(self.table, key)
        param = self.part.param(key) if self.part else None
        return None if param is None or param.required else literal(param.default)


@dataclass
class Layout:
    """All parts of a config, and what was wrong with how they are written down."""

    doc: Any
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
    def splits(self) -> dict[str, Any]:
        task = entry(self.doc, "task", None)
        datasets = entry(task, "datasets", None) if is_table(task) else None
        return {k: v for k, v in entries(datasets) if is_table(v)} if is_table(datasets) else {}

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


def collect(doc: Any, roots: Sequence[str]) -> Layout:
    """Finds every part that the config names."""
    layout = Layout(doc, tuple(roots))
    runner = entry(doc, "runner", None)
    if isinstance(runner, str):
        _add(layout, Slot("runner", {"type": runner}, "runner"), where(doc, "runner"))
    for section, (kind, needs_type) in SECTIONS.items():
        table = entry(doc, section, None)
        if is_table(table):
            if section == "optim" and (is_several(table) or _is_mixed(table)):
                _collect_several(layout, section, table, kind)
            elif needs_type or (kind and has(table, "type") and not _own_word(layout, section, table)):
                _add(layout, Slot(section, table, kind))
        elif table is not None:
            _wrong(layout, f"[{section}] must be a table", where(doc, section), section)
    for section, kind in LISTS.items():
        _collect_list(layout, doc, section, kind)
    task = entry(doc, "task", None)
    datasets = entry(task, "datasets", None) if is_table(task) else None
    for split, table in entries(datasets) if is_table(datasets) else ():
        if not is_table(table):
            _wrong(layout, f"the split {split!r} must be a table", where(datasets, split), f"task.datasets.{split}")
        elif has(table, "pipes"):
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


def is_several(table: Any) -> bool:
    """Whether [optim] holds several optimisers, each in a table with a name of its own."""
    return bool(table) and not has(table, "type") and all(is_table(inner) for _, inner in entries(table))


def _is_mixed(table: Any) -> bool:
    """Whether it holds several optimisers, and beside them what was meant for each."""
    return not has(table, "type") and any(is_table(inner) and has(inner, "type") for _, inner in entries(table))


def _collect_several(layout: Layout, section: str, table: Any, kind: str) -> None:
    for name, inner in entries(table):
        if is_table(inner):
            _add(layout, Slot(f"{section}.{name}", inner, kind), where(table, name))
        else:
            text = f"beside the tables [{section}.NAME], [{section}] holds nothing else: move {name!r} into them"
            _wrong(layout, text, where(table, name), section)


def _own_word(layout: Layout, section: str, table: Any) -> bool:
    """Whether an old-style model reads the table itself and names its loss in a word of its own: `type = "ce"`."""
    model = layout.at("model")
    if section != "criterion" or model is None or "." in str(entry(table, "type")):
        return False
    return model.part is None or model.part.old_style


def _collect_list(layout: Layout, owner: Any, section: str, kind: str) -> None:
    head, _, key = section.rpartition(".")
    if head in SECTIONS:
        owner = entry(owner, head, None)
    if not is_table(owner) or not has(owner, key):
        return
    items = entry(owner, key)
    if not isinstance(items, list):
        _wrong(layout, f"{key!r} must be a list of tables", where(owner, key), section, '[{ type = "..." }, ...]')
        return
    for i, item in enumerate(items):
        if is_table(item):
            _add(layout, Slot(f"{section}.{i}", item, kind), where(item) or where(owner, key))
        else:
            text = f"{_article(kind)} must be a table, not {item!r}"
            _wrong(layout, text, where(owner, key), f"{section}.{i}", f'write {{ type = "{item}" }}')


def _nested(layout: Layout, parent: Slot, skip: tuple[str, ...]) -> None:
    """Parts inside the table of a part, such as a collate or an encoder; what they mean is the parent's business."""
    for section, table in _inner_tables(parent.table, parent.section, skip=skip):
        dotted = entry(table, "type", None)
        if isinstance(dotted, str) and "." in dotted:
            found = look(dotted, layout.roots)
            if isinstance(found, Part):
                layout.slots.append(Slot(section, table, "", found, parent))
                _untyped(layout, layout.slots[-1])
            elif found.reason != "unreadable":
                sure = parent.kind == "" or (parent.part is not None and not parent.part.old_style)
                layout.problems.append(_gap_problem(found, dotted, section, where(table, "type"), error=sure))


def _untyped(layout: Layout, slot: Slot) -> None:
    """Tables that need not say their type, since the part around them knows it."""
    for (path, key), default in INNER_TYPES.items():
        found, inner = look(default, layout.roots), entry(slot.table, key, None)
        if entry(slot.table, "type") == path and isinstance(found, Part) and is_table(inner):
            rows = [(name, table) for name, table in entries(inner) if is_table(table) and not has(table, "type")]
            layout.slots += [Slot(f"{slot.section}.{key}.{name}", table, "", found, slot) for name, table in rows]


def _owned(layout: Layout, slot: Slot) -> None:
    """Tables without a type that are the arguments of a class which only the part around them builds."""
    line = (f"{slot.part.module}.{slot.part.name}", *slot.part.bases) if slot.part else ()
    for (path, key), default in OWN_TYPES.items():
        inner = entry(slot.table, key, None)
        if path in line and is_table(inner):
            found = look(default, layout.roots)
            if isinstance(found, Part):
                layout.slots.append(Slot(f"{slot.section}.{key}", inner, "", found, slot))


def _named_code(layout: Layout, slot: Slot) -> None:
    """Functions and classes that a table names by their import path alone: `fn = "src.text.split"`."""
    for key in NAMES_CODE:
        dotted = entry(slot.table, key, None)
        ours = slot.part.ours if slot.part else slot.kind == ""
        if isinstance(dotted, str) and ours:
            found = look(dotted, layout.roots)
            if isinstance(found, Gap) and found.reason not in ("unreadable", "syntax"):
                why = "it is not an import path" if found.reason == "form" else found.message
                _wrong(layout, f"{key} = {dotted!r}: {why}", where(slot.table, key), slot.section, found.hint)


def _inner_tables(value: Any, section: str, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    rows = entries(value) if is_table(value) else enumerate(value)
    for key, item in rows:
        if isinstance(item, dict | list) and key not in skip:
            path = f"{section}.{key}"
            if isinstance(item, dict) and has(item, "type"):
                yield path, item
            yield from _inner_tables(item, path)


def _add(layout: Layout, slot: Slot, fallback: str = "") -> None:
    """Looks the part of a slot up, and notes what is wrong with its `type`."""
    layout.slots.append(slot)
    place = where(slot.table, "type") or where(slot.table) or fallback
    if not has(slot.table, "type") and slot.section not in DEFAULT_TYPES:
        hint = f'write type = "package.module.Class"; `alchemy parts {_slug(slot.kind)}` lists what there is'
        _wrong(layout, f"{_article(slot.kind)} needs a 'type'", place, slot.section, hint)
        return
    dotted = entry(slot.table, "type", DEFAULT_TYPES.get(slot.section))
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
    if kind in part.kinds or not part.complete or (kind == "model" and part.is_module):
        return ""
    if kind in ("optim", "loss") and part.module.startswith("torch."):
        return "" if kind == "loss" or part.is_a("Optimizer") else "not an optimiser"
    if kind == "loss" and not part.kinds:
        return ""  # any callable or nn.Module of the project
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


# -- reading a tree without counting as a reader


def is_table(value: Any) -> bool:
    return isinstance(value, dict)


def has(table: Any, key: str) -> bool:
    return dict.__contains__(table, key)


def entry(table: Any, key: str, default: Any = None) -> Any:
    return dict.get(table, key, default)


def entries(table: Any) -> list[tuple[str, Any]]:
    return list(dict.items(table))


def where(table: Any, key: str = "") -> str:
    find = getattr(table, "where", None)
    return str(find(key)) if callable(find) else ""
