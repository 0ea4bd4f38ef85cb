"""Find the source files a chain depends on: the modules it refers to, and the project modules they import."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from alchemy.data.cache.sample_store import NotCacheable
from alchemy.errors import is_library
from alchemy.files import hash_file
from alchemy.registry import ENTRY_MODULES

STANDARD = sys.stdlib_module_names - {"__main__"}
_seen: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()  # source hashes when first seen


class Sources:
    """Hashes of source files by module name. The files are located without importing any module."""

    def __init__(self) -> None:
        self.hashes: dict[str, str] = {}
        self.visited: set[tuple[str, bool]] = set()

    def add(self, name: str, *, own: bool = False) -> None:
        """Add a module, its packages and, for a project module, its imports; `own` skips non-project modules."""
        if (name, own) in self.visited or not name or name.partition(".")[0] in STANDARD:
            return
        self.visited.add((name, own))
        self.add(name.rpartition(".")[0], own=own)  # its package is imported first
        path = _find_source(name)
        if path is None or (own and not _is_own(path)):
            return
        digest = hash_file(path)
        self.hashes[name if name not in ENTRY_MODULES else os.path.relpath(path)] = digest
        module = sys.modules.get(name)
        if module is not None and _is_own(path) and _seen.setdefault(module, digest) != digest:
            raise NotCacheable(f"the module {name} was edited after it was imported; restart the program")
        if _is_own(path):
            for other in _read_imports(path, digest, name):
                self.add(other, own=True)

    def changed(self) -> list[str]:
        """Return the modules whose source has changed."""
        now = Sources()
        for name, own in self.visited:
            now.add(name, own=own)
        return [name for name, digest in self.hashes.items() if now.hashes.get(name) != digest]


def _find_source(name: str) -> str | None:
    """Return the source file of a module, which need not be imported; None if no source file exists."""
    module = sys.modules.get(name)
    if module is not None:
        file = module.__dict__.get("__file__")
        return file if isinstance(file, str) and os.path.isfile(file) else None
    inside = name.replace(".", os.sep)
    paths = (os.path.join(root, inside + ending) for root in sys.path for ending in (".py", f"{os.sep}__init__.py"))
    return next(filter(os.path.isfile, paths), None)


def _is_own(path: str) -> bool:
    """Return whether a file belongs to the project, not to alchemy, Python or an installed package."""
    return not is_library(os.path.abspath(path))


@functools.lru_cache(maxsize=1024)
def _read_imports(path: str, digest: str, name: str) -> tuple[str, ...]:
    """Return every name a file imports, including in functions; `from a import b` yields both `a` and `a.b`."""
    package = name if os.path.basename(path) == "__init__.py" else name.rpartition(".")[0]
    with contextlib.suppress(OSError, SyntaxError, ValueError):  # an extension module, or not valid Python
        return tuple(_iter_imports(ast.parse(Path(path).read_bytes()), package))
    return ()


def _iter_imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                with contextlib.suppress(ImportError):
                    base = importlib.util.resolve_name("." * node.level + base, package)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
