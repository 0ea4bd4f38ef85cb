"""Check values against type annotations given as text, in the static check and when a part is built."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from alchemy.annotation_types import ChoiceType, LimitedType, ListType, Schema, TableType, ValueType, parse_annotation
from alchemy.errors import did_you_mean


def fits(value: object, annotation: str, default: str = "") -> bool:
    """Return whether `value` matches `annotation`; unknown types match anything.

    >>> fits(3, "float"), fits("3", "int | None"), fits([1, 2], "tuple[int, ...]"), fits("x", "Tensor")
    (True, False, True, True)
    """
    return parse_annotation(annotation).fits(value) or (
        not is_constrained(annotation) and _matches_default(value, default)
    )


def _matches_default(value: object, default: str) -> bool:
    """Return whether a scalar has the type of the default value; the annotation may be wrong (`ratio: int = 0.5`)."""
    try:
        return type(ast.literal_eval(default)) is type(value) and not isinstance(value, list | dict)
    except (ValueError, SyntaxError, MemoryError):
        return False


def find_mismatches(name: str, value: object, annotation: str, default: str = "") -> list[tuple[str, str]]:
    """Return the problems with a value as a list of (message, hint) pairs; empty if the value is valid.

    >>> find_mismatches("period", 0, "Annotated[int, Ge(1)]")
    [('period must be at least 1, not 0', '')]
    >>> find_mismatches("mode", "maxx", "Literal['max', 'min']")[0][1]
    "did you mean 'max'?"
    >>> find_mismatches("rows", {"name": "a"}, "list[dict[str, Any]]")
    [('rows must be a list of tables, not a table', 'write it as a list: [{ .. }]')]
    """
    if fits(value, annotation, default):
        return []
    if parse_annotation(annotation, limits=False).fits(value):
        # if there are several bounds, the hint lists them all; a rule that starts with "not" needs no hint
        several = annotation.count("(") - annotation.count("Finite(") > 1
        hint = f"use {describe(annotation)}" if several else ""
        rows = [
            (f"{spot} must {limit.rule}", "")
            if limit.rule.startswith("not ")
            else (f"{spot} must {limit.rule}, not {_format_value(item)}", hint)
            for spot, item, limit in parse_annotation(annotation).find_violations(name, value)
        ]
        return list(dict.fromkeys(rows))
    for kind in parse_annotation(annotation).walk():  # the container is valid, but one of its items is not
        if isinstance(value, dict) and isinstance(kind, TableType) and kind.value and not kind.fits(value):
            return [
                row for key, item in value.items() for row in find_mismatches(f"{name}.{key}", item, kind.value.text)
            ]
        if isinstance(value, list) and isinstance(kind, ListType) and kind.items and choices(kind.items[0].text):
            inner = kind.items[0].text
            return [row for index, item in enumerate(value) for row in find_mismatches(f"{name}.{index}", item, inner)]
    near = did_you_mean(value, map(str, choices(annotation))) if isinstance(value, str) else ""
    text = f"{name} must be {parse_annotation(annotation, limits=False).describe()}, not {_format_value(value)}"
    return [(text, near or _suggest_fix(value, parse_annotation(annotation)))]


def _format_value(value: object) -> str:
    """Format a value for a message, with its type in words where helpful."""
    text = repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "..."
    match value:
        case bool():
            return f"{str(value).lower()}"
        case str():
            return f"the string {text}"
        case dict():
            return "a table"
        case list():
            return f"the list {text}"
    return text


def _suggest_fix(value: object, kind: ValueType) -> str:
    """Return a hint for common mistakes: a quoted number, 0 or 1 for a boolean, a single value instead of a list."""
    if isinstance(value, str):
        literal = {"true": True, "false": False}.get(value.lower(), _number(value))
        if literal is not None and kind.fits(literal):
            return f"remove the quotes: {value.lower() if isinstance(literal, bool) else value}"
    if isinstance(value, float) and value.is_integer() and kind.fits(int(value)):
        return f"write {int(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1) and kind.fits(True):
        return f"write {'true' if value else 'false'}"
    if not isinstance(value, list) and kind.fits([value]):
        return f"write it as a list: [{'{ .. }' if isinstance(value, dict) else repr(value)}]"
    return ""


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def describe(annotation: str) -> str:
    """Describe an annotation in words: `an integer or none`, `one of 'step', 'epoch'`, `a list of strings`."""
    return parse_annotation(annotation).describe()


def schema_of(annotation: str) -> Schema:
    """Convert an annotation to a JSON schema; if it cannot be expressed, the schema is empty and allows anything."""
    return parse_annotation(annotation).schema()


def choices(annotation: str) -> list[object]:
    """Return the values of a Literal (possibly combined with None), for suggestions."""
    return [
        value for kind in parse_annotation(annotation).walk() if isinstance(kind, ChoiceType) for value in kind.values
    ]


def names_path(annotation: str) -> bool:
    """Return whether a parameter is annotated as a path or a list of paths."""
    return re.search(r"\bPath(Like)?\b", annotation) is not None


def is_constrained(annotation: str) -> bool:
    """Return whether an annotation limits the allowed values with a Literal or with constraints."""
    return "Literal[" in annotation or "Annotated[" in annotation


def format_annotation(annotation: str) -> str:
    """Format an annotation for a printed signature.

    >>> format_annotation("Annotated[int, Ge(1)] | None")
    'int[>=1] | None'
    """
    for kind in parse_annotation(annotation).walk():
        if isinstance(kind, LimitedType):
            short = f"{format_annotation(kind.base.text)}[{', '.join(limit.short for limit in kind.limits)}]"
            annotation = annotation.replace(kind.text, short)
    return annotation


def expand_aliases(annotation: str, meaning: Callable[[str], str]) -> str:
    """Expand type aliases in an annotation, such as `Unit = Literal["step", "epoch"]`."""
    try:
        tree = ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError):
        return annotation
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        return expand_aliases(tree.value, meaning)
    return ast.unparse(_Names(meaning).visit(tree))


class _Names(ast.NodeTransformer):
    def __init__(self, meaning: Callable[[str], str]) -> None:
        self.meaning = meaning

    def visit_Name(self, node: ast.Name) -> ast.AST:
        expansion = self.meaning(node.id)
        return ast.parse(expansion, mode="eval").body if expansion else node
