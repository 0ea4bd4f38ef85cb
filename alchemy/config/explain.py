"""Explain where the values of a config come from, and how two configs differ."""

from __future__ import annotations

import os
import sys
from typing import Any

from alchemy.config.dynamic_values import SEEDLESS, part_names
from alchemy.config.known_tables import DEFAULT_TYPES
from alchemy.config.line_numbers import Path, split_key
from alchemy.config.merge import find_element, find_key, format_brief
from alchemy.config.references import keys_in
from alchemy.config.secrets import conceal, mask_value, without_secrets
from alchemy.config.seed import seed_of
from alchemy.config.toml_writer import is_same
from alchemy.config.tree import Array, Document, Origin, Table
from alchemy.config.values import dotted_key
from alchemy.errors import AlchemyError, Problem, did_you_mean
from alchemy.registry import plain

_ABSENT: Any = object()


def explain(doc: Document, key: str) -> str:
    """Describe a key: its value, where it was set, and which values it overrode."""
    split = split_key(key)
    keys = split[0] if split and not split[1] else key.split(".")
    if keys[:2] == ["task", "data"] and doc.written:
        hint = "use task.datasets.train, or one of its keys such as task.datasets.train.pipes.0.path"
        raise AlchemyError("[task.data] was expanded into the tables of [task.datasets]", hint=hint)
    node: Any = doc
    origin = doc.origin
    path: Path = ()
    for name in keys:
        if isinstance(node, Table) and name in node:
            origin, node = node.origin_of(name), node.get(name)
            path = (*path, name)
        elif isinstance(node, Array):
            index = find_element(node, name, path, "")
            if isinstance(index, Problem):
                raise AlchemyError(index.message, hint=index.hint)
            node, path = node[index], (*path, index)
            origin = node.origin if isinstance(node, Table) else origin
        else:
            return _explain_default(node, name, path, last=name == keys[-1] and len(path) == len(keys) - 1)
    name = str(path[-1])
    inner = isinstance(node, Table | Array)
    value = without_secrets(Table({name: node}))[name] if inner else mask_value(name, plain(node))
    lines = [f"{dotted_key(path)} = {format_brief(value, 200)}", f"  {_describe_source(doc, dotted_key(path), origin)}"]
    before = origin.overrode
    while before is not None:
        lines.append(f"  overrode {mask_value(name, before.value_text) or 'another value'}{_format_origin(before)}")
        before = before.overrode
    return "\n".join(lines)


def _describe_target(doc: Document, keys: list[str]) -> str:
    """Describe a referenced key and where its value was set."""
    node: Any = doc
    path: Path = ()
    origin = Origin()
    for name in keys:
        key = find_key(node, name, path, "")
        if isinstance(key, Problem):  # removed after the reference was resolved
            return dotted_key(tuple(keys))
        origin = node.origin_of(str(key)) if isinstance(node, Table) else node.origin
        node, path = node[key], (*path, key)
        origin = node.origin if isinstance(node, Table) and isinstance(key, int) else origin
    return f"{dotted_key(path)}{_format_origin(origin)}"


def diff(a: Document, b: Document) -> str:
    """Describe how two configs differ, one line per key, or state that they are identical."""
    names = [doc.path or f"the {place}" for doc, place in ((a, "first"), (b, "second"))]
    names = [f"{name}#{doc.variant}" if doc.variant else name for name, doc in zip(names, (a, b), strict=True)]
    rows = differences(a, b)
    if not rows:
        drawn = "; each draws its own seed" if _has_drawn_seed(a) else ""
        return f"identical: {names[0]} and {names[1]} resolve to the same config{drawn}"
    lines, (one, other) = [], map(_walk, (a, b))
    for key, left, right in rows:
        if key in one and key in other:
            before, after = (_format_origin(walked[key][1]) for walked in (one, other))
            lines.append(f"{key}: {format_brief(left)}{before} -> {format_brief(right)}{after}")
        else:
            name, value, (_, origin) = (names[0], left, one[key]) if key in one else (names[1], right, other[key])
            lines.append(f"{key}: only in {name}: {format_brief(value)}{_format_origin(origin)}")
    return "\n".join(lines)


