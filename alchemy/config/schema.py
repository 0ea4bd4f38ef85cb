"""The JSON schema of configs, for editors: known tables, and every part that comes with alchemy."""

from __future__ import annotations

import ast
from typing import Any

from alchemy.annotations import annotated
from alchemy.config.signature import Param, literal
from alchemy.config.source import Part, parts
from alchemy.config.tables import DEFAULT_TYPES, LATER, LISTS, NOT_PASSED, SECTIONS, SETTINGS
from alchemy.rules import LOADER

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_SIMPLE: dict[str, Schema] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "Path": {"type": "string"},
    "None": {"type": "null"},
    "list": {"type": "array"},
    "List": {"type": "array"},
    "Sequence": {"type": "array"},
    "tuple": {"type": "array"},
    "Tuple": {"type": "array"},
    "dict": {"type": "object"},
    "Dict": {"type": "object"},
    "Mapping": {"type": "object"},
}
# kinds that stand inside other tables
INNER = {"data pipe", "collate", "column", "tokenizer", "encoder", "head", "network", "search"}


def schema() -> Schema:
    """One schema for whole config files; parts of a project are allowed with any keys."""
    known = parts()
    properties: Schema = {key: _of_annotation(text) for key, text in SETTINGS.items()}
    properties["runner"] = {"type": "string", "examples": [p.path for p in known if "runner" in p.kinds]}
    for section, (kind, _) in SECTIONS.items():
        properties[section] = {"$ref": f"#/$defs/{_slug(kind)}"} if kind else _lists(section)
    properties["optim"] = _any([properties["optim"], _several("optim")])
    for path, kind in LISTS.items():
        if "." not in path:
            properties[path] = _list_of(kind)
    properties["variant"] = {"type": "object", "additionalProperties": {"type": "object"}}
    properties["base"] = {"type": ["string", "array"], "items": {"type": "string"}}
    properties |= {name: {"type": "object", "description": "read by a later version"} for name in LATER}
    kinds = {kind for kind, _ in SECTIONS.values() if kind} | set(LISTS.values()) | INNER
    definitions = {_slug(kind): _kind(kind, [p for p in known if kind in p.kinds]) for kind in sorted(kinds)}
    return {
        "$schema": DRAFT,
        "title": "alchemy experiment",
        "type": "object",
        "properties": properties,
        "$defs": {**definitions, "dataset": _dataset()},
    }


def part_schema(part: Part, kind: str) -> Schema:
    """The table of one part: its keys, their types and defaults, and which are required."""
    params = [p for p in part.keys if p.name != "type"]
    properties: Schema = {"type": {"const": part.path}}
    properties |= {p.name: _param(p) for p in params}
    for name in NOT_PASSED.get(kind, ()):
        properties[name] = _own_list(kind, name)
    required = ["type", *(p.name for p in params if p.required and p.name != "datapipe")]
    found: Schema = {"type": "object", "properties": properties, "required": required}
    if part.doc:
        found["description"] = part.doc.partition("\n")[0]
    if not part.old_style and kind != "optim":  # other keys of [optim] may be the model's
        found["additionalProperties"] = False
    return found


def _kind(kind: str, known: list[Part]) -> Schema:
    """A table whose `type` names one of our parts must fit that part; any other type may hold any key."""
    rules = [
        {"if": {"properties": {"type": {"const": p.path}}, "required": ["type"]}, "then": part_schema(p, kind)}
        for p in known
    ]
    table: Schema = {
        "type": "object",
        "properties": {"type": {"type": "string", "examples": [p.path for p in known]}},
    }
    default = _default_of(kind)
    usual = [p for p in known if f"{p.module}.{p.name}" == default]
    rules += [{"if": {"not": {"required": ["type"]}}, "then": _untyped(p, kind)} for p in usual]
    if kind != "loss" and not default:
        table["required"] = ["type"]
    for name in NOT_PASSED.get(kind, ()):
        table["properties"][name] = _own_list(kind, name)
    return {**table, "allOf": rules} if rules else table


def _default_of(kind: str) -> str:
    """The part that a table of this kind means when it says no `type`."""
    return next((path for section, path in DEFAULT_TYPES.items() if SECTIONS[section][0] == kind), "")


def _untyped(part: Part, kind: str) -> Schema:
    found = part_schema(part, kind)
    return {**found, "required": [name for name in found["required"] if name != "type"]}


def _lists(section: str) -> Schema:
    """A table that is no part, and holds lists of parts."""
    own = {path.partition(".")[2]: _list_of(kind) for path, kind in LISTS.items() if path.startswith(f"{section}.")}
    return {"type": "object", "properties": own, "additionalProperties": False}


def _several(kind: str) -> Schema:
    """Tables with names of their own, each of them a part."""
    return {
        "type": "object",
        "properties": {"type": False},
        "additionalProperties": {"$ref": f"#/$defs/{_slug(kind)}"},
    }


def _own_list(kind: str, name: str) -> Schema:
    if name == "datasets":
        return {"type": "object", "additionalProperties": {"$ref": "#/$defs/dataset"}}
    return _list_of(LISTS[f"{kind}.{name}"])


def _list_of(kind: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/$defs/{_slug(kind)}"}}


def _dataset() -> Schema:
    properties = {key: _of_annotation(text) for key, text in LOADER.items()}
    properties["pipes"] = _list_of("data pipe")
    return {"type": "object", "properties": properties}


def _param(param: Param) -> Schema:
    found = dict(_of_annotation(param.annotation))
    default = None if param.required else literal(param.default)
    if default is not None:
        found["default"] = list(default) if isinstance(default, tuple) else default
    return found


def _of_annotation(annotation: str) -> Schema:
    try:
        return _of(ast.parse(annotation, mode="eval").body) if annotation else {}
    except (SyntaxError, ValueError):
        return {}


def _of(node: ast.expr) -> Schema:
    """The schema of an annotation; an empty one, which allows everything, for what JSON cannot say."""
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _any([_of(left), _of(right)])
        case ast.Subscript() if (found := annotated(node))[0] is not node:
            return {**_of(found[0]), **{key: value for limit in found[1] for key, value in limit.schema.items()}}
        case ast.Subscript(value=ast.Name(id=outer) | ast.Attribute(attr=outer), slice=inner):
            return _of_subscript(outer, inner.elts if isinstance(inner, ast.Tuple) else [inner])
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return dict(_SIMPLE.get(name, {}))
    return {}


def _of_subscript(outer: str, items: list[ast.expr]) -> Schema:
    if outer == "Literal":
        return {"enum": [item.value for item in items if isinstance(item, ast.Constant)]}
    if outer == "Optional":
        return _any([_of(items[0]), {"type": "null"}])
    if outer == "Union":
        return _any([_of(item) for item in items])
    base = dict(_SIMPLE.get(outer, {}))
    if base.get("type") == "array" and outer not in ("tuple", "Tuple"):
        base["items"] = _of(items[0])
    if base.get("type") == "object" and len(items) == 2:
        base["additionalProperties"] = _of(items[1])
    return base


def _any(options: list[Schema]) -> Schema:
    flat = [inner for option in options for inner in option.get("anyOf", [option])]
    return {} if {} in flat else {"anyOf": flat}


def _slug(kind: str) -> str:
    return kind.replace(" ", "-")
