"""Old spellings that are still understood, with one warning each."""

from __future__ import annotations

from dataclasses import dataclass

from alchemy.config.merge import brief, has
from alchemy.config.tree import Array, Document, Table
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


def respell(doc: Document) -> list[Problem]:
    """Gives every old spelling its new name, and tells of it."""
    notes = []
    for row in OLD_SPELLINGS:
        found = doc.peek(row.section)
        for index, table in enumerate(found if isinstance(found, Array) else [found]):
            if isinstance(table, Table) and has(table, row.old):
                section = f"{row.section}.{index}" if isinstance(found, Array) else row.section
                notes.append(_rename(table, row, section))
    for key, hint in MISPLACED.items():
        if has(doc, key):
            notes.append(Problem(f"{key!r} does nothing here", doc.where(key), hint=hint, error=False))
    return notes


def modern(override: str) -> str:
    """An override with its key in the spelling of today: `sched.lr_warmup_steps=5` sets `sched.num_warmup_steps`."""
    key, equals, value = override.partition("=")
    names = key.strip().split(".")
    for row in OLD_SPELLINGS:
        if names[0] == row.section and names[-1] == row.old:
            return ".".join([*names[:-1], row.new]) + equals + value
    return override


def _rename(table: Table, row: Old, section: str) -> Problem:
    where, value, kind = table.where(row.old), table.peek(row.old), table.peek("type")
    # a project's own part may read the old name itself, so there it is kept beside the new one
    keep = isinstance(kind, str) and not kind.startswith("alchemy.")
    use = f"its value {brief(value)} is used"
    if has(table, row.new) and table.peek(row.new) != value:
        use = f"{row.new!r} is given too, and used"
    if has(table, row.new):
        if not keep:
            del table[row.old]
    else:
        entries = [(key, item, table.origins.get(key, table.origin)) for key, item in table.entries()]
        table.clear()
        for key, item, origin in entries:
            table.put(row.new if key == row.old else key, item, origin)
            if keep and key == row.old:
                table.put(key, item, origin)
    message = f"{row.old!r} is the old spelling of {row.new!r}; {use}"
    return Problem(message, where, section, hint=f"rename it to {row.new!r}", error=False)
