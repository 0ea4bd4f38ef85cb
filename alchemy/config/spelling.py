"""Old spellings that are still understood, with one warning each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from alchemy.config.merge import brief
from alchemy.config.tree import Array, Document, Origin, Table
from alchemy.errors import Problem


@dataclass(frozen=True)
class Old:
    """A key that was renamed. `section` is a table or a list of parts; "" is the top level."""

    section: str
    old: str
    new: str


OLD_SPELLINGS = (
    Old("sched", "lr_warmup_steps", "num_warmup_steps"),
    Old("plugins", "use_determininstic_algorithms", "use_deterministic_algorithms"),
)

# keys that do nothing at the top level
MISPLACED = {
    "use_determininstic_algorithms": "write use_deterministic_algorithms in the table of alchemy.plugins.Seeding",
    "use_deterministic_algorithms": "write it in the table of alchemy.plugins.Seeding",
}


def rename(layer: Table) -> None:
    """Gives the old spellings of one layer their new names, so that what a later layer says goes before it."""
    for row in OLD_SPELLINGS:
        for table in _tables(layer.get(row.section), row.section):
            if row.old in table and row.new not in table:
                _rename(table, row)


def respell(doc: Document) -> list[Problem]:
    """Settles the old spellings of a whole config, and tells of each."""
    notes = []
    rename(doc)
    for row in OLD_SPELLINGS:
        found = doc.get(row.section)
        for index, table in enumerate(_tables(found, row.section)):
            section = f"{row.section}.{index}" if isinstance(found, Array) else row.section
            notes += [_note(row, place, section, use) for place, use in _settle(table, row)]
    for key, hint in MISPLACED.items():
        if key in doc:
            notes.append(Problem(f"{key!r} does nothing here", doc.where(key), hint=hint, error=False))
    return notes


def modern(override: str) -> str:
    """An override with its key in the spelling of today: `sched.lr_warmup_steps=5` sets `sched.num_warmup_steps`."""
    key, equals, value = override.partition("=")
    names = key.strip().split(".")
    for row in OLD_SPELLINGS:
        if names[0].removeprefix("~") == row.section and names[-1] == row.old:
            return ".".join([*names[:-1], row.new]) + equals + value
    return override


def _tables(found: Any, section: str) -> list[Table]:
    """The tables of a section: itself, or its parts, which a delta gives by name."""
    if isinstance(found, Table) and section != "plugins":
        return [found]
    items = [item for _, item in found.items()] if isinstance(found, Table) else found
    if not isinstance(items, list):
        return []
    # an empty table in place of what is none keeps the numbers of the others
    return [item if isinstance(item, Table) else Table() for item in items]


def _rename(table: Table, row: Old) -> None:
    """In its place, so that the order of the keys stays."""
    entries = [(key, item, table.origin_of(key)) for key, item in table.items()]
    table.clear()
    for key, item, origin in entries:
        if key == row.old:
            key, origin = row.new, replace(origin, spelt=row.old)
        table.put(key, item, origin)


def _settle(table: Table, row: Old) -> list[tuple[str, str]]:
    """Where the old name was used in a table, and what becomes of it there."""
    if row.new not in table:
        return []
    value, top = table.get(row.new), table.origin_of(row.new)
    story = list(_story(top))
    places = [(str(o), _use(value, row, last=o is top)) for o in story if o.spelt == row.old]
    kind = table.get("type")
    # a project's own part may read the old name itself, so there it is kept beside the new one
    keep = isinstance(kind, str) and not kind.startswith("alchemy.")
    if row.old in table:
        places.append((table.where(row.old), _use(value, row, last=table.get(row.old) == value)))
        if not keep:
            del table[row.old]
    if any(origin.spelt == row.old for origin in story):
        table.origins[row.new] = _told(top)
        if keep:
            table.put(row.old, value, _told(top))
    return places


def _story(origin: Origin | None) -> Iterator[Origin]:
    while origin is not None:
        yield origin
        origin = origin.overrode


def _told(origin: Origin) -> Origin:
    """An origin that no longer asks for a warning, for a config that is prepared again."""
    return replace(origin, spelt="", overrode=_told(origin.overrode) if origin.overrode else None)


def _use(value: Any, row: Old, *, last: bool) -> str:
    return f"its value {brief(value)} is used" if last else f"{row.new!r} is given too, and used"


def _note(row: Old, where: str, section: str, use: str) -> Problem:
    message = f"{row.old!r} is the old spelling of {row.new!r}; {use}"
    return Problem(message, where, section, hint=f"rename it to {row.new!r}", error=False)
