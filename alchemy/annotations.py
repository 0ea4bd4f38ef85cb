"""Whether a value fits the annotation of a parameter; the text of it is read, by the check as when a part is built."""

from __future__ import annotations

import ast
import datetime
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sized
from functools import lru_cache
from typing import Any

from alchemy.constraints import CONSTRAINTS, Constraint
from alchemy.errors import did_you_mean

_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (numbers.Integral,),  # numpy's too, which code may give
    "float": (numbers.Real,),
    "complex": (numbers.Complex,),
    "str": (str,),
    "bool": (bool,),
    "bytes": (bytes,),
    "None": (type(None),),
    "NoneType": (type(None),),
    "Path": (str, os.PathLike),
    "PurePath": (str, os.PathLike),
    "PathLike": (str, os.PathLike),
    "StrPath": (str, os.PathLike),
    "date": (datetime.date,),
    "datetime": (datetime.datetime,),
    "time": (datetime.time,),
}
_LISTS = {
    "list", "List", "Sequence", "MutableSequence", "Iterable", "Collection", "Container",
    "set", "Set", "frozenset", "FrozenSet", "AbstractSet",
}  # fmt: skip
_TABLES = {"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict", "DefaultDict"}
_WRAPPERS = {"Annotated", "Final", "Required", "NotRequired", "ReadOnly"}

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "Path": "a path",
    "PathLike": "a path",
    "None": "none",
}


def fits(value: Any, annotation: str, default: str = "") -> bool:
    """Whether `value` may be given where `annotation` stands; what cannot be told counts as fitting.

    >>> fits(3, "float"), fits("3", "int | None"), fits([1, 2], "tuple[int, ...]"), fits("x", "Tensor")
    (True, False, True, True)
    """
    tree = _parse(annotation)
    return tree is None or _fits(value, tree) or (not is_constrained(annotation) and _like_default(value, default))


def misfits(name: str, value: Any, annotation: str, default: str = "") -> list[tuple[str, str]]:
    """What is wrong with a value, each with a hint; nothing where it fits.

    >>> misfits("period", 0, "Annotated[int, Ge(1)]"), misfits("mode", "maxx", "Literal['max', 'min']")[0][1]
    ([('period must be at least 1, not 0', '')], "did you mean 'max'?")
    """
    tree = _parse(annotation)
    if tree is None or fits(value, annotation, default):
        return []
    if _fits(value, tree, limits=False):
        # of several limits the hint gives all; those that forbid something say all by themselves
        several = annotation.count("(") > 1
        rows = [
            (f"{spot} must {limit.rule}", "")
            if limit.rule.startswith("not ")
            else (f"{spot} must {limit.rule}, not {given(item)}", f"give {expected(annotation)}" if several else "")
            for spot, item, limit in _broken(name, value, tree)
        ]
        return list(dict.fromkeys(rows))
    inner = _items_of(annotation, type(value))
    if inner and _fits(type(value)(), tree, limits=False):  # the table, or list, is right, and something in it is not
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [row for key, item in items for row in misfits(f"{name}.{key}", item, inner)]
    near = did_you_mean(value, map(str, choices(annotation))) if isinstance(value, str) else ""
    text = f"{name} must be {expected(shown(annotation, limits=False))}, not {given(value)}"
    return [(text, near or remedy(value, annotation))]


def is_constrained(annotation: str) -> bool:
    """Whether it says more than a type: choices, or limits."""
    return "Literal[" in annotation or "Annotated[" in annotation


def spell_out(annotation: str, meaning: Callable[[str], str]) -> str:
    """An annotation with the meaning in place of names such as `Unit = Literal["step", "epoch"]`."""
    tree = _parse(annotation)
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        return spell_out(tree.value, meaning)
    return annotation if tree is None else ast.unparse(_Names(meaning).visit(ast.parse(annotation, mode="eval").body))


class _Names(ast.NodeTransformer):
    def __init__(self, meaning: Callable[[str], str]) -> None:
        self.meaning = meaning

    def visit_Name(self, node: ast.Name) -> ast.AST:
        tree = _parse(self.meaning(node.id))
        return node if tree is None else tree


def shown(annotation: str, *, limits: bool = True) -> str:
    """An annotation as signatures are printed.

    >>> shown("Annotated[int, Ge(1)] | None"), shown("Annotated[int, Ge(1)] | None", limits=False)
    ('int[>=1] | None', 'int | None')
    """
    if "Annotated[" not in annotation or _parse(annotation) is None:
        return annotation
    return ast.unparse(_Shown(limits).visit(ast.parse(annotation, mode="eval").body))


