"""Where a project's own modules are found, however alchemy was started."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from alchemy.errors import AlchemyError, is_library
from alchemy.registry import own_packages, unregister_package
from alchemy.trust import untrusted_record


def roots(user_dir: str = "src") -> list[str]:
    """The folders that imports such as `src.model` start from: the one that holds `user_dir`, and the working one."""
    return list(dict.fromkeys((os.path.dirname(os.path.abspath(user_dir)), os.getcwd())))


def reach(user_dir: str = "src") -> None:
    """Makes the project importable, before any other on the path that has a package of the same name.

    Never a record that is not trusted: any file in it could be imported in the place of another.
    """
    for place in (user_dir, *roots(user_dir)):
        if inside := untrusted_record(place):
            way = f"read the record and then `alchemy trust {shlex.quote(inside)}`"
            hint = f"start from the folder of your project, or {way}"
            raise AlchemyError(f"no code is imported from {place}, which is in a record that is not trusted", hint=hint)
    for below in (init.parent for root in roots(user_dir) for init in Path(root).glob("*/__init__.py")):
        if untrusted_record(below) == os.path.realpath(below):
            hint = "remove the file, or move the record: Python would import this folder in place of another package"
            raise AlchemyError(f"the record {below} has an __init__.py", hint=hint)
    for folder in reversed(roots(user_dir)):
        if sys.path[:1] != [folder]:
            sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    refuse_if_hidden()  # processes that this one starts look along the same path
    package = os.path.basename(os.path.abspath(user_dir))
    own_packages.add(package)
    _forget_others(package, roots(user_dir))


def imported_files(user_dir: str = "src") -> dict[str, Path]:
    """The project files imported so far, by their path below the folder that imports start from."""
    modules = [module for name, module in list(sys.modules.items()) if name != "__main__"]
    files = [module.__dict__.get("__file__") for module in modules if isinstance(module, ModuleType)]
    starts = [root.rstrip(os.sep) + os.sep for root in roots(user_dir)]
    found = {}
    for file in (file for file in files if isinstance(file, str) and not is_library(file)):
        start = next((start for start in starts if file.startswith(start)), None)
        if start is not None:
            found[Path(file[len(start) :]).as_posix()] = Path(file)
    return found


def find_file(name: str, user_dir: str = "src") -> Path | None:
    """The file that an import finds under a name of `imported_files`, or None."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    return next((path for root in (*roots(user_dir), *sys.path) if (path := Path(root, name)).is_file()), None)


def refuse_if_hidden() -> None:
    """Raises where a folder `alchemy` without `__init__.py`, on the path, would be imported in place of the package.

    Python takes it for a namespace package. It hides only what an import hook finds, as in some editable installs.
    """
    spec = PathFinder.find_spec("alchemy")
    if spec is not None and spec.origin is None:
        folder = next(iter(spec.submodule_search_locations or ()))
        raise AlchemyError(
            f"the folder {folder} has no __init__.py and hides the installed package alchemy",
            hint="remove it, an empty git submodule for example: rmdir alchemy",
        )


def _forget_others(package: str, own: list[str]) -> None:
    """Every project calls its package `src`: one that was imported from elsewhere is not this project's."""
    module = sys.modules.get(package)
    places = [os.path.realpath(place) for place in getattr(module, "__path__", ())]
    if not places or any(place == os.path.realpath(os.path.join(root, package)) for place in places for root in own):
        return
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    unregister_package(package)
