"""Check values against type annotations given as text, in the static check and when a part is built."""

from __future__ import annotations

import ast
import datetime
import numbers
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from alchemy.constraints import CONSTRAINTS, Constraint, describe_limits
from alchemy.errors import did_you_mean

Schema = dict[str, Any]
_Violations = Iterator[tuple[str, object, Constraint]]  # the key, the value, and the limit it violates

_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (numbers.Integral,),  # includes NumPy numbers, which callers may pass
    "float": (numbers.Real,),
    "complex": (numbers.Complex,),
    "str": (str,),
    "bool": (bool,),
    "bytes": (bytes,),
    "None": (type(None),),
    "NoneType": (type(None),),
    **dict.fromkeys(("Path", "PurePath", "PathLike", "StrPath"), (str, os.PathLike)),
    "date": (datetime.date,),
    "datetime": (datetime.datetime,),
    "time": (datetime.time,),
}
_LISTS = {
    "list", "List", "Sequence", "MutableSequence", "Iterable", "Collection", "Container", "tuple", "Tuple",
    "set", "Set", "frozenset", "FrozenSet", "AbstractSet",
}  # fmt: skip
_TABLES = {"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict", "DefaultDict"}
_WRAPPERS = {"Annotated", "Final", "Required", "NotRequired", "ReadOnly"}

# scalar types: singular and plural for messages, and the JSON schema type
_DESCRIPTIONS = {
    "int": ("an integer", "integers", "integer"),
    "float": ("a number", "numbers", "number"),
    "str": ("a string", "strings", "string"),
    "bool": ("true or false", "booleans", "boolean"),
    "Path": ("a path", "paths", "string"),
    "None": ("none", "None values", "null"),
    "Any": ("Any", "values", ""),
}


@dataclass(frozen=True)
class _Type:
    """The values that an annotation allows. The base class is used for unknown types and allows anything."""

    text: str

    def fits(self, value: object) -> bool:
        return True

    def describe(self) -> str:
        return self.text

    def schema(self) -> Schema:
        return {}

    def find_violations(self, name: str, value: object) -> _Violations:
        """Yield the limits that a value of the right type violates."""
        return iter(())

    def walk(self) -> Iterator[_Type]:
        yield self
        for item in vars(self).values():
            for inner in item if isinstance(item, tuple) else (item,):
                if isinstance(inner, _Type):
                    yield from inner.walk()


@dataclass(frozen=True)
class _Scalar(_Type):
    name: str

    def fits(self, value: object) -> bool:
        if isinstance(value, bool):
            return self.name == "bool"  # True is an int in Python, but `true` in a config never means 1
        return isinstance(value, _SCALARS[self.name])

    def describe(self) -> str:
        return _DESCRIPTIONS[self.name][0] if self.name in _DESCRIPTIONS else self.text

    def schema(self) -> Schema:
        return {"type": _DESCRIPTIONS[self.name][2]} if self.name in _DESCRIPTIONS else {}


@dataclass(frozen=True)
class _Choice(_Type):
    values: tuple[object, ...]

    def fits(self, value: object) -> bool:
        return any(value == item and type(value) is type(item) for item in self.values)

    def describe(self) -> str:
        return "one of " + ", ".join(map(repr, self.values))

    def schema(self) -> Schema:
        return {"enum": list(self.values)}


@dataclass(frozen=True)
class _Union(_Type):
    options: tuple[_Type, ...]

    def fits(self, value: object) -> bool:
        return any(option.fits(value) for option in self.options)

    def describe(self) -> str:
        limited = any(isinstance(option, _Limited) for option in self.options)
        return (", or " if limited else " or ").join(dict.fromkeys(option.describe() for option in self.options))

    def schema(self) -> Schema:
        return any_of(*(option.schema() for option in self.options))

    def find_violations(self, name: str, value: object) -> _Violations:
        for option in self.options if not self.fits(value) else ():
            yield from option.find_violations(name, value)


