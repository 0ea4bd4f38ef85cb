"""The code that a chain runs: the modules that it names, and the modules of the project that these import."""

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

from alchemy.data.cache.sample_store import Unkept
from alchemy.errors import is_library
from alchemy.files import hash_file
from alchemy.registry import ENTRY_MODULES

STANDARD = sys.stdlib_module_names - {"__main__"}
_seen: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()  # the hashes of sources when they were first looked at


class Sources:
    """Hashes of source files, by the names of their modules. Nothing is imported to find them."""

    def __init__(self) -> None:
        self.hashes: dict[str, str] = {}
        self.visited: set[tuple[str, bool]] = set()

    def add(self, name: str, *, own: bool = False) -> None:
        """Adds a module, its packages, and what it imports if it is one of the project; `own` adds only such a one."""
        if (name, own) in self.visited or not name or name.partition(".")[0] in STANDARD:
            return
        self.visited.add((name, own))
        self.add(name.rpartition(".")[0], own=own)  # its package is imported first
        path = _source(name)
        if path is None or (own and not _is_own(path)):
            return
        digest = hash_file(path)
        self.hashes[name if name not in ENTRY_MODULES else os.path.relpath(path)] = digest
        module = sys.modules.get(name)
        if module is not None and _is_own(path) and _seen.setdefault(module, digest) != digest:
            raise Unkept(f"the module {name} was edited after it had been imported; start the program again")
        if _is_own(path):
            for other in _imports(path, digest, name):
                self.add(other, own=True)

    def changed(self) -> list[str]:
        """The modules whose source is not as it was; what was imported in the meantime is known from now on."""
        now = Sources()
        for name, own in self.visited:
            now.add(name, own=own)
        return [name for name, digest in self.hashes.items() if now.hashes.get(name) != digest]


def _source(name: str) -> str | None:
    """The file of a module, imported or not; None for what has none."""
    module = sys.modules.get(name)
    if module is not None:
        file = module.__dict__.get("__file__")
        return file if isinstance(file, str) and os.path.isfile(file) else None
    inside = name.replace(".", os.sep)
    paths = (os.path.join(root, inside + ending) for root in sys.path for ending in (".py", f"{os.sep}__init__.py"))
    return next(filter(os.path.isfile, paths), None)


def _is_own(path: str) -> bool:
    """Whether a file belongs to the project, and not to alchemy, Python or an installed package."""
    return not is_library(os.path.abspath(path))


@functools.lru_cache(maxsize=1024)
def _imports(path: str, digest: str, name: str) -> tuple[str, ...]:
    """Each name that a source imports, also inside of functions; of `from a import b` both `a` and `a.b`."""
    package = name if os.path.basename(path) == "__init__.py" else name.rpartition(".")[0]
    with contextlib.suppress(OSError, SyntaxError, ValueError):  # an extension module, or one that cannot be imported
        return tuple(_imported(ast.parse(Path(path).read_bytes()), package))
    return ()


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                with contextlib.suppress(ImportError):
                    base = importlib.util.resolve_name("." * node.level + base, package)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
