"""From a name to the class it stands for, through imports, aliases, assignments."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from alchemy.config.module_files import LARGEST_SOURCE, Import, Module, Place, locate, read_module, siblings
from alchemy.errors import did_you_mean
from alchemy.optional_packages import EXTRAS, how_to_install

# bases that are never opened: they are large, and add nothing to a constructor
PLAIN_BASES = {
    "abc.ABC", "typing.Generic", "typing.Protocol", "enum.Enum", "torch.nn.Module",
    "torch.nn.modules.module.Module", "torch.utils.data.Dataset", "torch.utils.data.IterableDataset",
}  # fmt: skip

# bytes: what is reached by following a name, rather than named in the config, is not worth a second of parsing
_LARGEST_FOLLOWED = 120_000


@dataclass(frozen=True)
class Gap:
    """Why a dotted name gives no part: no such `module`, no such `name`, a file that does not parse (`syntax`),
    text that is no import path (`form`), or code that cannot be read_module without running it (`unreadable`)."""

    reason: str
    message: str = ""
    hint: str = ""
    where: str = ""


@dataclass(eq=False)
class Class:
    """A class or function found in source; `node` is None where only its name is known."""

    dotted: str
    module: Module | None = None
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None = None


_Trail = tuple[tuple[str, str], ...]  # the names followed so far, so that a circle of imports ends


def lookup(
    module_name: str, name: str, roots: tuple[str, ...], *, base: str | None = None, trail: _Trail = ()
) -> Class | Gap:
    """Follows a name to the class it stands for; aliases count only where the config names them (`base` given)."""
    place = locate(module_name, roots)
    if place is None:
        return _no_module(module_name, roots)
    module = read_module(module_name, place, LARGEST_SOURCE if base is not None else _LARGEST_FOLLOWED)
    if module is None:
        return Gap("unreadable") if place.file or not place.folders else _no_name(module_name, name, place, None, roots)
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
        return _imported(binding, roots, trail)
    if isinstance(binding, ast.expr):
        return _expression(module, binding, roots, trail)
    for star in module.stars:
        found = lookup(star, name, roots, trail=trail)
        if isinstance(found, Class):
            return found
    gap = _no_name(module_name, name, place, module, roots)
    # our own lazy packages declare their names under TYPE_CHECKING; others may have any name at run time
    hidden = module.dynamic and not module_name.startswith("alchemy.")
    return Gap("unreadable") if hidden and gap.reason == "name" else gap


def _imported(binding: Import, roots: tuple[str, ...], trail: _Trail) -> Class | Gap:
    if binding.attr:
        return lookup(binding.module, binding.attr, roots, trail=trail)
    return Gap("form", f"{binding.module!r} is a module, not a part", f"write '{binding.module}.Class'")


def _expression(module: Module, value: ast.expr, roots: tuple[str, ...], trail: _Trail = ()) -> Class | Gap:
    """What an expression in `module` stands for: a name, a dotted name, or a class handed to `register(..)`."""
    match value:
        case ast.Name(id=name) if name in module.names or module.stars:
            return lookup(module.name, name, roots, trail=trail)
        case ast.Name(id=name) if name in vars(builtins):
            return Class(f"builtins.{name}")
        case ast.Attribute(value=head, attr=attr):
            owner = _module_of(module, head, roots)
            return lookup(owner, attr, roots, trail=trail) if owner else Gap("unreadable")
        case ast.Call(func=ast.Call(func=ast.Attribute(attr="register")), args=[inner]):
            return _expression(module, inner, roots, trail)
    return Gap("unreadable")


def _module_of(module: Module, value: ast.expr, roots: tuple[str, ...]) -> str:
    """The dotted module that `nn` or `torch.nn` means inside `module`, or nothing."""
    dotted = ""
    match value:
        case ast.Name(id=name):
            binding = module.names.get(name)
            dotted = f"{binding.module}.{binding.attr}".rstrip(".") if isinstance(binding, Import) else ""
        case ast.Attribute(value=head, attr=attr):
            owner = _module_of(module, head, roots)
            dotted = f"{owner}.{attr}" if owner else ""
    return dotted


def _no_module(name: str, roots: tuple[str, ...]) -> Gap:
    pieces = name.split(".")
    for i in range(1, len(pieces) + 1):
        prefix = ".".join(pieces[:i])
        if locate(prefix, roots) is None:
            beside = siblings(prefix, roots)
            install = how_to_install(prefix) if prefix in EXTRAS else ""
            spelling = "check the spelling, the installation and the folder you run from"
            hint = install or did_you_mean(prefix, beside) or spelling
            return Gap("module", f"there is no module {prefix!r}", hint)
    return Gap("unreadable")


def _no_name(module_name: str, name: str, place: Place, module: Module | None, roots: tuple[str, ...]) -> Gap:
    below = siblings(f"{module_name}.x", roots) if place.package else []
    if f"{module_name}.{name}" in below:
        return Gap("form", f"'{module_name}.{name}' is a module, not a part", f"write '{module_name}.{name}.Class'")
    names, offered = (module.public(), module.own()) if module else ([], [])
    if name[:1].isupper():  # a class is meant, not a function that is spelt alike
        names = [known for known in names if known[:1].isupper()]
    more = ", ..." if len(offered) > 8 else ""
    hint = did_you_mean(name, names) or (f"it has {', '.join(offered[:8])}{more}" if offered else "it defines no part")
    return Gap("name", f"module {module_name!r} has no {name!r}", hint)


def ancestors(start: Class, roots: tuple[str, ...]) -> list[Class]:
    """The class and its ancestors, each before its own: Python's order of lookup in all but contrived cases."""
    found: dict[str, Class] = {}

    def visit(klass: Class, path: tuple[str, ...]) -> None:
        found.pop(klass.dotted, None)  # the last mention counts, so that it stands behind all that derive from it
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
        dotted = _written(klass.module, expression)
        if dotted in PLAIN_BASES:
            yield Class(dotted)
            continue
        found = _expression(klass.module, expression, roots)
        yield found if isinstance(found, Class) else Class(dotted)


def _written(module: Module, value: ast.expr) -> str:
    """The best dotted name for a base as it is written, whether or not it can be followed."""
    if isinstance(value, ast.Attribute):
        owner = _module_of(module, value.value, ())
        return f"{owner}.{value.attr}" if owner else ast.unparse(value)
    if isinstance(value, ast.Name):
        binding = module.names.get(value.id)
        if isinstance(binding, Import):
            return f"{binding.module}.{binding.attr}" if binding.attr else binding.module
    return ast.unparse(value)
