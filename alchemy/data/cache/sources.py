"""The code that a function or a class runs: its module, and every module of the project that this one imports."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import alchemy
from alchemy.files import hash_file, hash_text, hash_tree
from alchemy.registry import ENTRY_MODULES

ROOMS = ("data", "pipeline", "text")  # of this package: what a sample passes through
RUN = ("sym_tbl", "current_run")  # ways to reach the run from anywhere
ASKING = (ast.alias, ast.Attribute)
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
STANDARD = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}


class Sources:
    """Collects what code is made of: hashes of the project's modules, versions of the packages that they use.

    `files` are those that the code names: a text in the source that is the name of a file.
    """

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.files: set[str] = set()
        self.seen: set[str] = set()
        self.own: dict[str, bool] = {}  # whether a name is that of a module or package of the project
        self.asks_run = False
        self.outdated: list[str] = []  # modules that were edited after they had been imported

    def add(self, name: str) -> bool:
        """Takes in a module and what it imports; False where it has no source that could be looked at."""
        top = name.partition(".")[0]
        if name in self.seen or name in ("builtins", "") or top in sys.stdlib_module_names - {"__main__"}:
            return True
        self.seen.add(name)
        if top == "alchemy":
            self._alchemy(name)
            return True
        spec = _spec(name)
        if spec is None or not (spec.origin or spec.submodule_search_locations):
            return False
        if spec.origin is None or spec.origin == "namespace":  # a folder without code of its own
            return True
        if not _is_own(spec.origin):
            if f"the version of {top}" not in self.facts:
                self.facts[f"the version of {top}"] = version(top)
            return True
        self.add(name.rpartition(".")[0])  # the package that it is in is imported first
        digest = hash_file(spec.origin)
        self.facts[f"the source of {name if name not in ENTRY_MODULES else spec.origin}"] = digest
        if spec.origin.endswith(".py"):
            self._read(name, spec, digest)
        return True

    def _alchemy(self, name: str) -> None:
        if "the source of alchemy" not in self.facts:
            root = Path(alchemy.__file__).parent
            self.facts["the source of alchemy"] = hash_text("".join(hash_tree(root / room) for room in ROOMS))
        room = name.split(".")[1:2]
        spec = _spec(name)
        if room and room[0] not in ROOMS and spec is not None and spec.origin:
            self.facts[f"the source of {name}"] = hash_file(spec.origin)

    def _read(self, name: str, spec: ModuleSpec, digest: str) -> None:
        text = _looked_into(str(spec.origin), digest)
        if text is None:
            return
        package = spec.name if spec.submodule_search_locations else spec.parent or ""
        for other in _imported(text.tree, package):
            if _spec(other) is not None:
                self.add(other)
        self.asks_run |= text.asks_run
        self.files |= set(_named_files(text.words, os.path.dirname(str(spec.origin))))
        for word in text.words:
            self.mentioned(word)
        if not _is_as_written(sys.modules.get(name), text):
            self.outdated.append(name)

    def mentioned(self, word: str) -> None:
        """A text such as `src.text.words` may be imported by its name later on."""
        top = word.partition(".")[0]
        if not DOTTED.fullmatch(word):
            return
        if top not in self.own:
            self.own[top] = _is_own_name(top)
        if not self.own[top]:
            return
        name = word
        while name and _spec(name) is None:
            name = name.rpartition(".")[0]
        self.add(name)


class Text(NamedTuple):
    """What the source of a module tells."""

    tree: ast.Module
    words: list[str]  # the texts in it
    asks_run: bool
    codes: set[Any]  # what its functions come to
    constants: dict[str, Any]  # plain values that it gives names to


@functools.lru_cache(maxsize=512)
def _looked_into(path: str, digest: str) -> Text | None:
    """The digest is that of the file: another content is looked into again."""
    try:
        tree = ast.parse(Path(path).read_bytes())
        codes = {_fingerprint(code) for code in _nested(compile(tree, path, "exec", dont_inherit=True))}
    except (SyntaxError, ValueError, OSError):
        return None
    nodes = list(ast.walk(tree))
    words = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    names = [getattr(node, "name", "") or getattr(node, "attr", "") for node in nodes if isinstance(node, ASKING)]
    return Text(tree, words, any(name in RUN for name in names), codes, _constants(tree))


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names that are given a plain value once and for all; what is empty at first may be filled later on."""
    times = Counter(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and times[node.targets[0].id] == 1:
            with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return {name: value for name, value in found.items() if value or not isinstance(value, list | dict | set)}


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from _nested(item)


def _fingerprint(code: types.CodeType) -> tuple[Any, ...]:
    plain = [repr(item) for item in code.co_consts if not isinstance(item, types.CodeType | frozenset)]
    sets = [sorted(map(repr, item)) for item in code.co_consts if isinstance(item, frozenset)]
    return code.co_name, code.co_code, code.co_names, code.co_varnames, repr((plain, sets))


def _is_as_written(module: Any, text: Text) -> bool:
    """Whether a module in memory is what its file says now: it may have been edited since it was imported."""
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if module is None or type(loader) is not SourceFileLoader:  # not imported yet, or rewritten on the way in
        return True
    members = vars(module)
    now = ((members.get(name), value) for name, value in text.constants.items())
    if any(type(one) is not type(other) or one != other for one, other in now):
        return False
    holders = [members, *(vars(item) for item in members.values() if isinstance(item, type))]
    for item in (item for holder in holders for item in holder.values()):
        function = getattr(item, "__func__", None) or getattr(item, "fget", None) or item
        code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
        if (
            isinstance(code, types.CodeType)
            and code.co_filename == loader.path
            and _fingerprint(code) not in text.codes
        ):
            return False
    return True


def version(package: str) -> str:
    """The version of an installed package, by the name that it is imported by."""
    if package == "python":
        return sys.version
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    known = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(known, str):
        return known
    names = importlib.metadata.packages_distributions().get(package, [])
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names))) or "unknown"


