"""The defaults in effect: what every part of a config gets without the config saying so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alchemy.config.slots import collect_slots
from alchemy.config.source import Sources
from alchemy.config.tables import GIVEN
from alchemy.config.tree import Document


def defaults(doc: Document, roots: Sequence[str] = (".",)) -> Iterator[tuple[str, str, dict[str, str]]]:
    """`(section, part, {parameter: default})` of each part with typed parameters that leaves some to their defaults."""
    for slot in collect_slots(doc, Sources(roots)).slots:
        if slot.part is None or slot.part.old_style:
            continue
        hidden = {"type", "datapipe", *GIVEN.get(slot.kind, ())}
        left = [param for param in slot.part.params if not param.required and param.name not in slot.table]
        values = {param.name: param.default for param in left if param.name not in hidden}
        if values:
            yield slot.section, slot.name, values


def rendered(doc: Document, roots: Sequence[str] = (".",)) -> str:
    """One line a part: `optim AdamW: eps = 1e-08, amsgrad = False`."""
    rows = (
        (section, name, ", ".join(f"{k} = {v}" for k, v in values.items()))
        for section, name, values in defaults(doc, roots)
    )
    return "\n".join(f"{section} {name}: {text}" for section, name, text in rows)
