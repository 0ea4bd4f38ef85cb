"""Read the parameters of a constructor, and the names and strings in its code, from a syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from alchemy.annotations import expand_aliases, format_annotation
from alchemy.config.module_files import Import, Module, locate, read_module

MISSING = "<required>"


@dataclass(frozen=True)
class Param:
    """One keyword parameter of a constructor, as written in its source."""

    name: str
    annotation: str = ""
    default: str = MISSING

    @property
    def required(self) -> bool:
        return self.default == MISSING

    def __str__(self) -> str:
        text = f"{self.name}: {format_annotation(self.annotation)}" if self.annotation else self.name
        return text if self.required else f"{text} = {self.default}"


_Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=4096)  # a changed file is parsed into another node and module; callers do not modify the result
def parameters_of(node: ast.ClassDef | _Function, module: Module) -> tuple[list[Param], bool, bool]:
    """Return the parameters, whether other keywords are accepted, and whether the class defines a constructor."""
    if not isinstance(node, ast.ClassDef):
        params, takes_kwargs = _function_parameters(node, module)
        return params, takes_kwargs, True
    function = _constructor(node)
    if function is not None:
        params, takes_kwargs = _function_parameters(function, module, bound=True)
        return params, takes_kwargs, True
    if is_dataclass(node) or any(map(_is_named_tuple, node.bases)):
        return [param for param in fields_of(node, module).values() if param is not None], False, True
    if any(isinstance(item, ast.Assign) and _names_init(item) for item in node.body):
        return [], True, True
    return [], False, False


def _function_parameters(node: _Function, module: Module, *, bound: bool = False) -> tuple[list[Param], bool]:
    """Return the keyword parameters of a function, without `self` if it is a method."""
    spec = node.args
    args = [*spec.posonlyargs, *spec.args]
    positional: list[ast.expr | None] = [*[None] * (len(args) - len(spec.defaults)), *spec.defaults]
    first = len(spec.posonlyargs) if not bound else max(1, len(spec.posonlyargs))
    rows: list[tuple[ast.arg, ast.expr | None]] = [
        *list(zip(args, positional, strict=True))[first:],
        *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
    ]
    return [_param(arg.arg, arg.annotation, default, module) for arg, default in rows], spec.kwarg is not None


@lru_cache(maxsize=1024)  # called for every part; callers do not modify the result
def literal_value(text: str) -> Any:
    """Return the value of a default written as a literal, or None for anything else."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError):
        return None


def words_in(node: ast.AST) -> set[str]:
    """Return all string constants, names, attributes, parameters and keywords below `node`."""
    words: set[str] = set()
    for item in ast.walk(node):
        match item:
            case ast.Constant(value=str() as text) if len(text) < 80:
                words.add(text)
                words.update(text.split("."))
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str() as name):
                words.add(name)
    return words


def forwards(node: ast.AST) -> bool:
    """Return whether code forwards a whole table (`f(**kwargs)`, `f(self.cfg)`), so that its keys are unknown."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and not _calls_super(call.func):
            if any(keyword.arg is None for keyword in call.keywords):
                return True
            if any(_is_table(argument) for argument in [*call.args, *(k.value for k in call.keywords)]):
                return True
    return False


def _calls_super(func: ast.expr) -> bool:
    match func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
            return True
    return False


def _is_table(value: ast.expr) -> bool:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("cfg", "config", "kwargs") or name.endswith("_cfg")
    return False


def _constructor(node: ast.ClassDef) -> _Function | None:
    for wanted in ("__init__", "__new__"):
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == wanted and not _is_overload(item):
                return item
    return None


def _is_overload(node: _Function) -> bool:
    return any(ast.unparse(d).endswith("overload") for d in node.decorator_list)


def is_dataclass(node: ast.ClassDef) -> bool:
    """Return whether the constructor of a class is generated from its fields."""
    targets = [decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list]
    named = any(ast.unparse(target).rpartition(".")[2] == "dataclass" for target in targets)
    return named and _constructor(node) is None


def _is_named_tuple(base: ast.expr) -> bool:
    return ast.unparse(base).rpartition(".")[2] == "NamedTuple"


def _names_init(item: ast.Assign) -> bool:
    return any(isinstance(t, ast.Name) and t.id in ("__init__", "__new__") for t in item.targets)


@lru_cache(maxsize=4096)  # as above
def fields_of(node: ast.ClassDef, module: Module) -> dict[str, Param | None]:
    """Return the fields of a dataclass or named tuple, with None for fields that are not constructor parameters."""
    found: dict[str, Param | None] = {}
    for item in node.body:
        match item:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                if "ClassVar" not in ast.unparse(annotation):
                    found[name] = (
                        None if _is_excluded(value) else _param(name, annotation, _field_default(value), module)
                    )
    return found


def _is_excluded(value: ast.expr | None) -> bool:
    match value:
        case ast.Call(keywords=keywords):
            return any(k.arg == "init" and ast.unparse(k.value) == "False" for k in keywords)
    return False


def _field_default(value: ast.expr | None) -> ast.expr | None:
    match value:
        case ast.Call(func=func, keywords=keywords) if ast.unparse(func).rpartition(".")[2] == "field":
            return next((k.value for k in keywords if k.arg in ("default", "default_factory")), None)
    return value


def _param(name: str, annotation: ast.expr | None, default: ast.expr | None, module: Module) -> Param:
    text = (
        expand_aliases(ast.unparse(annotation), lambda word: _expand_alias(word, module))
        if annotation is not None
        else ""
    )
    return Param(name, text, MISSING if default is None else ast.unparse(default))


def _expand_alias(name: str, module: Module | None, depth: int = 0) -> str:
    """Expand a type alias used in an annotation if it is defined in the module or imported from alchemy."""
    bound = module.names.get(name) if module is not None and depth < 4 else None
    if isinstance(bound, Import) and bound.attr and bound.module.startswith("alchemy."):
        place = locate(bound.module, ())
        return _expand_alias(bound.attr, read_module(bound.module, place) if place else None, depth + 1)
    if isinstance(bound, ast.Subscript | ast.BinOp):
        return expand_aliases(ast.unparse(bound), lambda word: _expand_alias(word, module, depth + 1))
    return ""
