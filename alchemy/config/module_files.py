"""Locate module files and the names they bind by reading source, never by importing."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import util as importing
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

LARGEST_SOURCE = 400_000  # bytes: longer files are generated code, and parsing them would dominate the check


@dataclass(frozen=True)
class Place:
    """The location of a module on disk: a source file, package folders, or compiled code (both fields are empty)."""

    file: str = ""
    folders: tuple[str, ...] = ()

    @property
    def package(self) -> bool:
        return bool(self.folders)


@dataclass(frozen=True)
class Import:
    """A name bound by an import: `module` itself if `attr` is empty, otherwise an attribute or submodule of it."""

    module: str
    attr: str = ""


_Binding = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr | Import


@dataclass(eq=False)
class Module:
    """The names that one source file binds at its top level."""

    name: str
    path: str
    package: bool = False
    names: dict[str, _Binding] = field(default_factory=dict)
    aliases: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # alias -> (base as written, class)
    stars: list[str] = field(default_factory=list)
    dynamic: bool = False  # names may appear at run time: a module-level __getattr__, or sys.modules[...] = ...
    error: tuple[int, str] | None = None  # line and message, if the file has a syntax error
    tree: ast.Module = field(default_factory=lambda: ast.Module(body=[], type_ignores=[]))

    def public(self) -> list[str]:
        """Return the names that a config could refer to, for suggestions."""
        parts = [n for n, b in self.names.items() if not n.startswith("_") and not isinstance(b, ast.expr)]
        return [*self.aliases, *(n for n in parts if n not in self.aliases)]

    def own(self) -> list[str]:
        """Return the parts that a module defines or explicitly re-exports, classes first."""
        aliased = {klass for rows in self.aliases.values() for _, klass in rows if klass not in self.aliases}
        names = [n for n in self.public() if n not in aliased and (n in self.aliases or self._offers(n))]
        return sorted(names, key=lambda n: not n[:1].isupper())

    def _offers(self, name: str) -> bool:
        binding, listed = self.names[name], self.names.get("__all__")
        if not isinstance(binding, Import):
            return True
        if isinstance(listed, ast.List | ast.Tuple) and name in [ast.unparse(item).strip("'") for item in listed.elts]:
            return True
        return self.package and bool(binding.attr) and binding.module.startswith(f"{self.name}.")

    def at(self, line: int) -> str:
        """Return `file:line`, relative to the working directory if the file is inside it."""
        return f"{_shorten(self.path)}:{line}"


def _shorten(path: str) -> str:
    """Return a path relative to the working directory if it is inside it."""
    return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path


def _search_path(roots: Sequence[str]) -> tuple[str, ...]:
    """Return the folders to search for top-level names: the project's folders first, then `sys.path`."""
    here = os.getcwd()
    return _folders((*(os.path.abspath(r) for r in roots), *(p or here for p in sys.path), _OURS))


_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@lru_cache(maxsize=64)
def _folders(entries: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e for e in entries if os.path.isdir(e)))


def locate(name: str, roots: Sequence[str]) -> Place | None:
    """Return the location of a module, or None if there is no such module."""
    top, *rest = name.split(".")
    place = _find_in_folders(_search_path(roots), top) or _find_installed(top)
    for piece in rest:
        place = _find_in_folders(place.folders, piece) if place else None
    return place


def _find_in_folders(folders: Iterable[str], name: str) -> Place | None:
    if not name:
        return None
    spaces = []
    for folder in folders:
        base = os.path.join(folder, name)
        if os.path.isfile(init := os.path.join(base, "__init__.py")):
            return Place(init, (base,))
        if os.path.isfile(base + ".py"):
            return Place(base + ".py")
        if any(os.path.isfile(base + suffix) for suffix in EXTENSION_SUFFIXES):
            return Place()
        if os.path.isdir(base):
            spaces.append(base)
    return Place("", tuple(spaces)) if spaces else None


def _find_installed(name: str) -> Place | None:
    """Locate a top-level name through import hooks (editable installs, built-in modules) without importing it."""
    try:
        spec = importing.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    file = spec.origin if spec.origin and spec.origin.endswith(".py") else ""
    return Place(file, tuple(spec.submodule_search_locations or ()))