@dataclass(frozen=True)
class _Limited(_Type):
    base: _Type
    limits: tuple[Constraint, ...]

    def fits(self, value: object) -> bool:
        return self.base.fits(value) and all(limit.holds(value) for limit in self.limits)

    def describe(self) -> str:
        return describe_limits(self.base.describe(), self.limits)

    def schema(self) -> Schema:
        return self.base.schema() | {key: value for limit in self.limits for key, value in limit.schema.items()}

    def find_violations(self, name: str, value: object) -> _Violations:
        if not self.base.fits(value):
            yield from self.base.find_violations(name, value)
        else:
            yield from [(name, value, limit) for limit in self.limits if not limit.holds(value)][:1]


@dataclass(frozen=True)
class _List(_Type):
    items: tuple[_Type, ...] = ()  # one item type, or one per element of a tuple
    fixed: bool = False

    def fits(self, value: object) -> bool:
        if not isinstance(value, Sized) or isinstance(value, str | bytes | Mapping):
            return False
        if self.fixed and len(value) != len(self.items):
            return False
        return not self.items or all(kind.fits(item) for _, item, kind in self._pairs(value))

    def describe(self) -> str:
        if self.fixed:
            return f"a list of {len(self.items)} values ({', '.join(item.describe() for item in self.items)})"
        if not self.items:
            return "a list"
        item = self.items[0].base if isinstance(self.items[0], _Limited) else self.items[0]
        if isinstance(item, _Table | _List):
            return "a list of tables" if isinstance(item, _Table) else "a list of lists"
        return f"a list of {_DESCRIPTIONS.get(item.text, ('', f'{item.text} values'))[1]}"

    def schema(self) -> Schema:
        one = bool(self.items) and not self.fixed
        return {"type": "array", "items": self.items[0].schema()} if one else {"type": "array"}

    def find_violations(self, name: str, value: object) -> _Violations:
        for index, item, kind in self._pairs(value) if isinstance(value, list | tuple) else ():
            yield from kind.find_violations(f"{name}.{index}", item)

    def _pairs(self, value: Any) -> Iterator[tuple[int, object, _Type]]:
        for index, item in enumerate(value if self.items else ()):
            yield index, item, self.items[index if self.fixed else 0]


@dataclass(frozen=True)
class _Table(_Type):
    value: _Type | None = None

    def fits(self, value: object) -> bool:
        return isinstance(value, dict) and (self.value is None or all(map(self.value.fits, value.values())))

    def describe(self) -> str:
        return "a table"

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.value.schema()} if self.value else {"type": "object"}

    def find_violations(self, name: str, value: object) -> _Violations:
        for key, item in value.items() if isinstance(value, dict) and self.value else ():
            yield from self.value.find_violations(f"{name}.{key}", item)  # type: ignore[union-attr]


# -- parsing


@lru_cache(maxsize=512)
def _parse(annotation: str, limits: bool = True) -> _Type:
    try:
        return _read(ast.parse(annotation, mode="eval").body, limits) if annotation else _Type("")
    except (SyntaxError, ValueError):
        return _Type(annotation)


def _read(node: ast.expr, limits: bool) -> _Type:
    text = ast.unparse(node)
    match node:
        case ast.Constant(value=None):
            return _Scalar(text, "None")
        case ast.Constant(value=str() as quoted):
            return _parse(quoted, limits)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _Union(text, (_read(left, limits), _read(right, limits)))
        case ast.Subscript(value=outer, slice=ast.Tuple(elts=items)):
            return _subscript(_head(outer), items, text, limits)
        case ast.Subscript(value=outer, slice=item):
            return _subscript(_head(outer), [item], text, limits)
    name = _head(node)
    if name in _SCALARS:
        return _Scalar(text, name)
    return _List(text) if name in _LISTS else _Table(text) if name in _TABLES else _Type(text)


