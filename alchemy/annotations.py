"""Whether a value fits the annotation of a parameter; the text of it is read, by the check as when a part is built."""

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
_Broken = Iterator[tuple[str, object, Constraint]]  # where, which value, and the limit that it does not keep

_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (numbers.Integral,),  # numpy's too, which code may give
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

# scalars in words, one and several, and as JSON schema calls them
_WORDS = {
    "int": ("a whole number", "whole numbers", "integer"),
    "float": ("a number", "numbers", "number"),
    "str": ("a text", "texts", "string"),
    "bool": ("true or false", "switches", "boolean"),
    "Path": ("a path", "paths", "string"),
    "None": ("none", "None values", "null"),
    "Any": ("Any", "values", ""),
}


@dataclass(frozen=True)
class _Type:
    """What an annotation allows: here anything, as for a Tensor or a class of the project."""

    text: str

    def fits(self, value: object) -> bool:
        return True

    def say(self) -> str:
        return self.text

    def schema(self) -> Schema:
        return {}

    def broken(self, name: str, value: object) -> _Broken:
        """The limits that a value of the right type does not keep."""
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
            return self.name == "bool"  # Python counts true as the number 1; nobody who writes true means it
        return isinstance(value, _SCALARS[self.name])

    def say(self) -> str:
        return _WORDS[self.name][0] if self.name in _WORDS else self.text

    def schema(self) -> Schema:
        return {"type": _WORDS[self.name][2]} if self.name in _WORDS else {}


@dataclass(frozen=True)
class _Choice(_Type):
    values: tuple[object, ...]

    def fits(self, value: object) -> bool:
        return any(value == item and type(value) is type(item) for item in self.values)

    def say(self) -> str:
        return "one of " + ", ".join(map(repr, self.values))

    def schema(self) -> Schema:
        return {"enum": list(self.values)}


@dataclass(frozen=True)
class _Union(_Type):
    options: tuple[_Type, ...]

    def fits(self, value: object) -> bool:
        return any(option.fits(value) for option in self.options)

    def say(self) -> str:
        limited = any(isinstance(option, _Limited) for option in self.options)
        return (", or " if limited else " or ").join(dict.fromkeys(option.say() for option in self.options))

    def schema(self) -> Schema:
        return any_of(*(option.schema() for option in self.options))

    def broken(self, name: str, value: object) -> _Broken:
        for option in self.options if not self.fits(value) else ():
            yield from option.broken(name, value)


@dataclass(frozen=True)
class _Limited(_Type):
    base: _Type
    limits: tuple[Constraint, ...]

    def fits(self, value: object) -> bool:
        return self.base.fits(value) and all(limit.holds(value) for limit in self.limits)

    def say(self) -> str:
        return describe_limits(self.base.say(), self.limits)

    def schema(self) -> Schema:
        return self.base.schema() | {key: value for limit in self.limits for key, value in limit.schema.items()}

    def broken(self, name: str, value: object) -> _Broken:
        if not self.base.fits(value):
            yield from self.base.broken(name, value)
        else:
            yield from [(name, value, limit) for limit in self.limits if not limit.holds(value)][:1]


@dataclass(frozen=True)
class _List(_Type):
    items: tuple[_Type, ...] = ()  # of one kind, or as many kinds as a tuple is long
    fixed: bool = False

    def fits(self, value: object) -> bool:
        if not isinstance(value, Sized) or isinstance(value, str | bytes | Mapping):
            return False
        if self.fixed and len(value) != len(self.items):
            return False
        return not self.items or all(kind.fits(item) for _, item, kind in self._pairs(value))

    def say(self) -> str:
        if self.fixed:
            return f"a list of {len(self.items)} values ({', '.join(item.say() for item in self.items)})"
        if not self.items:
            return "a list"
        item = self.items[0].base if isinstance(self.items[0], _Limited) else self.items[0]
        return f"a list of {_WORDS.get(item.text, ('', f'{item.text} values'))[1]}"

    def schema(self) -> Schema:
        one = bool(self.items) and not self.fixed
        return {"type": "array", "items": self.items[0].schema()} if one else {"type": "array"}

    def broken(self, name: str, value: object) -> _Broken:
        for index, item, kind in self._pairs(value) if isinstance(value, list | tuple) else ():
            yield from kind.broken(f"{name}.{index}", item)

    def _pairs(self, value: Any) -> Iterator[tuple[int, object, _Type]]:
        for index, item in enumerate(value if self.items else ()):
            yield index, item, self.items[index if self.fixed else 0]


@dataclass(frozen=True)
class _Table(_Type):
    value: _Type | None = None

    def fits(self, value: object) -> bool:
        return isinstance(value, dict) and (self.value is None or all(map(self.value.fits, value.values())))

    def say(self) -> str:
        return "a table"

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.value.schema()} if self.value else {"type": "object"}

    def broken(self, name: str, value: object) -> _Broken:
        for key, item in value.items() if isinstance(value, dict) and self.value else ():
            yield from self.value.broken(f"{name}.{key}", item)  # type: ignore[union-attr]


# -- from text


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
    return None  # what others put there is theirs