def siblings(name: str, roots: Sequence[str]) -> list[str]:
    """Return the dotted names of the modules next to `name`, for suggestions."""
    head, _, _ = name.rpartition(".")
    parent = locate(head, roots) if head else None
    folders = parent.folders if parent else (_search_path(roots)[: len(roots)] if not head else ())
    found = {entry for folder in folders for entry in _modules_in(folder)}
    return sorted(f"{head}.{entry}" if head else entry for entry in found)


def _modules_in(folder: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        stem, suffix = os.path.splitext(entry.name)
        if stem.isidentifier() and stem != "__init__" and (suffix == ".py" or (not suffix and entry.is_dir())):
            yield stem


_read: dict[str, tuple[tuple[int, int], Module]] = {}  # shared by the whole process; a changed file is read again


def read_module(name: str, place: Place, limit: int = LARGEST_SOURCE) -> Module | None:
    """Read the names in the module at `place`; return None if it has no source or more than `limit` bytes."""
    try:
        stat = os.stat(place.file)
    except OSError:
        return None
    stamp = (stat.st_mtime_ns, stat.st_size)
    known = _read.get(place.file)
    if known and known[0] == stamp and known[1].name == name:
        return known[1]
    if stat.st_size > limit:
        return None
    module = _parse(Module(name, place.file, place.package))
    _read[place.file] = (stamp, module)
    return module


def _parse(module: Module) -> Module:
    try:
        source = Path(module.path).read_bytes()
        module.tree = ast.parse(source, module.path)
    except SyntaxError as e:
        module.error = (e.lineno or 1, e.msg)
    except (OSError, ValueError, RecursionError, MemoryError) as e:
        module.error = (1, str(e))
    else:
        for statement in _statements(module.tree.body):
            _bind(module, statement)
    return module


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement that can bind a name at module level; callers use the first binding of a name."""
    for statement in body:
        yield statement
        match statement:
            case ast.If() | ast.With():
                yield from _statements(statement.body)
                yield from _statements(statement.orelse if isinstance(statement, ast.If) else [])
            case ast.Try():
                handled = [item for handler in statement.handlers for item in handler.body]
                yield from _statements([*statement.body, *statement.orelse, *statement.finalbody, *handled])


def _bind(module: Module, statement: ast.stmt) -> None:
    put = module.names.setdefault
    match statement:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            put(statement.name, statement)
            module.dynamic |= statement.name == "__getattr__"
            for decorator in statement.decorator_list:
                _record_alias(module, decorator, statement.name)
        case ast.Import():
            for a in statement.names:
                top = a.name.split(".")[0]
                put(a.asname or top, Import(a.name if a.asname else top))
        case ast.ImportFrom():
            source = absolute(module, statement.module or "", statement.level)
            for a in statement.names:
                if a.name == "*":
                    module.stars.append(source)
                else:
                    put(a.asname or a.name, Import(source, a.name))
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            put(name, value)
            _record_register_call(module, value)
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            for target, value in zip(names, values, strict=False):
                if isinstance(target, ast.Name):
                    put(target.id, value)
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(attr="modules"))]):
            module.dynamic = True
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            put(name, value)
        case ast.Expr(value=value):
            _record_register_call(module, value)


def absolute(module: Module, name: str, level: int) -> str:
    """Return the absolute name of the module in `from ..name import`, relative to `module`."""
    if not level:
        return name
    parts = module.name.split(".")
    kept = parts[: len(parts) - level + (1 if module.package else 0)]
    return ".".join([*kept, name] if name else kept)


def _record_alias(module: Module, call: ast.expr, class_name: str) -> None:
    """Record `@Base.register("alias")`; without an alias, the class name is the key."""
    match call:
        case ast.Call(func=ast.Attribute(value=base, attr="register")):
            given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "alias")]
            texts = [g.value for g in given if isinstance(g, ast.Constant) and isinstance(g.value, str)]
            alias = texts[0] if texts else class_name
            module.aliases.setdefault(alias, []).append((ast.unparse(base), class_name))


def _record_register_call(module: Module, value: ast.expr) -> None:
    match value:  # Base.register("alias")(Class), as a statement or assigned
        case ast.Call(func=ast.Call() as inner, args=[ast.Name(id=name)]):
            _record_alias(module, inner, name)
