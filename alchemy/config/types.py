"""Whether a value of the config fits the annotation of a parameter."""

from __future__ import annotations

import ast
import datetime
from functools import lru_cache
from typing import Any

_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "complex": (complex, float, int),
    "str": (str,),
    "bool": (bool,),
    "bytes": (bytes,),
    "None": (type(None),),
    "NoneType": (type(None),),
    "Path": (str,),
    "PurePath": (str,),
    "PathLike": (str,),
    "StrPath": (str,),
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
    return tree is None or _fits(value, tree) or (not choices(annotation) and _like_default(value, default))


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


def items_of(annotation: str) -> str:
    """The annotation of what a table holds, of an annotation that takes a table; nothing where it takes any, or none.

    >>> items_of("int | dict[str, float]"), items_of("dict")
    ('float', '')
    """
    tree = _parse(annotation)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Subscript) and _head(node.value) in _TABLES and isinstance(node.slice, ast.Tuple):
            return ast.unparse(node.slice.elts[-1])
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


def _fits(value: Any, node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str() as text):
            return fits(value, text)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _fits(value, left) or _fits(value, right)
        case ast.Subscript(value=outer, slice=inner):
            return _fits_subscript(value, _head(outer), inner, node)
    name = _head(node)
    if name in _SCALARS:
        return _fits_scalar(value, name)
    if name in _LISTS:
        return isinstance(value, list | tuple)
    if name in ("tuple", "Tuple"):
        return isinstance(value, list | tuple)
    if name in _TABLES:
        return isinstance(value, dict)
    return True  # Any, Tensor, a class of the project: nothing that the text of a config could show wrong


def _fits_subscript(value: Any, outer: str, inner: ast.expr, node: ast.Subscript) -> bool:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if outer == "Literal":
        return any(value == item and type(value) is type(item) for item in _literals(node))
    if outer == "Optional":
        return value is None or _fits(value, inner)
    if outer == "Union":
        return any(_fits(value, item) for item in items)
    if outer in _WRAPPERS:
        return _fits(value, items[0])
    if outer in _LISTS:
        return isinstance(value, list | tuple) and all(_fits(v, items[0]) for v in value)
    if outer in ("tuple", "Tuple"):
        return _fits_tuple(value, items)
    if outer in _TABLES:
        return isinstance(value, dict) and (len(items) < 2 or all(_fits(v, items[1]) for v in value.values()))
    return True


def _fits_tuple(value: Any, items: list[ast.expr]) -> bool:
    if not isinstance(value, list | tuple):
        return False
    if len(items) == 2 and isinstance(items[1], ast.Constant) and items[1].value is ...:
        return all(_fits(v, items[0]) for v in value)
    return len(value) == len(items) and all(_fits(v, item) for v, item in zip(value, items, strict=True))


def _fits_scalar(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "bool"  # Python counts true as the number 1; nobody who writes true means it
    return isinstance(value, _SCALARS[name])


def _like_default(value: Any, default: str) -> bool:
    """A sloppy annotation (`ratio: int = 0.5`) does not outrule a value of the default's own type."""
    try:
        example = ast.literal_eval(default)
    except (ValueError, SyntaxError, MemoryError):
        return False
    return type(example) is type(value) if example is not None else value is None


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
        return _say(items[0])
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
    words = {"int": "whole numbers", "float": "numbers", "str": "texts", "bool": "switches", "Path": "paths"}
    return words.get(_head(node), f"{ast.unparse(node)} values")
