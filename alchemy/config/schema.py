"""Generate a JSON schema for config files, for use in editors, with all tables and parts of alchemy."""

from __future__ import annotations

from alchemy.annotation_types import Schema, any_of
from alchemy.annotations import schema_of
from alchemy.config.known_tables import DEFAULT_TYPES, LISTS, NOT_PASSED, OTHER_COMMANDS, SECTIONS, SETTINGS
from alchemy.config.part_source import Part, parts
from alchemy.config.short_names import resolve_name
from alchemy.config.signature import Param, literal_value
from alchemy.config.splits import SPLITS
from alchemy.key_rules import LOADER_OPTIONS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

# kinds that are nested in other tables
_INNER = {"data pipe", "collate", "column", "image transform", "tokenizer", "encoder", "head", "network", "search"}
_FILES: Schema = {"type": ["string", "array", "object", "number"], "description": "a path, or a share to hold out"}
_DATA: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(SPLITS, _FILES),
        "processor": {"type": "string"},
        "batch_size": {"type": "integer"},
    },
}


def schema() -> Schema:
    """Return one schema for whole config files, in which project parts may have any keys."""
    known = parts()
    properties: Schema = {key: schema_of(text) for key, text in SETTINGS.items()}
    properties["runner"] = {"type": "string", "examples": [p.path for p in known if "runner" in p.kinds]}
    for section, (kind, _) in SECTIONS.items():
        properties[section] = {"$ref": f"#/$defs/{_slug(kind)}"} if kind else _lists_schema(section)
    properties["optim"] = any_of(properties["optim"], _named_parts_schema("optim"))
    for path, kind in LISTS.items():
        if "." not in path:
            properties[path] = any_of(_list_of(kind), {"type": "object"})  # a table modifies the default plugins
    properties["variant"] = {"type": "object", "additionalProperties": {"type": "object"}}
    properties["base"] = {"type": ["string", "array"], "items": {"type": "string"}}
    properties |= {name: {"type": "object", "description": text} for name, text in OTHER_COMMANDS.items()}
    kinds = {kind for kind, _ in SECTIONS.values() if kind} | set(LISTS.values()) | _INNER
    definitions = {_slug(kind): _kind_schema(kind, [p for p in known if kind in p.kinds]) for kind in sorted(kinds)}
    return {
        "$schema": _DRAFT,
        "title": "alchemy experiment",
        "type": "object",
        "properties": properties,
        "$defs": {**definitions, "dataset": _dataset_schema()},
    }


def part_schema(part: Part, kind: str) -> Schema:
    """Return the schema of a part's table: its keys, their types and defaults, and which are required."""
    params = [p for p in part.keys if p.name != "type"]
    properties: Schema = {"type": _type_schema(part, kind)}
    properties |= {p.name: _param_schema(p) for p in params}
    for name in NOT_PASSED.get(kind, ()):
        properties[name] = _list_schema(kind, name)
    if kind == "task":
        properties["data"] = _DATA
    required = ["type", *(p.name for p in params if p.required and p.name != "datapipe")]
    found: Schema = {"type": "object", "properties": properties, "required": required}
    if part.doc:
        found["description"] = part.doc.partition("\n")[0]
    if not part.old_style and kind != "optim":  # other keys of [optim] may be read by the model
        found["additionalProperties"] = False
    return found


def _type_schema(part: Part, kind: str) -> Schema:
    """Return the schema of `type`: the import path of a part, and its short name if that is unambiguous."""
    short = part.path.rpartition(".")[2]
    return {"enum": [part.path, short] if resolve_name(short, kind) == part.path else [part.path]}


def _kind_schema(kind: str, known: list[Part]) -> Schema:
    """Return the schema of a kind: alchemy's types must match their part; other types may have any keys."""
    rules = [
        {"if": {"properties": {"type": _type_schema(p, kind)}, "required": ["type"]}, "then": part_schema(p, kind)}
        for p in known
    ]
    table: Schema = {
        "type": "object",
        "properties": {"type": {"type": "string", "examples": [p.path for p in known]}},
    }
    default = _default_type(kind)
    usual = [p for p in known if f"{p.module}.{p.name}" == default]
    rules += [{"if": {"not": {"required": ["type"]}}, "then": _default_part_schema(p, kind)} for p in usual]
    if kind != "loss" and not default:
        table["required"] = ["type"]
    for name in NOT_PASSED.get(kind, ()):
        table["properties"][name] = _list_schema(kind, name)
    return {**table, "allOf": rules} if rules else table


def _default_type(kind: str) -> str:
    """Return the default part of a kind for tables without a `type`."""
    return next((path for section, path in DEFAULT_TYPES.items() if SECTIONS[section][0] == kind), "")


def _default_part_schema(part: Part, kind: str) -> Schema:
    found = part_schema(part, kind)
    return {**found, "required": [name for name in found["required"] if name != "type"]}


def _lists_schema(section: str) -> Schema:
    """Return the schema of a table that contains lists of parts."""
    own = {path.partition(".")[2]: _list_of(kind) for path, kind in LISTS.items() if path.startswith(f"{section}.")}
    return {"type": "object", "properties": own, "additionalProperties": False}


def _named_parts_schema(kind: str) -> Schema:
    """Return the schema of a table of named parts."""
    return {
        "type": "object",
        "properties": {"type": False},
        "additionalProperties": {"$ref": f"#/$defs/{_slug(kind)}"},
    }


def _list_schema(kind: str, name: str) -> Schema:
    if name == "datasets":
        return {"type": "object", "additionalProperties": {"$ref": "#/$defs/dataset"}}
    return _list_of(LISTS[f"{kind}.{name}"])


def _list_of(kind: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/$defs/{_slug(kind)}"}}


def _dataset_schema() -> Schema:
    properties = {key: schema_of(text) for key, text in LOADER_OPTIONS.items()}
    properties["pipes"] = any_of(_list_of("data pipe"), {"type": "object"})  # a table patches the pipes of `like`
    properties["like"] = {"type": "string"}
    return {"type": "object", "properties": properties}


def _param_schema(param: Param) -> Schema:
    found = dict(schema_of(param.annotation))
    default = None if param.required else literal_value(param.default)
    if default is not None:
        found["default"] = list(default) if isinstance(default, tuple) else default
    return found


def _slug(kind: str) -> str:
    return kind.replace(" ", "-")
