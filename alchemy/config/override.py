"""Settings from the command line: `--set optim.lr=1e-3`, `--set plugins.FileLogger.log_dir=x`, `--set ~optim.eps`.

A value is a TOML value, or else plain text; it takes the type of what it replaces where that loses nothing
(1 for a float is 1.0, 3 for a text is "3"). `~key` and `key={ delete = true }` delete, and so does `false` a part of
a list; a table with a `type` that names no part of the list is added. `none` is None.
"""

from __future__ import annotations

from typing import Any

from alchemy.config.known_tables import LATER, SECTIONS
from alchemy.config.line_numbers import Path, split_key
from alchemy.config.merge import (
    DATASETS,
    LIKE,
    assign,
    compose,
    find_element,
    find_key,
    is_deletion,
    mention,
    note_type,
)
from alchemy.config.secrets import hide_words
from alchemy.config.tree import COMMAND_LINE, Array, Document, Table
from alchemy.config.values import decode, dotted_key, literal
from alchemy.errors import Problem, did_you_mean

# tables that may be opened from the command line though the file has none
_TABLES = (*SECTIONS, *LATER)

_READ_BEFORE = {
    "base": "write a config of your own with that base",
    "variant": "name the variant after the file: train.toml#NAME",
}

_DELETION = {"delete": True}
_WORDS = {"True": True, "False": False, "None": None, "none": None, "null": None}


class CannotSet(Exception):
    """Why an override cannot be applied."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def override(doc: Document, text: str) -> list[Problem]:
    """Applies one `key=value` to a document, or tells why not; the check tells whether anybody reads the key."""
    try:
        keys, value = _split(text)
        if keys[0] in _READ_BEFORE and keys[0] not in doc:  # a project may have a plain key of that name
            raise CannotSet(f"{keys[0]} is read before overrides", _READ_BEFORE[keys[0]])
        if _extends(doc, keys):
            return _set_in_extension(doc, keys, value)
        parent = _walk(doc, keys[:-1])
        if value is None:
            _delete(parent, keys)
        else:
            if len(keys) == 1 and keys[0] not in doc:
                doc.added[keys[0]] = value
            _set(parent, keys, value)
    except CannotSet as error:
        (shown,) = hide_words([text])
        return [Problem(str(error), f"--set {shown}", hint=error.hint)]
    return []


def typed(text: str, old: object) -> Any:
    """The value that `text` means where `old` stands; CannotSet if it cannot stand there."""
    text, bare = text.strip(), False
    try:
        value = decode(literal(text), path=("value",))
    except ValueError:
        value = _WORDS.get(text, text)
        bare = isinstance(value, str)
    if value is None or isinstance(value, dict):
        return value
    if isinstance(old, bool):
        if value in (0, 1):
            return bool(value)
        raise CannotSet(f"{text!r} stands where true or false did", "write true or false")
    if isinstance(old, int | float):
        if bare or isinstance(value, bool):
            raise CannotSet(f"{text!r} stands where the number {old} did", f"text needs quotes: '\"{text}\"'")
        if isinstance(value, int | float):
            return _number(value, old)
    if isinstance(old, str) and not isinstance(value, list):
        return value if isinstance(value, str) else text
    return value


def _number(value: float, old: float) -> float:
    if isinstance(old, float):
        return float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _split(text: str) -> tuple[list[str], str | None]:
    """The keys and the value's text; None for a value means: delete."""
    if text.startswith("~"):
        split = split_key(text[1:])
        if split and not split[1]:
            return split[0], None
        raise CannotSet("this is not a key to delete", "write ~table.key")
    split = split_key(text)
    keys, rest = split if split else ([], "")
    if not rest.startswith("="):
        left, sign, right = text.partition("=")
        keys, rest = [part.strip() for part in left.split(".")], sign + right
    if not rest or not all(keys):
        raise CannotSet("this is not key=value", "write it like optim.lr=0.001")
    if not rest[1:].strip():
        empty = f"empty text is {dotted_key(tuple(keys))}='\"\"'; ~key deletes a key"
        raise CannotSet("nothing stands after '='", empty)
    return keys, rest[1:]


def _walk(doc: Document, keys: list[str]) -> Table | Array:
    """The table or list in which the last key stands."""
    node: Any = doc
    for depth, key in enumerate(keys):
        path: Path = tuple(keys[:depth])
        if isinstance(node, Array):
            node = node[_index(node, key, path)]
        elif isinstance(node, Table) and key in node:
            mention(node, key)
            node = node.get(key)
        elif isinstance(node, Table):
            if depth or key not in _TABLES:
                raise _no_such(node, key, path)
            assign(node, key, Table(origin=COMMAND_LINE), COMMAND_LINE)
            node = node.get(key)
        if not isinstance(node, Table | Array):
            raise CannotSet(f"{dotted_key((*path, key))} is a value and has no keys")
    return node


