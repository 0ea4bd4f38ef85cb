"""Merge config layers: a file over its bases, a variant over the file.

Tables merge key by key. A table merged into a list patches its parts by index, by `type` or by the last component of
`type` (`[variant.x.plugins.FileLogger]`); a table whose `type` matches no part is added.
`key = { delete = true }` removes a key or a part, `Part = false` removes a part, and `delete = "others"` removes all
keys that the table does not mention. A split that is `like` another split stays a delta until `extend` merges the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alchemy.config.line_numbers import Path
from alchemy.config.tree import Array, Origin, Table, copy_tree
from alchemy.config.values import dotted_key
from alchemy.errors import Problem, did_you_mean
from alchemy.registry import plain

DATASETS: Path = ("task", "datasets")  # path of the split tables
LIKE = "like"  # the key that names the split to extend
IF_THERE = "if there"  # `{ delete = "if there" }` does nothing if there is nothing to delete


def merge(table: Table, delta: Table, problems: list[Problem], path: Path = ()) -> None:
    """Merge `delta` into `table` in place and add errors to `problems`; `delta` is not changed."""
    if delta.get("delete") == "others":
        for key in [key for key in table if key not in delta]:
            del table[key]
    record_type_change(table, delta)
    splits = path == DATASETS
    for key, value in delta.items():
        if key == "delete" and value == "others":
            continue
        if splits and isinstance(value, Table) and (LIKE in value or LIKE in table.table(key)):
            if not isinstance(table.get(key), Table):
                assign(table, key, Table(origin=value.origin), delta.origin_of(key))
            compose(table[key], value, problems, (*path, key))
            continue
        if key not in table and not isinstance(value, Table):
            _add(table, key, copy_tree(value), delta)
            continue
        old, here = table.get(key), (*path, key)
        mark_as_set(table, key)
        if is_deletion(value):
            if key in table:
                del table[key]
            elif value["delete"] != IF_THERE:
                hint = did_you_mean(key, table)
                message = f"cannot delete {dotted_key(here)}: no such key"
                problems.append(Problem(message, delta.where(key), hint=hint))
        elif isinstance(value, Table) and isinstance(old, Array) and "dyn" not in value:
            _patch(old, value, problems, here)
        elif isinstance(value, Table) and "dyn" not in value:
            if key not in table and not deletes(value):
                _add(table, key, copy_tree(value), delta)
                continue
            if key not in table:
                _add(table, key, Table(origin=value.origin), delta)
            elif not isinstance(old, Table):
                assign(table, key, Table(origin=value.origin), delta.origin_of(key))
            merge(table[key], value, problems, here)
        else:
            assign(table, key, copy_tree(value), delta.origin_of(key))


def record_type_change(table: Table, delta: Mapping[str, Any]) -> None:
    """Record which keys of a table were set for a `type` other than the one in `delta`."""
    old, new = table.get("type"), delta.get("type")
    if not isinstance(old, str) or not isinstance(new, str) or old == new:
        return
    short = "." not in old or "." not in new  # AdamW may be short for alchemy.optim.AdamW
    if not (short and old.rpartition(".")[2] == new.rpartition(".")[2]):
        left = {key: old for key in table if key not in delta}
        table.former = left | dict(table.former)


def mark_as_set(table: Table, key: str) -> None:
    """Record that a layer sets a key, so that the key belongs to the current type of the table."""
    if key in table.former:
        table.former = {name: old for name, old in table.former.items() if name != key}


def compose(table: Table, delta: Table, problems: list[Problem], path: Path = ()) -> None:
    """Merge one delta into another in place, before their base is known, keeping deletions."""
    if delta.get("delete") == "others":
        for key in [key for key in table if key not in delta]:
            del table[key]
    for key, value in delta.items():
        old = table.get(key)
        if is_deletion(value, old):
            if key == LIKE and len(path) == len(DATASETS) + 1:
                table.pop(key, None)
            elif key not in table:
                assign(table, key, copy_tree(value), delta.origin_of(key))
            elif not is_deletion(old):
                # the base need not contain the key that the older delta adds
                assign(table, key, Table({"delete": IF_THERE}), delta.origin_of(key))
        elif isinstance(value, Table) and isinstance(old, Array) and "dyn" not in value:
            _patch(old, value, problems, (*path, key))
        elif isinstance(value, Table) and isinstance(old, Table) and "dyn" not in value and not is_deletion(old):
            compose(old, value, problems, (*path, key))
        else:
            assign(table, key, copy_tree(value), delta.origin_of(key))


def _add(table: Table, key: str, value: object, delta: Table) -> None:
    """Add a new key from `delta` to a table; its origin is stored only if it differs from the table's."""
    dict.__setitem__(table, key, value)
    if table.origin is delta.origin and key not in delta.origins:
        table.origins.pop(key, None)
    else:
        table.origins[key] = delta.origin_of(key)