class _Shown(ast.NodeTransformer):
    def __init__(self, limits: bool) -> None:
        self.limits = limits

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        base, limits = annotated(node)
        if base is node:
            return self.generic_visit(node)
        words = [limit.short for limit in limits] if self.limits else []
        text = ast.unparse(self.visit(base))
        return ast.Name(f"{text}[{', '.join(words)}]" if words else text)


def expected(annotation: str) -> str:
    """An annotation in words: `a whole number or none`, `one of 'step', 'epoch'`, `a list of texts`."""
    tree = _parse(annotation)
    return annotation if tree is None else _say(tree)


def given(value: Any) -> str:
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


def remedy(value: Any, annotation: str) -> str:
    """The hint for the commonest slips: quotes around a number, a number for a switch, one value for a list."""
    tree = _parse(annotation)
    if tree is None:
        return ""
    if isinstance(value, str):
        literal = {"true": True, "false": False}.get(value.lower(), _number(value))
        if literal is not None and _fits(literal, tree):
            return f"remove the quotes: {value.lower() if isinstance(literal, bool) else value}"
    if isinstance(value, float) and value.is_integer() and _fits(int(value), tree):
        return f"write {int(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1) and _fits(True, tree):
        return f"write {'true' if value else 'false'}"
    if not isinstance(value, list) and _fits([value], tree):
        return f"write it as a list: [{value!r}]"
    return ""


def _items_of(annotation: str, kind: type) -> str:
    """The annotation of what a table, or a list of choices, holds; nothing where it holds anything.

    >>> _items_of("int | dict[str, float]", dict), _items_of("dict", dict), _items_of("list[Literal['a']]", list)
    ('float', '', "Literal['a']")
    """
    tree = _parse(annotation)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Subscript):
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if issubclass(kind, dict) and _head(node.value) in _TABLES and len(items) == 2:
                return ast.unparse(items[1])
            if issubclass(kind, list) and _head(node.value) in _LISTS and choices(ast.unparse(items[0])):
                return ast.unparse(items[0])
    return ""


def names_path(annotation: str) -> bool:
    """Whether a parameter is declared to be a path, or a list of them."""
    tree = _parse(annotation)
    return tree is not None and any(
        _head(node) in ("Path", "PathLike") for node in ast.walk(tree) if isinstance(node, ast.expr)
    )


def choices(annotation: str) -> list[Any]:
    """The values of a Literal (alone, or beside None), for did-you-mean."""
    tree = _parse(annotation)
    if tree is None:
        return []
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Subscript) and _head(n.value) == "Literal"]
    return [value for node in found for value in _literals(node)]


@lru_cache(maxsize=512)
def _parse(annotation: str) -> ast.expr | None:
    try:
        return ast.parse(annotation, mode="eval").body if annotation else None
    except (SyntaxError, ValueError):
        return None


def annotated(node: ast.expr) -> tuple[ast.expr, list[Constraint]]:
    """The type and the limits of `Annotated[type, Ge(1), ..]`; any other annotation is a type without limits."""
    match node:
        case ast.Subscript(value=outer, slice=ast.Tuple(elts=[base, *rest])) if _head(outer) == "Annotated":
            return base, [limit for call in rest if (limit := _limit(call)) is not None]
    return node, []


def _limit(node: ast.expr) -> Constraint | None:
    match node:
        case ast.Call(func=func, args=args) if _head(func) in CONSTRAINTS:
            return CONSTRAINTS[_head(func)](*map(ast.literal_eval, args))
    return None  # what others put there is theirs


def _broken(name: str, value: Any, node: ast.expr) -> Iterator[tuple[str, Any, Constraint]]:
    """The limits that a value of the right type does not keep, and its items where they are meant."""
    if _fits(value, node) or not _fits(value, node, limits=False):
        return
    base, limits = annotated(node)
    for limit in limits:
        if _fits(value, base) and not limit.holds(value):
            yield name, value, limit
            return
    match base:
        case ast.BinOp(left=left, right=right):
            yield from _broken(name, value, left)
            yield from _broken(name, value, right)
        case ast.Subscript(value=outer, slice=inner) if _head(outer) in ("Union", "Optional"):
            for item in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                yield from _broken(name, value, item)
        case ast.Subscript(slice=inner) if isinstance(value, dict):
            for key, item in value.items():
                yield from _broken(f"{name}.{key}", item, inner.elts[-1] if isinstance(inner, ast.Tuple) else inner)
        case ast.Subscript(slice=inner) if isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from _broken(f"{name}.{index}", item, inner.elts[0] if isinstance(inner, ast.Tuple) else inner)


