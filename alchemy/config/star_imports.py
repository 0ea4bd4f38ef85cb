"""Search the modules behind star imports, parsing only those whose text contains the name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from alchemy.config.module_files import Module, locate, read_module
from alchemy.errors import closest

_STAR = re.compile(rb"\bimport\s*\*")
_EXPORTED = re.compile(rb"^__all__ = [\[(](.*?)[\])]", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(rb"[\"'](\w+)[\"']")
_DEFINED = re.compile(rb"^(?:class|def) ([A-Za-z]\w*)", re.MULTILINE)


def may_bind(module_name: str, name: str, roots: Sequence[str]) -> bool:
    """Return whether a module could define a name: it contains the name, or star imports of its own.

    transformers reaches about 2,000 modules through star imports; parsing them takes 20 seconds, searching them half a
    second.
    """
    source = _read_source(module_name, roots)
    return name.encode() in source or _STAR.search(source) is not None


def closest_lazy_name(module: Module, name: str, roots: Sequence[str]) -> str:
    """Return the closest name in a lazy package for a misspelled one, or "" if the name may exist.

    Lazy packages of Hugging Face, such as transformers, list their names under `TYPE_CHECKING` and replace themselves
    with a `_LazyModule`.
    """
    if not module.dynamic or "_LazyModule" not in module.names or name.encode() in _read_source(module.name, roots):
        return ""
    names = [*module.public(), *_exported_names(module.stars, roots)]
    near = "" if name in names else closest(name, names)
    return "" if name.startswith(near) else near  # names such as ViTImageProcessorFast are derived at run time


def _exported_names(stars: Sequence[str], roots: Sequence[str]) -> list[str]:
    """Return the names that star imports bind."""
    queue, names = list(stars), list[bytes]()
    for star in queue:  # grows during the loop
        source = _read_source(star, roots)
        listed = _EXPORTED.search(source)
        names += _QUOTED.findall(listed[1]) if listed else _DEFINED.findall(source)
        place = locate(star, roots) if _STAR.search(source) else None
        module = read_module(star, place) if place else None
        queue += [inner for inner in module.stars if inner not in queue] if module else []
    return [name.decode() for name in names]


def _read_source(module_name: str, roots: Sequence[str]) -> bytes:
    place = locate(module_name, roots)
    try:
        with open(place.file if place else "", "rb") as file:
            return file.read()
    except OSError:
        return b""