def differences(a: Document, b: Document) -> list[tuple[str, Any, Any]]:
    """Return `(key, value in a, value in b)` for each difference, with secrets masked and drawn seeds ignored."""
    one, other = ({key: plain(value) for key, (value, _) in _walk(doc).items()} for doc in (a, b))
    rows = []
    for key in dict.fromkeys([*one, *other]):
        left, right = one.get(key, _ABSENT), other.get(key, _ABSENT)
        if is_same(left, right) or (key == "seed" and _has_drawn_seed(a) and _has_drawn_seed(b)):
            continue
        left, right, same_secret = conceal(key, left, right)
        if not same_secret:
            rows.append((key, left, right))
    return rows


def _walk(doc: Document) -> dict[str, tuple[Any, Origin]]:
    """Collect all non-table values by dotted key, using names instead of indices for list elements."""
    found: dict[str, tuple[Any, Origin]] = {}

    def visit(node: object, path: Path, origin: Origin) -> None:
        if isinstance(node, Table) and node:
            for key, value in node.items():
                visit(value, (*path, key), node.origin_of(key))
        elif isinstance(node, Array) and any(isinstance(item, Table) for item in node):
            for name, item in zip(part_names(node), node, strict=True):
                visit(item, (*path, name), item.origin if isinstance(item, Table) else origin)
        else:
            found[dotted_key(path)] = (node, origin)

    visit(doc, (), doc.origin)
    return found


def _has_drawn_seed(doc: Document) -> bool:
    return "seed" in doc and doc.origin_of("seed").kind == "drawn"


def _format_origin(origin: Origin) -> str:
    return f" ({origin})" if str(origin) else ""


def _describe_source(doc: Document, key: str, origin: Origin) -> str:
    if key in doc.dynamic:
        recipe = doc.dynamic[key]
        settings = ", ".join(f"{name}={format_brief(value)}" for name, value in recipe.items() if name != "dyn")
        seed = "" if recipe["dyn"] in SEEDLESS else f", seed {seed_of(doc)}"
        return f"computed by {recipe['dyn']}({settings}) at {origin}{seed}"
    if key in doc.references:
        targets = [_describe_target(doc, keys) for keys in keys_in(doc.references[key])]
        text = format_brief(mask_value(key.rpartition(".")[2], doc.references[key]))
        return f"from {origin}: {text}, which refers to {' and '.join(targets)}"
    if origin.kind == "drawn":
        return "drawn for this run, since the config has no seed"
    if origin.kind == "default":
        return f"default, since the config has no {key.partition('.')[0]!r}"
    return f"from {origin}" if str(origin) else "from the program"


def _shorten(place: str) -> str:
    """Return a source location relative to the working directory or the site-packages folder."""
    for root in sorted((os.getcwd(), *sys.path), key=len, reverse=True):
        if root and place.startswith(root + os.sep):
            return place[len(root) + 1 :]
    return place


def _explain_default(node: object, name: str, path: Path, *, last: bool) -> str:
    """Describe a key that no file sets, using the default from the signature of the part."""
    if not isinstance(node, Table):
        raise AlchemyError(f"{dotted_key(path)} is a value and has no key {name!r}")
    kind = node.get("type") or DEFAULT_TYPES.get(dotted_key(path))
    if last and isinstance(kind, str):
        from alchemy.config.part_source import find

        part = find(kind, (".",))
        for param in part.params if part is not None else ():
            if part is not None and param.name == name and not param.required:
                return f"{dotted_key((*path, name))} = {param.default}\n  default of {kind} ({_shorten(part.where)})"
    place = f"[{dotted_key(path)}]" if path else "the config"
    hint = did_you_mean(name, node) or f"it has {', '.join(node) or 'nothing'}"
    raise AlchemyError(f"{place} has no {name!r}", hint=hint)
