"""Where a module's file is, which names it binds: found by reading, never by importing."""

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

LARGEST_SOURCE = 400_000  # bytes: a longer file is generated code, and reading it would cost more than the whole check


@dataclass(frozen=True)
class Place:
    """What a dotted module name stands for on disk: a file to read, folders to look into, or compiled code."""

    file: str = ""
    folders: tuple[str, ...] = ()

    @property
    def package(self) -> bool:
        return bool(self.folders)


@dataclass(frozen=True)
class Import:
    """A name bound by an import: `module` itself when `attr` is empty, else one attribute (or submodule) of it."""

    module: str
    attr: str = ""


_Binding = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr | Import


@dataclass
class Module:
    """The names that one source file binds at its top level."""

    name: str
    path: str
    package: bool = False
    names: dict[str, _Binding] = field(default_factory=dict)
    aliases: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # alias -> (base as written, class)
    stars: list[str] = field(default_factory=list)
    dynamic: bool = False  # names may appear at run time: a module-level __getattr__, or sys.modules[...] = ...
    error: tuple[int, str] | None = None  # line and message, for a file that does not parse
    tree: ast.Module = field(default_factory=lambda: ast.Module(body=[], type_ignores=[]))

    def public(self) -> list[str]:
        """The names a config could mean, for did-you-mean."""
        parts = [n for n, b in self.names.items() if not n.startswith("_") and not isinstance(b, ast.expr)]
        return [*self.aliases, *(n for n in parts if n not in self.aliases)]

    def own(self) -> list[str]:
        """The parts that a module offers, classes first: those it defines, and what it re-exports on purpose."""
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
        """`file:line`, relative to the working folder where that is shorter."""
        return f"{_shown(self.path)}:{line}"


def _shown(path: str) -> str:
    """A path as people know it: relative when it lies under the working folder."""
    return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path


def _search_path(roots: Sequence[str]) -> tuple[str, ...]:
    """The folders a top-level name is looked up in: the project's first, then Python's own, each once."""
    here = os.getcwd()
    return _folders((*(os.path.abspath(r) for r in roots), *(p or here for p in sys.path), _OURS))


_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@lru_cache(maxsize=64)
def _folders(entries: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e for e in entries if os.path.isdir(e)))


def locate(name: str, roots: Sequence[str]) -> Place | None:
    """The place of a module, or None when there is none of that name."""
    top, *rest = name.split(".")
    place = _inside(_search_path(roots), top) or _installed(top)
    for piece in rest:
        place = _inside(place.folders, piece) if place else None
    return place


def _inside(folders: Iterable[str], name: str) -> Place | None:
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


def _installed(name: str) -> Place | None:
    """A top-level name that only an import hook knows (editable installs, built-in modules); imports nothing."""
    try:
        spec = importing.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    file = spec.origin if spec.origin and spec.origin.endswith(".py") else ""
    return Place(file, tuple(spec.submodule_search_locations or ()))


def siblings(name: str, roots: Sequence[str]) -> list[str]:
    """Dotted names of the modules that lie beside `name`, for did-you-mean."""
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


_read: dict[str, tuple[tuple[int, int], Module]] = {}  # per process; a changed file is read again


def read_module(name: str, place: Place, limit: int = LARGEST_SOURCE) -> Module | None:
    """The names of the module at `place`; None where there is no source, or more than `limit` bytes of it."""
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
    """Every statement that can bind at module level, in the order in which the first binding of a name counts."""
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
                _alias(module, decorator, statement.name)
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
            _registered_call(module, value)
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            for target, value in zip(names, values, strict=False):
                if isinstance(target, ast.Name):
                    put(target.id, value)
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(attr="modules"))]):
            module.dynamic = True
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            put(name, value)
        case ast.Expr(value=value):
            _registered_call(module, value)


def absolute(module: Module, name: str, level: int) -> str:
    """The full name of `from ..name import`, as seen from `module`."""
    if not level:
        return name
    parts = module.name.split(".")
    kept = parts[: len(parts) - level + (1 if module.package else 0)]
    return ".".join([*kept, name] if name else kept)


def _alias(module: Module, call: ast.expr, class_name: str) -> None:
    """Note `@Base.register("alias")`; without an alias the class's own name is the key."""
    match call:
        case ast.Call(func=ast.Attribute(value=base, attr="register")):
            given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "alias")]
            texts = [g.value for g in given if isinstance(g, ast.Constant) and isinstance(g.value, str)]
            alias = texts[0] if texts else class_name
            module.aliases.setdefault(alias, []).append((ast.unparse(base), class_name))


def _registered_call(module: Module, value: ast.expr) -> None:
    match value:  # Base.register("alias")(Class), as a statement or assigned
        case ast.Call(func=ast.Call() as inner, args=[ast.Name(id=name)]):
            _alias(module, inner, name)
