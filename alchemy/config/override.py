"""Apply command-line overrides: `--set optim.lr=1e-3`, `--set plugins.FileLogger.log_dir=x`, `--set ~optim.eps`.

A value is parsed as TOML if possible, otherwise as plain text, and converted to the type of the value it replaces if
this is lossless (1 for a float becomes 1.0, 3 for a string becomes "3"). `~key` and `key={ delete = true }` delete a
key; `false` deletes a list element. A table whose `type` is not in the list is appended. `none` means None.
"""

from __future__ import annotations

from typing import Any

from alchemy.config.known_tables import OTHER_COMMANDS, SECTIONS
from alchemy.config.line_numbers import Path, split_key
from alchemy.config.merge import (
    DATASETS,
    LIKE,
    assign,
    compose,
    find_element,
    find_key,
    is_deletion,
    mark_as_set,
    record_type_change,
)
from alchemy.config.secrets import hide_words
from alchemy.config.tree import COMMAND_LINE, Array, Document, Table
from alchemy.config.values import decode, dotted_key, literal
from alchemy.errors import Problem, did_you_mean

# tables that the command line may create if the file does not have them
_TABLES = (*SECTIONS, *OTHER_COMMANDS)

_READ_EARLIER = {
    "base": "write a config with that base",
    "variant": "name the variant after the file: train.toml#NAME",
}

_DELETION = {"delete": True}
_PYTHON_LITERALS = {"True": True, "False": False, "None": None, "none": None, "null": None}


class CannotSet(Exception):
    """Raised if an override cannot be applied."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def override(doc: Document, text: str) -> list[Problem]:
    """Apply one `key=value` to a document and return the problems; `check` reports keys that no part uses."""
    try:
        keys, value = _split(text)
        if keys[0] in _READ_EARLIER and keys[0] not in doc:  # a project may have a regular key with that name
            raise CannotSet(f"{keys[0]} is read before overrides are applied", _READ_EARLIER[keys[0]])
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


def parse_value(text: str, old: object) -> Any:
    """Parse `text` as a replacement for `old`; raise CannotSet if the types do not match."""
    text, bare = text.strip(), False
    try:
        value = decode(literal(text), path=("value",))
    except ValueError:
        value = _PYTHON_LITERALS.get(text, text)
        bare = isinstance(value, str)
    if value is None or isinstance(value, dict):
        return value
    if isinstance(old, bool):
        if value in (0, 1):
            return bool(value)
        raise CannotSet(f"expected true or false, got {text!r}", "write true or false")
    if isinstance(old, int | float):
        if bare or isinstance(value, bool):
            raise CannotSet(f"expected a number such as {old}, got {text!r}", f"strings need quotes: '\"{text}\"'")
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
    """Split an override into keys and value; a value of None means deletion."""
    if text.startswith("~"):
        split = split_key(text[1:])
        if split and not split[1]:
            return split[0], None
        raise CannotSet("expected a key to delete", "write ~table.key")
    split = split_key(text)
    keys, rest = split if split else ([], "")
    if not rest.startswith("="):
        left, sign, right = text.partition("=")
        keys, rest = [part.strip() for part in left.split(".")], sign + right
    if not rest or not all(keys):
        raise CannotSet("expected key=value", "for example, optim.lr=0.001")
    if not rest[1:].strip():
        empty = f"an empty string is {dotted_key(tuple(keys))}='\"\"'; ~key deletes a key"
        raise CannotSet("no value after '='", empty)
    return keys, rest[1:]


def _walk(doc: Document, keys: list[str]) -> Table | Array:
    """Return the table or list that contains the last key, creating known top-level tables."""
    node: Any = doc
    for depth, key in enumerate(keys):
        path: Path = tuple(keys[:depth])
        if isinstance(node, Array):
            node = node[_index(node, key, path)]
        elif isinstance(node, Table) and key in node:
            mark_as_set(node, key)
            node = node.get(key)
        elif isinstance(node, Table):
            if depth or key not in _TABLES:
                raise _missing_key(node, key, path)
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


def _missing_key(table: Table, key: str, path: Path) -> CannotSet:
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
        raise _missing_key(parent, keys[-1], path)


def _set(parent: Table | Array, keys: list[str], text: str) -> None:
    key, path = keys[-1], tuple(keys)
    if isinstance(parent, Array):
        _set_element(parent, key, path, text)
        return
    value = _parse_for_key(text, parent.get(key), path)
    if value == _DELETION:
        _delete(parent, keys)
    else:
        if key == "type":  # all overrides form one layer, regardless of their order
            given = {name for name in parent if parent.origin_of(name).kind == COMMAND_LINE.kind}
            record_type_change(parent, {**dict.fromkeys(given), key: value})
        assign(parent, key, value, COMMAND_LINE)


def _set_element(array: Array, key: str, path: Path, text: str) -> None:
    """Change, add or delete an element of a list."""
    index = find_element(array, key, path[:-1], "")
    if isinstance(index, Problem):
        value = parse_value(text, None)
        if not isinstance(value, dict) or "type" not in value:
            raise CannotSet(index.message, index.hint)
        array.append(Table(value, origin=COMMAND_LINE))
        return
    value = _parse_for_key(text, array[index], path, part=True)
    if value == _DELETION:
        del array[index]
    else:
        array[index] = Table(value, origin=COMMAND_LINE) if isinstance(value, dict) else value


def _extends(doc: Document, keys: list[str]) -> bool:
    """Return whether a key belongs to a split that extends another split and is not merged yet."""
    inside = tuple(keys[:2]) == DATASETS and len(keys) > 3
    return inside and keys[3:] != [LIKE] and LIKE in doc.table("task").table("datasets").table(keys[2])


def _set_in_extension(doc: Document, keys: list[str], text: str | None) -> list[Problem]:
    """Merge the override into the delta of a split that extends another split."""
    problems: list[Problem] = []
    splits, path = doc.table("task").table("datasets"), tuple(keys)
    old = _inherited(splits, keys[2], keys[3:]) if keys[3:] != ["pipes"] else None  # a table patches the list
    value = _DELETION if text is None else _parse_for_key(text, old, path, part=keys[3] == "pipes")
    for key in reversed(keys[3:]):
        value = {key: value}
    compose(splits[keys[2]], Table(value, origin=COMMAND_LINE), problems, path[:3])
    return problems


def _inherited(splits: Table, name: object, keys: list[str]) -> object:
    """Return the value of a key in a split or in the splits it extends, or None if the key is not set."""
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


def _parse_for_key(text: str, old: object, path: Path, *, part: bool = False) -> Any:
    if isinstance(old, str) and old.startswith("${"):
        old = None  # the type of the referenced value is not known yet
    if "${" in text and isinstance(value := parse_value(text, None), str):
        return value
    value = parse_value(text, old)
    if part and value is False and isinstance(old, Table):
        return _DELETION
    if isinstance(old, Table) and old and not isinstance(value, dict) and value is not None and "dyn" not in old:
        raise CannotSet(f"{dotted_key(path)} is a table", f"set one of its keys: {', '.join(old)}")
    if isinstance(old, Array) and not isinstance(value, list | dict) and value is not None:
        name = dotted_key(path)
        raise CannotSet(f"{name} is a list", f"write {name}='[..]', or set one element: {name}.0=..")
    return value
