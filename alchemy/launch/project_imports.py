"""Make the modules of a project importable."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from alchemy.errors import AlchemyError, is_library
from alchemy.files import hash_file
from alchemy.registry import own_packages, unregister_package
from alchemy.trust import record_of, untrusted_record


def import_roots(user_dir: str = "src") -> list[str]:
    """Return the folders for imports such as `src.model`: the parent of `user_dir`, and the working directory.

    Code in a record is imported from there alone: the working directory may have another version of it.
    """
    parent = os.path.dirname(os.path.abspath(user_dir))
    return [parent] if record_of(user_dir) else list(dict.fromkeys((parent, os.getcwd())))


def add_to_path(user_dir: str = "src") -> None:
    """Put the project first on the import path.

    Raise an error for an untrusted record, whose files could shadow other modules.
    """
    for place in (user_dir, *import_roots(user_dir)):
        if inside := untrusted_record(place):
            way = f"read the record and then run `alchemy trust {shlex.quote(inside)}`"
            hint = f"start from the folder of your project, or {way}"
            raise AlchemyError(f"cannot import code from {place}: it is in an untrusted record", hint=hint)
    for below in (init.parent for root in import_roots(user_dir) for init in Path(root).glob("*/__init__.py")):
        if untrusted_record(below) == os.path.realpath(below):
            hint = "remove the file or move the record: Python would import this folder as a package"
            raise AlchemyError(f"the record {below} has an __init__.py", hint=hint)
    if record_of(user_dir):
        _remove_working_directory()
        # a record stays as it is; child processes read the variable
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    for folder in reversed(import_roots(user_dir)):
        if sys.path[:1] != [folder]:
            sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    check_not_shadowed()  # child processes use the same path
    package = os.path.basename(os.path.abspath(user_dir))
    own_packages.add(package)
    _unload_others(package, import_roots(user_dir))


def _remove_working_directory() -> None:
    """Keep Python from importing modules in the working directory, unless it contains this package."""
    here = os.getcwd()
    if not os.path.samefile(here, Path(__file__).parents[2]):
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]


def imported_files(user_dir: str = "src") -> dict[str, Path]:
    """Return the project files imported so far, keyed by path relative to the import root."""
    modules = [module for name, module in list(sys.modules.items()) if name != "__main__"]
    files = [module.__dict__.get("__file__") for module in modules if isinstance(module, ModuleType)]
    starts = tuple(root.rstrip(os.sep) + os.sep for root in import_roots(user_dir))
    found = {}
    for file in files:  # thousands, at every save: the cheapest test first
        if isinstance(file, str) and file.startswith(starts) and not is_library(file):
            start = next(start for start in starts if file.startswith(start))
            found[Path(file[len(start) :]).as_posix()] = Path(file)
    return found


def find_file(name: str, user_dir: str = "src") -> Path | None:
    """Return the file for a path from `imported_files`, or None if it is missing."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    return next((path for root in (*import_roots(user_dir), *sys.path) if (path := Path(root, name)).is_file()), None)


def describe_changes(hashes: Mapping[str, str], user_dir: str = "src") -> list[str]:
    """Compare files from `imported_files` with their hashes; return for example `["src/model.py has changed"]`."""
    found = []
    for name, digest in hashes.items():
        path = find_file(name, user_dir)
        if path is None:
            found.append(f"{name} is missing")
        elif hash_file(path) != digest:
            found.append(f"{name} has changed")
    return found


def check_not_shadowed() -> None:
    """Raise an error if an `alchemy` folder without `__init__.py` shadows the installed package.

    Python treats it as a namespace package, which takes precedence over packages found by an import hook, as in some
    editable installs.
    """
    spec = PathFinder.find_spec("alchemy")
    if spec is not None and spec.origin is None:
        folder = next(iter(spec.submodule_search_locations or ()))
        raise AlchemyError(
            f"the folder {folder} has no __init__.py and shadows the installed package alchemy",
            hint="remove it (it may be an empty git submodule): rmdir alchemy",
        )


def _unload_others(package: str, own: list[str]) -> None:
    """Unload a package with the same name, usually `src`, that was imported from another project."""
    module = sys.modules.get(package)
    places = [os.path.realpath(place) for place in getattr(module, "__path__", ())]
    if not places or any(place == os.path.realpath(os.path.join(root, package)) for place in places for root in own):
        return
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    unregister_package(package)