def _spec(name: str) -> ModuleSpec | None:
    """Where a module comes from; nothing is imported to find out."""
    module: Any = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None)
    if spec is None and file is not None:  # a script, or a module that somebody has put there
        return ModuleSpec(name, None, origin=os.path.abspath(file))
    if module is not None:
        return spec if isinstance(spec, ModuleSpec) else None
    above, _, _ = name.rpartition(".")
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        if not above:
            return importlib.util.find_spec(name)
        parent = _spec(above)
        folders = parent.submodule_search_locations if parent is not None else None
        return None if folders is None else PathFinder.find_spec(name, list(folders))
    return None


@functools.lru_cache(maxsize=4096)
def is_own_module(name: str) -> bool:
    """Whether a module is one of the project."""
    top, spec = name.partition(".")[0], _spec(name)
    standard = top == "alchemy" or top in sys.stdlib_module_names - {"__main__"}
    return not standard and spec is not None and spec.origin is not None and _is_own(spec.origin)


def found_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function finds by the names in its code: in its module, and in modules of the project that it names."""
    names = {name for code in _nested(function.__code__) for name in code.co_names}
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        if not isinstance(value, types.ModuleType):
            yield name, value
        elif is_own_module(value.__name__):
            inside = {word: vars(value)[word] for word in sorted(names & vars(value).keys())}
            yield from ((f"{name}.{w}", v) for w, v in inside.items() if not isinstance(v, types.ModuleType))


def _is_own_name(top: str) -> bool:
    if top == "alchemy" or top in sys.stdlib_module_names:
        return False
    spec = _spec(top)
    folders = [*(spec.submodule_search_locations or ())] if spec is not None else []
    return spec is not None and _is_own(spec.origin or os.path.join(next(iter(folders), ""), "__init__.py"), folders)


def _is_own(origin: str, folders: Sequence[str] = ()) -> bool:
    """Whether a file, or a folder of modules, belongs to the project, and not to Python or an installed package."""
    parts = Path(origin).parts
    if "site-packages" in parts or "dist-packages" in parts or not (folders or os.path.isfile(origin)):
        return False
    return not any(origin.startswith(f"{folder}{os.sep}") for folder in STANDARD if folder)


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """The modules that a source imports, also inside of functions; each name that may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                with contextlib.suppress(ImportError, ValueError):
                    base = importlib.util.resolve_name("." * node.level + base, package)
            if base:
                yield base
                own = not base.startswith("alchemy") and base.partition(".")[0] not in sys.stdlib_module_names
                yield from (f"{base}.{alias.name}" for alias in node.names if own and _is_module(base, alias.name))


def _is_module(base: str, name: str) -> bool:
    """Whether `from base import name` gives a module."""
    found = getattr(sys.modules.get(base), name, None)
    if found is not None:
        return f"{base}.{name}" in sys.modules
    spec = _spec(base)
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    return any(os.path.exists(os.path.join(folder, name + ending)) for folder in folders for ending in ("", ".py"))


def _named_files(words: Iterable[str], folder: str) -> Iterator[str]:
    for word in words:
        if 2 < len(word) < 256:
            # seen from where the program runs, or from beside the source
            yield from (path for path in (word, os.path.join(folder, word)) if os.path.isfile(path))
