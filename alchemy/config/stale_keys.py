"""Drop keys left over from a previous `type` that the new part does not accept, with a note."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alchemy.config.check_keys import refused_keys
from alchemy.config.part_slots import collect_slots
from alchemy.config.part_source import Sources
from alchemy.config.tree import Array, Document, Table, children, is_flat
from alchemy.errors import Problem


def drop_stale_keys(doc: Document, roots: Sequence[str], notes: list[Problem]) -> None:
    """Drop keys that were set for another part; keep them if the source of the new part cannot be read."""
    if not any(table.former for table in _tables(doc)):
        return
    layout = collect_slots(doc, Sources(roots))
    for slot in layout.slots:
        left = [key for key in refused_keys(slot, layout) if key in slot.table.former] if slot.table.former else []
        if left:
            before = " or ".join(dict.fromkeys(slot.table.former[key].rpartition(".")[2] for key in left))
            text = f"type changed from {before} to {slot.name}; dropped {', '.join(left)}"
            notes.append(Problem(text, slot.table.where("type"), slot.section, error=False, note=True))
        for key in left:
            del slot.table[key]


def _tables(node: Table | Array) -> Iterator[Table]:
    if isinstance(node, Table):
        yield node
    elif is_flat(node):
        return
    for _, item in children(node):
        if isinstance(item, Table | Array):
            yield from _tables(item)