def _fits(value: Any, node: ast.expr, limits: bool = True) -> bool:
    match node:
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str() as text):
            return fits(value, text)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _fits(value, left, limits) or _fits(value, right, limits)
        case ast.Subscript(value=outer, slice=inner):
            return _fits_subscript(value, _head(outer), inner, node, limits)
    name = _head(node)
    if name in _SCALARS:
        return _fits_scalar(value, name)
    if name in _LISTS or name in ("tuple", "Tuple"):
        return _is_list(value)
    if name in _TABLES:
        return isinstance(value, dict)
    return True  # Any, Tensor, a class of the project: nothing that the text of a config could show wrong


def _fits_subscript(value: Any, outer: str, inner: ast.expr, node: ast.Subscript, limits: bool) -> bool:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if outer == "Literal":
        return any(value == item and type(value) is type(item) for item in _literals(node))
    if outer == "Optional":
        return value is None or _fits(value, inner, limits)
    if outer == "Union":
        return any(_fits(value, item, limits) for item in items)
    if outer in _WRAPPERS:
        held = annotated(node)[1] if limits else []
        return _fits(value, items[0], limits) and all(limit.holds(value) for limit in held)
    if outer in _LISTS:
        return _is_list(value) and (_head(items[0]) == "Any" or all(_fits(v, items[0], limits) for v in value))
    if outer in ("tuple", "Tuple"):
        return _fits_tuple(value, items, limits)
    if outer in _TABLES:
        return isinstance(value, dict) and (len(items) < 2 or all(_fits(v, items[1], limits) for v in value.values()))
    return True


def _fits_tuple(value: Any, items: list[ast.expr], limits: bool) -> bool:
    if not _is_list(value):
        return False
    if len(items) == 2 and isinstance(items[1], ast.Constant) and items[1].value is ...:
        return all(_fits(v, items[0], limits) for v in value)
    return len(value) == len(items) and all(_fits(v, item, limits) for v, item in zip(value, items, strict=True))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sized) and not isinstance(value, str | bytes | Mapping)


def _fits_scalar(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "bool"  # Python counts true as the number 1; nobody who writes true means it
    return isinstance(value, _SCALARS[name])


def _like_default(value: Any, default: str) -> bool:
    """A sloppy annotation (`ratio: int = 0.5`) does not outrule a scalar of the default's own type."""
    try:
        example = ast.literal_eval(default)
    except (ValueError, SyntaxError, MemoryError):
        return False
    return type(example) is type(value) and not isinstance(value, list | dict)


def _head(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return "None" if node.value is None else ""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _literals(node: ast.Subscript) -> list[Any]:
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [item.value for item in items if isinstance(item, ast.Constant)]


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _say(node: ast.expr) -> str:
    match node:
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return " or ".join(dict.fromkeys([_say(left), _say(right)]))
        case ast.Subscript(value=outer, slice=inner):
            return _say_subscript(_head(outer), inner, node)
    name = _head(node)
    if name in _LISTS or name in ("tuple", "Tuple"):
        return "a list"
    return "a table" if name in _TABLES else _WORDS.get(name, ast.unparse(node))


def _say_subscript(outer: str, inner: ast.expr, node: ast.Subscript) -> str:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if outer == "Literal":
        return "one of " + ", ".join(map(repr, _literals(node)))
    if outer == "Optional":
        return f"{_say(inner)} or none"
    if outer == "Union":
        return " or ".join(dict.fromkeys(map(_say, items)))
    if outer in _WRAPPERS:
        return ", ".join([_say(items[0]), *(limit.rule.removeprefix("be ") for limit in annotated(node)[1])])
    if outer in _LISTS:
        return f"a list of {_plural(items[0])}"
    if outer in ("tuple", "Tuple"):
        repeated = len(items) == 2 and isinstance(items[1], ast.Constant) and items[1].value is ...
        return (
            f"a list of {_plural(items[0])}"
            if repeated
            else f"a list of {len(items)} values ({', '.join(map(_say, items))})"
        )
    return "a table" if outer in _TABLES else ast.unparse(node)


def _plural(node: ast.expr) -> str:
    words = {
        "int": "whole numbers",
        "float": "numbers",
        "str": "texts",
        "bool": "switches",
        "Path": "paths",
        "Any": "values",
    }
    base = annotated(node)[0]
    return words.get(_head(base), f"{ast.unparse(base)} values")
