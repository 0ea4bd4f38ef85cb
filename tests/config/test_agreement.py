"""The check and the builder agree: both accept or both reject a config."""

import functools
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.annotations import choices, fits, is_constrained
from alchemy.config.check_keys import check_keys
from alchemy.config.known_tables import GIVEN
from alchemy.config.part_slots import Layout, Slot
from alchemy.config.part_source import Part, Sources, find, parts
from alchemy.config.signature import Param
from alchemy.config.tree import Document, Table
from alchemy.errors import AlchemyError
from alchemy.key_rules import RULES, find_violations
from alchemy.registry import Registrable, annotations_of, broken_rules, construct, resolve

# numbers around every limit; strings that are names, paths and nonsense; lists, tables, and None
VALUES = [
    *(-1, 0, 1, 2, 3, 7, 10**10, -0.5, 0.0, 0.5, 1.0, 1.5, math.nan, math.inf, -math.inf, True, False, None),
    *("", "a", "ab", "max", "all", "index", "windows", "../../x", "a\0b", "alchemy.text.Words"),
    *([], [0], [1, 2], [0.5, 0.9], [1, 1], ["a"], ["a", "a"], ["a", "b"], ["../../x"], [3, "a"]),
    *({}, {"a": 1}, {"a": "b"}, {"updates": 0}, {"minutes": 0.5}, {"updates": 3}, {"mode": "default"}),
]
PARTS = {part.path: part for part in parts()}


def kind_of(part: Part) -> str:
    return sorted(part.kinds)[0]


def given_to(part: Part) -> tuple[str, ...]:
    """Return the arguments that others pass to the constructor; the first data pipe gets none."""
    return () if kind_of(part) == "data pipe" else GIVEN.get(kind_of(part), ())


def class_of(part: Part) -> Any:
    try:
        return resolve(part.path)
    except AlchemyError:  # an alias
        return Registrable.resolve_registered_module(part.path)


@functools.cache
def constructor_of(part: Part) -> Callable[..., Any]:
    """Return the class with its own signature, but with a constructor that does nothing."""
    cls = class_of(part)
    if not inspect.isfunction(cls.__init__):
        return cls

    @functools.wraps(inspect.unwrap(cls.__init__))
    def nothing(self: Any, *args: Any, **kwargs: Any) -> None:
        pass

    return type(cls.__name__, (cls,), {"__init__": nothing, "__module__": cls.__module__})


@functools.cache
def pools(param: Param) -> tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]:
    """Any values, or valid ones."""
    pool = [*VALUES, *choices(param.annotation)]
    fitting = [value for value in pool if fits(value, param.annotation, param.default)]
    return st.sampled_from(pool), st.sampled_from(fitting or pool)


@st.composite
def tables(draw: st.DrawFn, part: Part) -> dict[str, Any]:
    """A table for a part, with valid or invalid values, and sometimes an unknown key."""
    table: dict[str, Any] = {"type": part.path}
    for param in part.params:
        if param.name != "type" and param.name not in given_to(part) and (param.required or draw(st.booleans())):
            pool, fitting = pools(param)
            table[param.name] = draw(fitting if draw(st.integers(0, 3)) else pool)
    if draw(st.integers(0, 9)) == 0:
        table["no_such_key"] = 1
    if len(table) > 1 and draw(st.integers(0, 9)) == 0:
        del table[draw(st.sampled_from([key for key in table if key != "type"]))]
    return table


def refused_by_check(part: Part, table: dict[str, Any]) -> list[str]:
    section = "optim" if kind_of(part) == "optim" else f"{kind_of(part)}.0"
    layout = Layout(Document(), Sources((".",)))
    layout.add(Slot(section, Table(table), kind_of(part), part))
    return [str(problem) for problem in check_keys(layout, strict=False) if problem.error]


def refused_by_builder(part: Part, table: dict[str, Any]) -> list[str]:
    try:
        construct(constructor_of(part), table, given=dict.fromkeys(given_to(part)))
    except AlchemyError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize("path", PARTS)
@settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_check_and_builder_refuse_the_same_tables(path: str, data: st.DataObject) -> None:
    part = PARTS[path]
    table = data.draw(tables(part))
    checked, built = refused_by_check(part, table), refused_by_builder(part, table)
    assert bool(checked) == bool(built), (checked, built)


@pytest.mark.parametrize("path", PARTS)
def test_source_and_signature_say_the_same(path: str) -> None:
    part = PARTS[path]
    built = annotations_of(class_of(part))
    for param in part.params:
        annotation = built[param.name][0]
        assert is_constrained(annotation) == is_constrained(param.annotation), param
        for value in [*VALUES, *choices(param.annotation)]:
            if is_constrained(annotation):
                assert fits(value, annotation) == fits(value, param.annotation), (param, annotation, value)


@pytest.mark.parametrize("path", PARTS)
def test_defaults_keep_the_limits(path: str) -> None:
    rows = inspect.signature(class_of(PARTS[path])).parameters.values()
    for row in rows:
        annotation = annotations_of(class_of(PARTS[path]))[row.name][0]
        if row.default is not row.empty and is_constrained(annotation):
            assert row.default is None or fits(row.default, annotation), row


@pytest.mark.parametrize("dotted", RULES)
def test_rules_are_of_classes_that_are_there(dotted: str) -> None:
    part = find(dotted, (".",))
    assert part is not None and f"{part.module}.{part.name}" == dotted
    names = dict.fromkeys(annotations_of(resolve(dotted)))
    assert {param.name for param in part.params} <= set(names)


def test_a_constructor_called_by_code_refuses_what_the_check_refuses() -> None:
    from alchemy.nn.losses import CrossEntropy

    part = PARTS["alchemy.nn.losses.CrossEntropy"]
    with pytest.raises(AlchemyError, match=r"label_smoothing must be at most 1, not 2"):
        CrossEntropy(label_smoothing=2)
    assert any("label_smoothing must be at most 1" in text for text in refused_by_check(part, {"label_smoothing": 2}))


def test_a_rule_is_asked_of_code_too() -> None:
    part = PARTS["alchemy.generate.BeamSearch"]
    assert [key for key, _, _ in broken_rules(class_of(part), {"beam": 2, "nbest": 3})] == ["nbest"]
    with pytest.raises(AlchemyError, match="nbest = 3 must be at most beam = 2"):
        class_of(part)(beam=2, nbest=3)


def test_where_the_project_lies_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    part = PARTS["alchemy.plugins.FileLogger"]
    table = {"type": part.path, "log_dir": "x\0y"}
    assert "NUL" in refused_by_check(part, table)[0] and "NUL" in refused_by_builder(part, table)[0]


def test_a_rule_of_a_base_passes_over_keys_that_a_subclass_does_not_take() -> None:
    assert list(find_violations("alchemy.precision.Precision", {"double": True})) == []
    found = list(find_violations("alchemy.precision.Precision", {"compile": {"mod": "max-autotune"}}))
    assert found == [("compile", "torch.compile has no option 'mod'", "did you mean 'mode'?")]