def _index(array: Array, key: str, path: Path) -> int:
    index = find_element(array, key, path, "")
    if isinstance(index, Problem):
        raise CannotSet(index.message, index.hint)
    return index


def _no_such(table: Table, key: str, path: Path) -> CannotSet:
    names = [*table, *(_TABLES if not path else ())]
    place = f"[{dotted_key(path)}]" if path else "the config"
    return CannotSet(f"{place} has no {key!r}", did_you_mean(key, names) or f"it has {', '.join(table) or 'nothing'}")


def _delete(parent: Table | Array, keys: list[str]) -> None:
    path: Path = tuple(keys[:-1])
    if isinstance(parent, Array):
        del parent[_index(parent, keys[-1], path)]
    elif keys[-1] in parent:
        del parent[keys[-1]]
    else:
        raise _no_such(parent, keys[-1], path)


def _set(parent: Table | Array, keys: list[str], text: str) -> None:
    key, path = keys[-1], tuple(keys)
    if isinstance(parent, Array):
        _set_element(parent, key, path, text)
        return
    value = _fitting(text, parent.get(key), path)
    if value == _DELETION:
        _delete(parent, keys)
    else:
        if key == "type":  # what the command line gives is one layer, in any order
            given = {name for name in parent if parent.origin_of(name).kind == COMMAND_LINE.kind}
            note_type(parent, {**dict.fromkeys(given), key: value})
        assign(parent, key, value, COMMAND_LINE)


def _set_element(array: Array, key: str, path: Path, text: str) -> None:
    """Changes, adds or deletes a part of a list."""
    index = find_element(array, key, path[:-1], "")
    if isinstance(index, Problem):
        value = typed(text, None)
        if not isinstance(value, dict) or "type" not in value:
            raise CannotSet(index.message, index.hint)
        array.append(Table(value, origin=COMMAND_LINE))
        return
    value = _fitting(text, array[index], path, part=True)
    if value == _DELETION:
        del array[index]
    else:
        array[index] = Table(value, origin=COMMAND_LINE) if isinstance(value, dict) else value


def _extends(doc: Document, keys: list[str]) -> bool:
    """Whether a key is one of a split that is like another one, which is not known yet."""
    inside = tuple(keys[:2]) == DATASETS and len(keys) > 3
    return inside and keys[3:] != [LIKE] and LIKE in doc.table("task").table("datasets").table(keys[2])


def _set_in_extension(doc: Document, keys: list[str], text: str | None) -> list[Problem]:
    """Lays the setting over what the split says about the one that it is like."""
    problems: list[Problem] = []
    splits, path = doc.table("task").table("datasets"), tuple(keys)
    old = _inherited(splits, keys[2], keys[3:]) if keys[3:] != ["pipes"] else None  # a list for what patches one
    value = _DELETION if text is None else _fitting(text, old, path, part=keys[3] == "pipes")
    for key in reversed(keys[3:]):
        value = {key: value}
    compose(splits[keys[2]], Table(value, origin=COMMAND_LINE), problems, path[:3])
    return problems


def _inherited(splits: Table, name: object, keys: list[str]) -> object:
    """What stands at a key of a split or else of the one that it is like; None where nothing does."""
    seen: list[object] = []
    while isinstance(name, str) and name not in seen:
        seen.append(name)
        node: Any = splits.table(name)
        for key in keys:
            found = find_key(node, key, (), "")
            node = None if isinstance(found, Problem) else node[found]
        if node is not None and not is_deletion(node):
            return node
        name = splits.table(name).get(LIKE)
    return None


def _fitting(text: str, old: object, path: Path, *, part: bool = False) -> Any:
    if isinstance(old, str) and old.startswith("${"):
        old = None  # the type of what it refers to is not known yet
    if "${" in text and isinstance(value := typed(text, None), str):
        return value
    value = typed(text, old)
    if part and value is False and isinstance(old, Table):
        return _DELETION
    if isinstance(old, Table) and old and not isinstance(value, dict) and value is not None and "dyn" not in old:
        raise CannotSet(f"{dotted_key(path)} is a table", f"set one of its keys: {', '.join(old)}")
    if isinstance(old, Array) and not isinstance(value, list | dict) and value is not None:
        name = dotted_key(path)
        raise CannotSet(f"{name} is a list", f"write {name}='[..]', or set one element: {name}.0=..")
    return value