def _patch(array: Array, delta: Table, problems: list[Problem], path: Path) -> None:
    """Change, add and delete parts of a list."""
    doomed = []
    for name, value in delta.items():
        origin, here = delta.origin_of(name), (*path, name)
        index = find_element(array, name, path, str(origin))
        if isinstance(index, Problem):
            if isinstance(value, Table) and "type" in value:
                array.append(copy_tree(value))
            elif value != {"delete": IF_THERE}:
                problems.append(index)
        elif is_deletion(value, array[index]):
            doomed.append(index)
        elif isinstance(value, Table) and isinstance(array[index], Table):
            merge(array[index], value, problems, here)
        else:
            array[index] = copy_tree(value)
            # a list has one origin for all its plain values: one trusted value must not make the others trusted
            array.origin = origin._replace(foreign=origin.foreign or array.origin.foreign)
    for index in sorted(doomed, reverse=True):
        del array[index]


def find_element(array: Array, name: str, path: Path, where: str) -> int | Problem:
    """Return the index of the element with this `name`: an index, a `type`, or the last component of a `type`."""
    if name.isdecimal() and int(name) < len(array):
        return int(name)
    full = [item.get("type") if isinstance(item, Table) else None for item in array]
    known = [kind if isinstance(kind, str) else "" for kind in full]
    for names in (known, short := [kind.rpartition(".")[2] for kind in known]):
        if name and names.count(name) == 1:
            return names.index(name)
    if name in known or name in short:
        places = [f"{dotted_key(path)}.{index}" for index, kind in enumerate(short) if name in (kind, known[index])]
        text = f"{dotted_key(path)} has {len(places)} parts named {name}"
        return Problem(text, where, hint=f"write {' or '.join(places)}")
    offer = f"it has {', '.join(filter(None, short)) or f'{len(array)} elements, numbered from 0'}"
    offer += "" if name.isdecimal() else f"; to add a part, set its type: {dotted_key((*path, name))}.type"
    return Problem(f"the list {dotted_key(path)} has no {name!r}", where, hint=did_you_mean(name, short) or offer)


def find_key(node: object, name: str, path: Path, where: str) -> str | int | Problem:
    """Return the key or index of `name` in `node`, which is at `path`."""
    if isinstance(node, Array):
        return find_element(node, name, path, where)
    if not isinstance(node, Table):
        return Problem(f"{dotted_key(path)} is a value and has no keys", where)
    if name in node:
        return name
    place = f"[{dotted_key(path)}]" if path else "the config"
    return Problem(f"{place} has no {name!r}", where, hint=did_you_mean(name, node) or f"it has {', '.join(node)}")


def assign(table: Table, key: str, value: object, origin: Origin) -> None:
    """Set a key and record in its origin what it overrode."""
    mark_as_set(table, key)
    if key in table:
        before = table.origin_of(key)
        origin = origin._replace(overrode=before._replace(value_text=format_brief(table.get(key))))
    table.put(key, value, origin)


def is_deletion(value: object, old: object = None) -> bool:
    """Return whether a value marks a deletion; `false` does if it replaces a table."""
    if isinstance(value, Table):
        return value in ({"delete": True}, {"delete": IF_THERE})
    return value is False and isinstance(old, Table)


def deletes(table: Table) -> bool:
    """Return whether a table contains any deletion."""
    return "delete" in table or any(isinstance(item, Table) and deletes(item) for item in table.values())


def format_brief(value: object, width: int = 60) -> str:
    """Format a value on one short line."""
    from alchemy.config.toml_writer import format_inline

    text = format_inline(plain(value))
    return text if len(text) <= width else f"{text[: width - 3]}..."
