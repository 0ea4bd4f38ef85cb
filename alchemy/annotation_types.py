"""Parse type annotations given as text into the values that they allow."""

from __future__ import annotations

import ast
import datetime
import numbers
import os
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from alchemy.constraints import CONSTRAINTS, Constraint, describe_limits

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
class ValueType:
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

    def walk(self) -> Iterator[ValueType]:
        yield self
        for item in vars(self).values():
            for inner in item if isinstance(item, tuple) else (item,):
                if isinstance(inner, ValueType):
                    yield from inner.walk()


@dataclass(frozen=True)
class _Scalar(ValueType):
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
class ChoiceType(ValueType):
    values: tuple[object, ...]

    def fits(self, value: object) -> bool:
        return any(value == item and type(value) is type(item) for item in self.values)

    def describe(self) -> str:
        return "one of " + ", ".join(map(repr, self.values))

    def schema(self) -> Schema:
        return {"enum": list(self.values)}


@dataclass(frozen=True)
class _Union(ValueType):
    options: tuple[ValueType, ...]

    def fits(self, value: object) -> bool:
        return any(option.fits(value) for option in self.options)

    def describe(self) -> str:
        limited = any(isinstance(option, LimitedType) for option in self.options)
        return (", or " if limited else " or ").join(dict.fromkeys(option.describe() for option in self.options))

    def schema(self) -> Schema:
        return any_of(*(option.schema() for option in self.options))

    def find_violations(self, name: str, value: object) -> _Violations:
        for option in self.options if not self.fits(value) else ():
            yield from option.find_violations(name, value)


@dataclass(frozen=True)
class LimitedType(ValueType):
    base: ValueType
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
class ListType(ValueType):
    items: tuple[ValueType, ...] = ()  # one item type, or one per element of a tuple
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
        item = self.items[0].base if isinstance(self.items[0], LimitedType) else self.items[0]
        if isinstance(item, TableType | ListType):
            return "a list of tables" if isinstance(item, TableType) else "a list of lists"
        return f"a list of {_DESCRIPTIONS.get(item.text, ('', f'{item.text} values'))[1]}"

    def schema(self) -> Schema:
        one = bool(self.items) and not self.fixed
        return {"type": "array", "items": self.items[0].schema()} if one else {"type": "array"}

    def find_violations(self, name: str, value: object) -> _Violations:
        for index, item, kind in self._pairs(value) if isinstance(value, list | tuple) else ():
            yield from kind.find_violations(f"{name}.{index}", item)

    def _pairs(self, value: Any) -> Iterator[tuple[int, object, ValueType]]:
        for index, item in enumerate(value if self.items else ()):
            yield index, item, self.items[index if self.fixed else 0]


@dataclass(frozen=True)
class TableType(ValueType):
    value: ValueType | None = None

    def fits(self, value: object) -> bool:
        return isinstance(value, dict) and (self.value is None or all(map(self.value.fits, value.values())))

    def describe(self) -> str:
        return "a table"

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.value.schema()} if self.value else {"type": "object"}

    def find_violations(self, name: str, value: object) -> _Violations:
        for key, item in value.items() if isinstance(value, dict) and self.value else ():
            yield from self.value.find_violations(f"{name}.{key}", item)  # type: ignore[union-attr]


@lru_cache(maxsize=512)
def parse_annotation(annotation: str, limits: bool = True) -> ValueType:
    try:
        return _read(ast.parse(annotation, mode="eval").body, limits) if annotation else ValueType("")
    except (SyntaxError, ValueError):
        return ValueType(annotation)


def _read(node: ast.expr, limits: bool) -> ValueType:
    text = ast.unparse(node)
    match node:
        case ast.Constant(value=None):
            return _Scalar(text, "None")
        case ast.Constant(value=str() as quoted):
            return parse_annotation(quoted, limits)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _Union(text, (_read(left, limits), _read(right, limits)))
        case ast.Subscript(value=outer, slice=ast.Tuple(elts=items)):
            return _subscript(_head(outer), items, text, limits)
        case ast.Subscript(value=outer, slice=item):
            return _subscript(_head(outer), [item], text, limits)
    name = _head(node)
    if name in _SCALARS:
        return _Scalar(text, name)
    return ListType(text) if name in _LISTS else TableType(text) if name in _TABLES else ValueType(text)


def _subscript(outer: str, items: list[ast.expr], text: str, limits: bool) -> ValueType:
    if outer == "Literal":
        return ChoiceType(text, tuple(item.value for item in items if isinstance(item, ast.Constant)))
    if outer == "Optional":
        return _Union(text, (_read(items[0], limits), _Scalar("None", "None")))
    if outer == "Union":
        return _Union(text, tuple(_read(item, limits) for item in items))
    if outer in _WRAPPERS:
        base = _read(items[0], limits)
        held = tuple(limit for item in items[1:] if (limit := _limit(item)) is not None) if limits else ()
        return LimitedType(text, base, held) if held else base
    if outer in ("tuple", "Tuple") and not (len(items) == 2 and ast.unparse(items[1]) == "..."):
        return ListType(text, tuple(_read(item, limits) for item in items), fixed=True)
    if outer in _LISTS:
        return ListType(text, (_read(items[0], limits),))
    if outer in _TABLES:
        return TableType(text, _read(items[1], limits) if len(items) == 2 else None)
    return ValueType(text)


def _limit(node: ast.expr) -> Constraint | None:
    match node:
        case ast.Call(func=func, args=args) if _head(func) in CONSTRAINTS:
            return CONSTRAINTS[_head(func)](*map(ast.literal_eval, args))
    return None  # metadata of other libraries is ignored


def _head(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def any_of(*options: Schema) -> Schema:
    flat = [inner for option in options for inner in option.get("anyOf", [option])]
    return {} if {} in flat else {"anyOf": flat}
