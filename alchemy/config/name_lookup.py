"""Resolve a name to a class through imports, aliases and assignments."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from alchemy.config.module_files import LARGEST_SOURCE, Import, Module, Place, locate, read_module, siblings
from alchemy.config.star_imports import closest_lazy_name, may_bind
from alchemy.errors import did_you_mean
from alchemy.optional_packages import EXTRAS, how_to_install

# base classes that are never parsed, because they are large and add no constructor parameters
PLAIN_BASES = {
    "abc.ABC", "typing.Generic", "typing.Protocol", "enum.Enum", "torch.nn.Module",
    "torch.nn.modules.module.Module", "torch.utils.data.Dataset", "torch.utils.data.IterableDataset",
}  # fmt: skip

# bytes: files reached through imports, rather than named in the config, are skipped if parsing them is slow
_LARGEST_FOLLOWED = 120_000


@dataclass(frozen=True)
class Gap:
    """Why a dotted name cannot be resolved: no such `module`, no such `name`, a file with a `syntax` error, text that
    is not an import path (`form`), or code that cannot be read without running it (`unreadable`)."""

    reason: str
    message: str = ""
    hint: str = ""
    where: str = ""


@dataclass(eq=False)
class Class:
    """A class or function found in source; `node` is None if only its name is known."""

    dotted: str
    module: Module | None = None
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None = None


_Trail = tuple[tuple[str, str], ...]  # names followed so far, to stop at circular imports


def lookup(
    module_name: str, name: str, roots: tuple[str, ...], *, base: str | None = None, trail: _Trail = ()
) -> Class | Gap:
    """Resolve a name to a class; aliases apply only to names in the config, for which `base` is given."""
    place = locate(module_name, roots)
    if place is None:
        return _missing_module(module_name, roots)
    module = read_module(module_name, place, LARGEST_SOURCE if base is not None else _LARGEST_FOLLOWED)
    if module is None:
        return (
            Gap("unreadable")
            if place.file or not place.folders
            else _missing_name(module_name, name, place, None, roots)
        )
    if module.error:
        line, text = module.error
        return Gap("syntax", f"{text}: the module {module_name!r} cannot be read", where=module.at(line))
    if (module_name, name) in trail:
        return Gap("unreadable")
    trail = (*trail, (module_name, name))
    if base is not None and (rows := module.aliases.get(name)):
        row = next((r for r in rows if base and r[0].rpartition(".")[2] == base), rows[0])
        name = row[1]
    binding = module.names.get(name)
    if isinstance(binding, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return Class(f"{module_name}.{name}", module, binding)
    if isinstance(binding, Import):
        return _resolve_import(binding, roots, trail)
    if isinstance(binding, ast.expr):
        return _resolve_expression(module, binding, roots, trail)
    for star in module.stars:
        found = lookup(star, name, roots, trail=trail) if may_bind(star, name, roots) else None
        if isinstance(found, Class):
            return found
    gap = _missing_name(module_name, name, place, module, roots)
    if gap.reason == "name" and len(trail) == 1 and (meant := closest_lazy_name(module, name, roots)):
        return Gap("name", gap.message, f"did you mean {meant!r}?")
    # alchemy's lazy packages declare their names under TYPE_CHECKING; other packages may define any name at run time
    hidden = module.dynamic and not module_name.startswith("alchemy.")
    return Gap("unreadable") if hidden and gap.reason == "name" else gap


def _resolve_import(binding: Import, roots: tuple[str, ...], trail: _Trail) -> Class | Gap:
    if binding.attr:
        return lookup(binding.module, binding.attr, roots, trail=trail)
    return Gap("form", f"{binding.module!r} is a module, not a part", f"write '{binding.module}.Class'")


def _resolve_expression(module: Module, value: ast.expr, roots: tuple[str, ...], trail: _Trail = ()) -> Class | Gap:
    """Resolve an expression in `module`: a name, a dotted name, or a class passed to `register(..)`."""
    match value:
        case ast.Name(id=name) if name in module.names or module.stars:
            return lookup(module.name, name, roots, trail=trail)
        case ast.Name(id=name) if name in vars(builtins):
            return Class(f"builtins.{name}")
        case ast.Attribute(value=head, attr=attr):
            owner = _module_of(module, head, roots)
            return lookup(owner, attr, roots, trail=trail) if owner else Gap("unreadable")
        case ast.Call(func=ast.Call(func=ast.Attribute(attr="register")), args=[inner]):
            return _resolve_expression(module, inner, roots, trail)
    return Gap("unreadable")


def _module_of(module: Module, value: ast.expr, roots: tuple[str, ...]) -> str:
    """Return the dotted module that `nn` or `torch.nn` refers to inside `module`, or ""."""
    dotted = ""
    match value:
        case ast.Name(id=name):
            binding = module.names.get(name)
            dotted = f"{binding.module}.{binding.attr}".rstrip(".") if isinstance(binding, Import) else ""
        case ast.Attribute(value=head, attr=attr):
            owner = _module_of(module, head, roots)
            dotted = f"{owner}.{attr}" if owner else ""
    return dotted


def _missing_module(name: str, roots: tuple[str, ...]) -> Gap:
    pieces = name.split(".")
    for i in range(1, len(pieces) + 1):
        prefix = ".".join(pieces[:i])
        if locate(prefix, roots) is None:
            beside = siblings(prefix, roots)
            install = how_to_install(prefix) if prefix in EXTRAS else ""
            spelling = "check the spelling, the installation and the working directory"
            hint = install or did_you_mean(prefix, beside) or spelling
            return Gap("module", f"no module named {prefix!r}", hint)
    return Gap("unreadable")


def _missing_name(module_name: str, name: str, place: Place, module: Module | None, roots: tuple[str, ...]) -> Gap:
    below = siblings(f"{module_name}.x", roots) if place.package else []
    if f"{module_name}.{name}" in below:
        return Gap("form", f"'{module_name}.{name}' is a module, not a part", f"write '{module_name}.{name}.Class'")
    names, offered = (module.public(), module.own()) if module else ([], [])
    if name[:1].isupper():  # the user means a class, not a function with a similar name
        names = [known for known in names if known[:1].isupper()]
    more = ", ..." if len(offered) > 8 else ""
    hint = did_you_mean(name, names) or (f"it has {', '.join(offered[:8])}{more}" if offered else "it defines no parts")
    return Gap("name", f"module {module_name!r} has no {name!r}", hint)


def ancestors(start: Class, roots: tuple[str, ...]) -> list[Class]:
    """Return the class and its ancestors in method resolution order (only approximately in contrived cases)."""
    found: dict[str, Class] = {}

    def visit(klass: Class, path: tuple[str, ...]) -> None:
        found.pop(klass.dotted, None)  # keep the last occurrence, so that a base comes after all its subclasses
        found[klass.dotted] = klass
        for base in _bases(klass, roots):
            if base.dotted not in (*path, klass.dotted, "builtins.object"):
                visit(base, (*path, klass.dotted))

    visit(start, ())
    return list(found.values())


def _bases(klass: Class, roots: tuple[str, ...]) -> Iterator[Class]:
    if not isinstance(klass.node, ast.ClassDef) or klass.module is None:
        return
    for base in klass.node.bases:
        expression = base.value if isinstance(base, ast.Subscript) else base
        dotted = _dotted_name(klass.module, expression)
        if dotted in PLAIN_BASES:
            yield Class(dotted)
            continue
        found = _resolve_expression(klass.module, expression, roots)
        yield found if isinstance(found, Class) else Class(dotted)


def _dotted_name(module: Module, value: ast.expr) -> str:
    """Return the full dotted name of a base class if its import is known, otherwise the name as written."""
    if isinstance(value, ast.Attribute):
        owner = _module_of(module, value.value, ())
        return f"{owner}.{value.attr}" if owner else ast.unparse(value)
    if isinstance(value, ast.Name):
        binding = module.names.get(value.id)
        if isinstance(binding, Import):
            return f"{binding.module}.{binding.attr}" if binding.attr else binding.module
    return ast.unparse(value)