def _subscript(outer: str, items: list[ast.expr], text: str, limits: bool) -> _Type:
    if outer == "Literal":
        return _Choice(text, tuple(item.value for item in items if isinstance(item, ast.Constant)))
    if outer == "Optional":
        return _Union(text, (_read(items[0], limits), _Scalar("None", "None")))
    if outer == "Union":
        return _Union(text, tuple(_read(item, limits) for item in items))
    if outer in _WRAPPERS:
        base = _read(items[0], limits)
        held = tuple(limit for item in items[1:] if (limit := _limit(item)) is not None) if limits else ()
        return _Limited(text, base, held) if held else base
    if outer in ("tuple", "Tuple") and not (len(items) == 2 and ast.unparse(items[1]) == "..."):
        return _List(text, tuple(_read(item, limits) for item in items), fixed=True)
    if outer in _LISTS:
        return _List(text, (_read(items[0], limits),))
    if outer in _TABLES:
        return _Table(text, _read(items[1], limits) if len(items) == 2 else None)
    return _Type(text)


def _limit(node: ast.expr) -> Constraint | None:
    match node:
        case ast.Call(func=func, args=args) if _head(func) in CONSTRAINTS:
            return CONSTRAINTS[_head(func)](*map(ast.literal_eval, args))
    return None  # metadata of other libraries is ignored


def _head(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# -- checking values


def fits(value: object, annotation: str, default: str = "") -> bool:
    """Return whether `value` matches `annotation`; unknown types match anything.

    >>> fits(3, "float"), fits("3", "int | None"), fits([1, 2], "tuple[int, ...]"), fits("x", "Tensor")
    (True, False, True, True)
    """
    return _parse(annotation).fits(value) or (not is_constrained(annotation) and _matches_default(value, default))


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
    if _parse(annotation, limits=False).fits(value):
        # if there are several bounds, the hint lists them all; a rule that starts with "not" needs no hint
        several = annotation.count("(") - annotation.count("Finite(") > 1
        hint = f"use {describe(annotation)}" if several else ""
        rows = [
            (f"{spot} must {limit.rule}", "")
            if limit.rule.startswith("not ")
            else (f"{spot} must {limit.rule}, not {_format_value(item)}", hint)
            for spot, item, limit in _parse(annotation).find_violations(name, value)
        ]
        return list(dict.fromkeys(rows))
    for kind in _parse(annotation).walk():  # the container is valid, but one of its items is not
        if isinstance(value, dict) and isinstance(kind, _Table) and kind.value and not kind.fits(value):
            return [
                row for key, item in value.items() for row in find_mismatches(f"{name}.{key}", item, kind.value.text)
            ]
        if isinstance(value, list) and isinstance(kind, _List) and kind.items and choices(kind.items[0].text):
            inner = kind.items[0].text
            return [row for index, item in enumerate(value) for row in find_mismatches(f"{name}.{index}", item, inner)]
    near = did_you_mean(value, map(str, choices(annotation))) if isinstance(value, str) else ""
    text = f"{name} must be {_parse(annotation, limits=False).describe()}, not {_format_value(value)}"
    return [(text, near or _suggest_fix(value, _parse(annotation)))]


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


def _suggest_fix(value: object, kind: _Type) -> str:
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


# -- descriptions


def describe(annotation: str) -> str:
    """Describe an annotation in words: `an integer or none`, `one of 'step', 'epoch'`, `a list of strings`."""
    return _parse(annotation).describe()


def schema_of(annotation: str) -> Schema:
    """Convert an annotation to a JSON schema; if it cannot be expressed, the schema is empty and allows anything."""
    return _parse(annotation).schema()


def any_of(*options: Schema) -> Schema:
    flat = [inner for option in options for inner in option.get("anyOf", [option])]
    return {} if {} in flat else {"anyOf": flat}


def choices(annotation: str) -> list[object]:
    """Return the values of a Literal (possibly combined with None), for suggestions."""
    return [value for kind in _parse(annotation).walk() if isinstance(kind, _Choice) for value in kind.values]


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
    for kind in _parse(annotation).walk():
        if isinstance(kind, _Limited):
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
