"""Resolving `type = "..."` to a part."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.registry import Registrable, add_location, build, resolve


class Kind(Registrable):
    pass


@Kind.register()
class Typed(Kind):
    def __init__(self, *, size: int, name: str = "x") -> None:
        self.size, self.name = size, name


@Kind.register("Swallow")
class Old(Kind):
    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs


class Bare(Kind):
    pass


HERE = __name__


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, HERE, sys.modules.get(HERE) or sys.modules[Typed.__module__])


def test_typed_parts_get_their_keys_and_no_type() -> None:
    part = build(Kind, {"type": f"{HERE}.Typed", "size": 3})
    assert (part.size, part.name) == (3, "x")


def test_old_parts_get_the_whole_table() -> None:
    part = build(Kind, {"type": f"{HERE}.Swallow", "a": 1})
    assert part.kwargs == {"type": f"{HERE}.Swallow", "a": 1}


def test_a_constructor_without_parameters_is_called_bare() -> None:
    assert isinstance(build(Kind, {"type": f"{HERE}.Bare", "anything": 1}), Bare)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"type": "Typed"}, "lacks a module"),
        ({"type": ""}, "lacks a module"),
        ({"type": f"{HERE}.Type"}, "did you mean 'Typed'"),
        ({"type": "no_such_module.X"}, "there is no module 'no_such_module'"),
        ({"type": f"{HERE}.HERE"}, "is not a Kind"),
        ({"type": 3}, "must be a string"),
        ({"type": "a..b"}, "not an import path|no module"),
        ({"type": f"{HERE}.Typed", "size": 1, "nam": 2}, "has no option 'nam'; did you mean 'name'"),
        ({"type": f"{HERE}.Typed"}, "needs 'size'"),
        ({}, "needs a 'type'"),
    ],
)
def test_what_is_wrong_is_said(table: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        build(Kind, table)


def test_an_alias_wins_over_an_attribute_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("project_with_alias")

    class AlchemyTagger(Kind):
        __module__ = "project_with_alias"

    Kind.register("Tagger")(AlchemyTagger)
    module.Tagger = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "project_with_alias", module)
    assert Kind.resolve_registered_module("project_with_alias.Tagger") is AlchemyTagger


def test_the_same_alias_twice_is_refused_unless_allowed() -> None:
    class One(Kind):
        pass

    class Two(Kind):
        pass

    Kind.register("Same")(One)
    with pytest.raises(AlchemyError, match="registered twice"):
        Kind.register("Same")(Two)
    assert Kind.register("Same", exist_ok=True)(Two) is Two


def test_a_class_of_the_entry_script_is_found_under_both_names() -> None:
    Main = type("Main", (Kind,), {"__module__": "__mp_main__"})
    Kind.register()(Main)
    assert Kind.resolve_registered_module("__main__.Main") is Main


def test_a_part_registered_on_a_neighbor_is_found_by_the_common_base() -> None:
    class Narrow(Kind):
        pass

    part = type("Part", (Narrow,), {"__module__": HERE})
    Narrow.register("Neighbor")(part)
    assert Kind.resolve_registered_module(f"{HERE}.Neighbor") is part


def test_resolve_names_what_a_module_lacks() -> None:
    assert resolve("math.sqrt")(4) == 2
    with pytest.raises(AlchemyError, match="has no 'sqr'; did you mean 'sqrt'"):
        resolve("math.sqr")


def test_an_error_of_another_table_is_not_put_on_a_line_of_this_one() -> None:
    there = AlchemyError("no", section="task.datasets.train")
    assert str(add_location(there, "a.toml:9", "sched")) == "[task.datasets.train] no"
    assert str(add_location(there, "a.toml:9", "task")) == "a.toml:9 [task.datasets.train] no"
