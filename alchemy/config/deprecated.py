"""Accept deprecated key names, with one warning for each."""

from __future__ import annotations

from collections.abc import Iterator

from alchemy.config.merge import format_brief
from alchemy.config.tree import Array, Document, Origin, Table, children
from alchemy.errors import Problem
from alchemy.moved import current_path

# section (a table, or a list of parts), old name, new name
_RENAMED = (
    ("sched", "lr_warmup_steps", "num_warmup_steps"),
    ("plugins", "use_determininstic_algorithms", "use_deterministic_algorithms"),
)

# keys that have no effect at the top level
_MISPLACED = {
    "use_determininstic_algorithms": "write use_deterministic_algorithms in the table of alchemy.plugins.Seeding",
    "use_deterministic_algorithms": "write it in the table of alchemy.plugins.Seeding",
}


def rename_keys(layer: Table, notes: list[Problem]) -> None:
    """Rename the deprecated keys of one layer, so that later layers override them."""
    _update_paths(layer)
    for section, old, new in _RENAMED:
        for place, table in _tables(layer.get(section), section):
            if old not in table or (new in table and _is_project_part(table)):
                continue
            use = f"{new!r} is also set and used" if new in table else f"its value {format_brief(table[old])} is used"
            message, hint = f"{old!r} is the old name of {new!r}; {use}", f"rename it to {new!r}"
            notes.append(Problem(message, table.where(old), place, hint, error=False))
            _rename(table, old, new)


def rename_in_document(doc: Document, notes: list[Problem]) -> None:
    """Rename deprecated keys in the document, but keep the old name too for a project's part, which may read it."""
    rename_keys(doc, notes)
    for section, old, new in _RENAMED:
        for _, table in _tables(doc.get(section), section):
            if new in table and _is_project_part(table) and any(o.spelt == old for o in _history(table.origin_of(new))):
                table.put(old, table[new], table.origin_of(new))
    for key, hint in _MISPLACED.items():
        if key in doc:
            notes.append(Problem(f"{key!r} has no effect here", doc.where(key), hint=hint, error=False))


def update_override(override: str) -> str:
    """Update the key of an override: `sched.lr_warmup_steps=5` sets `sched.num_warmup_steps`."""
    key, equals, value = override.partition("=")
    names = key.strip().split(".")
    for section, old, new in _RENAMED:
        if names[0].removeprefix("~") == section and names[-1] == old:
            return ".".join([*names[:-1], new]) + equals + value
    return override


def _update_paths(node: Table | Array) -> None:
    """Update the import paths of renamed modules without a warning, since a record cannot be edited."""
    for key, value in list(children(node)):
        if isinstance(value, Table | Array):
            _update_paths(value)
        elif isinstance(node, Table) and isinstance(value, str) and (path := current_path(value)) != value:
            node.put(str(key), path, node.origin_of(str(key)))


def _tables(found: object, section: str) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a section: the section itself, or each of its parts (keyed by name in a delta)."""
    if isinstance(found, Table) and section != "plugins":
        yield section, found
    elif isinstance(found, Table | Array):
        for name, item in children(found):
            if isinstance(item, Table):
                yield f"{section}.{name}", item


def _is_project_part(table: Table) -> bool:
    kind = table.get("type")
    return isinstance(kind, str) and not kind.startswith("alchemy.")


def _rename(table: Table, old: str, new: str) -> None:
    """Rename a key in place, preserving the order of the keys."""
    rows = [(key, item, table.origin_of(key)) for key, item in table.items() if key != old or new not in table]
    table.clear()
    for key, item, origin in rows:
        table.put(*((new, item, origin._replace(spelt=old)) if key == old else (key, item, origin)))


def _history(origin: Origin | None) -> Iterator[Origin]:
    while origin is not None:
        yield origin
        origin = origin.overrode
