"""The code that a function or a class runs: its module, and every module of the project that this one imports."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import alchemy
from alchemy.files import hash_file, hash_text, hash_tree
from alchemy.registry import ENTRY_MODULES

ROOMS = ("data", "pipeline", "text")  # of this package: what a sample passes through
RUN = ("sym_tbl", "current_run")  # ways to reach the run from anywhere
STANDARD = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}


class Sources:
    """Collects what code is made of: hashes of the project's modules, versions of the packages that they use.

    `files` are those that the code names: a text in the source that is the name of a file.
    """

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.files: set[str] = set()
        self.seen: set[str] = set()
        self.asks_run = False

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
            self.facts[f"the version of {top}"] = version(top)
            return True
        self.facts[f"the source of {name if name not in ENTRY_MODULES else spec.origin}"] = hash_file(spec.origin)
        if spec.origin.endswith(".py"):
            self._read(spec)
        return True

    def _alchemy(self, name: str) -> None:
        if "the source of alchemy" not in self.facts:
            root = Path(alchemy.__file__).parent
            self.facts["the source of alchemy"] = hash_text("".join(hash_tree(root / room) for room in ROOMS))
        room = name.split(".")[1:2]
        spec = _spec(name)
        if room and room[0] not in ROOMS and spec is not None and spec.origin:
            self.facts[f"the source of {name}"] = hash_file(spec.origin)

    def _read(self, spec: ModuleSpec) -> None:
        assert spec.origin is not None
        with contextlib.suppress(SyntaxError, OSError):
            tree = ast.parse(Path(spec.origin).read_bytes())
            for name in _imported(tree, spec.name if spec.submodule_search_locations else spec.parent or ""):
                if _spec(name) is not None:
                    self.add(name)
            names = (node for node in ast.walk(tree) if isinstance(node, ast.alias | ast.Attribute))
            self.asks_run |= any((getattr(node, "name", "") or getattr(node, "attr", "")) in RUN for node in names)
            self.files |= set(_named_files(tree, os.path.dirname(spec.origin)))


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
    module: Any = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None)
    if spec is None and file is not None:  # a script, or a module that somebody has put there
        return ModuleSpec(name, None, origin=os.path.abspath(file))
    if spec is not None:
        return spec if isinstance(spec, ModuleSpec) else None
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        return None if module is not None else importlib.util.find_spec(name)
    return None


def _is_own(origin: str) -> bool:
    """Whether a file belongs to the project, and not to Python or an installed package."""
    parts = Path(origin).parts
    if "site-packages" in parts or "dist-packages" in parts or not os.path.isfile(origin):
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


def _named_files(tree: ast.AST, folder: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 2 < len(node.value) < 256:
            # seen from where the program runs, or from beside the source
            yield from (path for path in (node.value, os.path.join(folder, node.value)) if os.path.isfile(path))