def _head(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# -- a value against it


def fits(value: object, annotation: str, default: str = "") -> bool:
    """Whether `value` may be given where `annotation` stands; what cannot be told counts as fitting.

    >>> fits(3, "float"), fits("3", "int | None"), fits([1, 2], "tuple[int, ...]"), fits("x", "Tensor")
    (True, False, True, True)
    """
    return _parse(annotation).fits(value) or (not is_constrained(annotation) and _like_default(value, default))


def _like_default(value: object, default: str) -> bool:
    """A sloppy annotation (`ratio: int = 0.5`) does not outrule a scalar of the default's own type."""
    try:
        return type(ast.literal_eval(default)) is type(value) and not isinstance(value, list | dict)
    except (ValueError, SyntaxError, MemoryError):
        return False


def misfits(name: str, value: object, annotation: str, default: str = "") -> list[tuple[str, str]]:
    """What is wrong with a value, each with a hint; nothing where it fits.

    >>> misfits("period", 0, "Annotated[int, Ge(1)]"), misfits("mode", "maxx", "Literal['max', 'min']")[0][1]
    ([('period must be at least 1, not 0', '')], "did you mean 'max'?")
    """
    if fits(value, annotation, default):
        return []
    if _parse(annotation, limits=False).fits(value):
        # of several bounds the hint gives all; those that forbid something say all by themselves
        several = annotation.count("(") - annotation.count("Finite(") > 1
        hint = f"give {expected(annotation)}" if several else ""
        rows = [
            (f"{spot} must {limit.rule}", "")
            if limit.rule.startswith("not ")
            else (f"{spot} must {limit.rule}, not {_given(item)}", hint)
            for spot, item, limit in _parse(annotation).broken(name, value)
        ]
        return list(dict.fromkeys(rows))
    for kind in _parse(annotation).walk():  # the table, or list of choices, is right, and something in it is not
        if isinstance(value, dict) and isinstance(kind, _Table) and kind.value:
            return [row for key, item in value.items() for row in misfits(f"{name}.{key}", item, kind.value.text)]
        if isinstance(value, list) and isinstance(kind, _List) and kind.items and choices(kind.items[0].text):
            inner = kind.items[0].text
            return [row for index, item in enumerate(value) for row in misfits(f"{name}.{index}", item, inner)]
    near = did_you_mean(value, map(str, choices(annotation))) if isinstance(value, str) else ""
    text = f"{name} must be {_parse(annotation, limits=False).say()}, not {_given(value)}"
    return [(text, near or _remedy(value, _parse(annotation)))]


def _given(value: object) -> str:
    """A value as the user wrote it, with its type in words."""
    text = repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "..."
    match value:
        case bool():
            return f"{str(value).lower()}"
        case str():
            return f"the text {text}"
        case dict():
            return "a table"
        case list():
            return f"the list {text}"
    return text


def _remedy(value: object, kind: _Type) -> str:
    """The hint for the commonest slips: quotes around a number, a number for a switch, one value for a list."""
    if isinstance(value, str):
        literal = {"true": True, "false": False}.get(value.lower(), _number(value))
        if literal is not None and kind.fits(literal):
            return f"remove the quotes: {value.lower() if isinstance(literal, bool) else value}"
    if isinstance(value, float) and value.is_integer() and kind.fits(int(value)):
        return f"write {int(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1) and kind.fits(True):
        return f"write {'true' if value else 'false'}"
    if not isinstance(value, list) and kind.fits([value]):
        return f"write it as a list: [{value!r}]"
    return ""


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


# -- what it says


def expected(annotation: str) -> str:
    """An annotation in words: `a whole number or none`, `one of 'step', 'epoch'`, `a list of texts`."""
    return _parse(annotation).say()


def schema_of(annotation: str) -> Schema:
    """An annotation as JSON schema; an empty one, which allows everything, for what JSON cannot say."""
    return _parse(annotation).schema()


def any_of(*options: Schema) -> Schema:
    flat = [inner for option in options for inner in option.get("anyOf", [option])]
    return {} if {} in flat else {"anyOf": flat}


def choices(annotation: str) -> list[object]:
    """The values of a Literal (alone, or beside None), for did-you-mean."""
    return [value for kind in _parse(annotation).walk() if isinstance(kind, _Choice) for value in kind.values]


def names_path(annotation: str) -> bool:
    """Whether a parameter is declared to be a path, or a list of them."""
    return re.search(r"\bPath(Like)?\b", annotation) is not None


def is_constrained(annotation: str) -> bool:
    """Whether it says more than a type: choices, or limits."""
    return "Literal[" in annotation or "Annotated[" in annotation


def printed(annotation: str) -> str:
    """An annotation as signatures are printed.

    >>> printed("Annotated[int, Ge(1)] | None")
    'int[>=1] | None'
    """
    for kind in _parse(annotation).walk():
        if isinstance(kind, _Limited):
            short = f"{printed(kind.base.text)}[{', '.join(limit.short for limit in kind.limits)}]"
            annotation = annotation.replace(kind.text, short)
    return annotation


def spell_out(annotation: str, meaning: Callable[[str], str]) -> str:
    """An annotation with the meaning in place of names such as `Unit = Literal["step", "epoch"]`."""
    try:
        tree = ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError):
        return annotation
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        return spell_out(tree.value, meaning)
    return ast.unparse(_Names(meaning).visit(tree))


class _Names(ast.NodeTransformer):
    def __init__(self, meaning: Callable[[str], str]) -> None:
        self.meaning = meaning

    def visit_Name(self, node: ast.Name) -> ast.AST:
        meant = self.meaning(node.id)
        return ast.parse(meant, mode="eval").body if meant else node
