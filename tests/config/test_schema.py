"""The JSON schema contains the tables, the parts and their keys."""

import json

import pytest

from alchemy.config.known_tables import SECTIONS
from alchemy.config.part_source import find, parts
from alchemy.config.schema import part_schema, schema


@pytest.fixture(scope="module")
def whole():
    """Return the schema, built once: that takes a second."""
    return schema()


@pytest.fixture(scope="module")
def listed():
    return parts()


def test_schema_is_json_and_every_reference_resolves(whole):
    text = json.dumps(whole)
    definitions = whole["$defs"]
    for reference in {piece.partition('"')[0] for piece in text.split('"#/$defs/')[1:]}:
        assert reference in definitions


def test_the_table_of_stop_rules_holds_two_lists_of_them(whole):
    found = whole["properties"]["stop"]
    assert found["properties"] == {
        key: {"type": "array", "items": {"$ref": "#/$defs/stop-rule"}} for key in ("any", "all")
    }
    assert found["additionalProperties"] is False


def test_a_table_that_may_leave_out_its_type_has_the_keys_of_the_usual_part(whole):
    found = whole["$defs"]["backward"]
    usual = [rule["then"] for rule in found["allOf"] if rule["if"] == {"not": {"required": ["type"]}}]
    assert "period" in usual[0]["properties"]
    assert "type" not in [*usual[0]["required"], *found.get("required", [])]


def test_every_section_and_every_part_is_there(whole, listed):
    text = json.dumps(whole)
    assert set(SECTIONS) <= set(whole["properties"])
    for part in listed:
        assert f'"{part.path}"' in text


def test_keys_types_and_defaults_of_a_part():
    found = part_schema(find("alchemy.plugins.FileLogger"), "plugin")
    assert found["required"] == ["type", "log_dir"]
    assert found["properties"]["subdirs"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert found["additionalProperties"] is False


@pytest.mark.parametrize(
    "kind",
    [
        "runner",
        "plugin",
        "task",
        "backward",
        "loss",
        "optim",
        "sched",
        "data pipe",
        "eval pipe",
        "stop rule",
        "checkpoint",
        "precision",
        "average",
    ],
)
def test_every_kind_has_parts_with_documentation(kind, listed):
    found = [part for part in listed if kind in part.kinds]
    assert found
    assert all(part.doc and part.where for part in found)
