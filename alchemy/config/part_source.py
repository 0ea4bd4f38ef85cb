"""Read the parameters, ancestors and names of parts from their source with `ast`, without importing them."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from alchemy.config.known_tables import DEFAULT_TYPES, GIVEN, MODULES
from alchemy.config.module_files import Module, absolute, locate, read_module
from alchemy.config.name_lookup import PLAIN_BASES, Class, Gap, ancestors, lookup
from alchemy.config.signature import MISSING, Param, fields_of, is_dataclass, literal_value, parameters_of, words_in
from alchemy.constraints import is_import_path
from alchemy.errors import did_you_mean
from alchemy.registry import ENTRY_MODULES, annotations_of, is_registered, parameters

# base classes of parts as dotted names, so that config/ does not import them
KINDS = {
    "runner": ("alchemy.runner.AlchemyRunner",),
    "plugin": ("alchemy.plugins.AlchemyPlugin", "alchemy.plugins.RunnerPlugin", "alchemy.plugins.Plugin"),
    "task": ("alchemy.task.AlchemyTask",),
    "model": ("alchemy.model.AlchemyModel",),
    "optim": ("alchemy.optim.AlchemyOptimizer",),
    "sched": ("alchemy.sched.AlchemyTrainScheduler",),
    "backward": ("alchemy.model.BackwardHandler", "alchemy.update.GradientUpdater"),
    "loss": ("alchemy.nn.losses.Loss",),
    "data pipe": ("alchemy.pipeline.DataPipeline",),
    "output pipe": ("alchemy.pipeline.OutputPipeline",),
    "eval pipe": ("alchemy.pipeline.EvalPipeline",),
    "sched pipe": ("alchemy.pipeline.SchedPipeline",),
    "stop rule": ("alchemy.stop.StopRule",),
    "checkpoint": ("alchemy.checkpoint.keeper.Checkpoints",),
    "precision": ("alchemy.precision.Precision",),
    "average": ("alchemy.average.Average",),
    "ddp": ("alchemy.launch.process_group.Sharing",),
    "capture": ("alchemy.capture.Capture",),
    "collate": ("alchemy.data.collate.CollateFn",),
    "column": ("alchemy.data.columns.Column",),
    "image transform": ("alchemy.images.transforms.base.ImageTransform",),
    "tokenizer": ("alchemy.text.Tokenizer",),
    "encoder": ("alchemy.models.encoders.Encoder",),
    "head": ("alchemy.models.heads.Head",),
    "network": ("alchemy.nn.seq2seq.Network",),
    "search": ("alchemy.generate.search.Search",),
}
_FOREIGN = ("alchemy.", "torch.")  # not the project's own code
_TORCH_OPTIMIZERS = ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer")
_TORCH_MODULES = ("torch.nn.Module", "torch.nn.modules.module.Module")
_LONGEST = 100  # maximum number of components in an import path
_KIND_OF_CLASS = {base.rpartition(".")[2]: kind for kind, bases in KINDS.items() for base in bases}


@dataclass(eq=False)
class Part:
    """Information about the class or function that a `type` names."""

    name: str
    module: str
    params: tuple[Param, ...] = ()
    takes_kwargs: bool = False
    bare: bool = False  # the constructor accepts no arguments, because the part reads its table itself
    readable: bool = True  # False: the source of the constructor cannot be read
    function: bool = False
    doc: str = ""
    where: str = ""
    path: str = ""  # the dotted name written in the config
    bases: tuple[str, ...] = ()  # all ancestors, nearest first
    registered: tuple[str, ...] = ()  # names of the bases it is registered on, as written in its source
    line: list[Class] = field(default_factory=list, repr=False)

    @property
    def old_style(self) -> bool:
        return self.takes_kwargs or self.bare or not self.readable

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds that this part belongs to; empty if unknown."""
        names = [*self.bases, f"{self.module}.{self.name}"]
        ours = [n.rpartition(".")[2] for n in names if n.startswith("alchemy.")]
        return frozenset(_KIND_OF_CLASS[n] for n in [*ours, *self.registered] if n in _KIND_OF_CLASS)

    @property
    def complete(self) -> bool:
        """Whether all ancestors were found, so that `kinds` is complete."""
        if any(base not in _KIND_OF_CLASS for base in self.registered):
            return False
        return all(c.node is not None or c.dotted in PLAIN_BASES or c.dotted.startswith("builtins.") for c in self.line)

    @property
    def is_torch_optimizer(self) -> bool:
        """Whether this is, or derives from, a torch optimizer, which alchemy wraps."""
        return any(klass.dotted in _TORCH_OPTIMIZERS for klass in self.line)

    @property
    def is_plain_model(self) -> bool:
        """Whether this builds an `nn.Module` that alchemy wraps as a model: a module class, a function, or unknown."""
        return not self.kinds and (
            self.function or not self.complete or any(c.dotted in _TORCH_MODULES for c in self.line)
        )

    @property
    def ours(self) -> bool:
        return self.module.startswith("alchemy.")

    def is_a(self, *names: str) -> bool:
        """Return whether this is, or derives from, a class with one of these names."""
        return self.name in names or any(base.rpartition(".")[2] in names for base in self.bases)

    def param(self, name: str) -> Param | None:
        return next((p for p in self.params if p.name == name), None)

    @property
    def keys(self) -> list[Param]:
        """The parameters that a config can set: all except the parameters that alchemy fills in.

        For data pipes this includes `datapipe`, which only the first pipe of a split reads from its table.
        """
        filled = {name for kind in self.kinds if kind != "data pipe" for name in GIVEN.get(kind, ())}
        return [p for p in self.params if p.name not in filled]

    @cached_property
    def known(self) -> frozenset[str]:
        """All parameter names of its constructor and of inherited constructors, which may receive them."""
        names = {p.name for p in self.params}
        for klass in self.line:
            names |= {p.name for p in _own_parameters(klass)[0]}
        return frozenset(names)

    def method(self, name: str) -> tuple[Class, ast.FunctionDef] | None:
        """Return the first definition of a method in the class and its ancestors."""
        for klass in self.line:
            if isinstance(klass.node, ast.ClassDef):
                for item in klass.node.body:
                    if isinstance(item, ast.FunctionDef) and item.name == name:
                        return klass, item
        return None

    def attribute(self, name: str, *, inherited: bool = True) -> Any:
        """Return a class attribute that is written as a literal, or None for anything else.

        Without `inherited`, attributes that a project's part inherits from alchemy or torch are ignored.
        """
        for klass in self.line:
            if not (inherited or self.ours) and klass.dotted.startswith(_FOREIGN):
                return None
            for item in klass.node.body if isinstance(klass.node, ast.ClassDef) else ():
                match item:
                    case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                        return literal_value(ast.unparse(value))
                    case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                        return literal_value(ast.unparse(value))
        return None

    @cached_property
    def own_words(self) -> frozenset[str]:
        """The strings, names and attributes in the project's modules that define the part and its ancestors."""
        modules = {c.module.name: c.module for c in self.line if c.module and not c.dotted.startswith(_FOREIGN)}
        return frozenset(word for module in modules.values() for word in words_in(module.tree))

    @cached_property
    def words(self) -> frozenset[str]:
        """`own_words` plus the names and strings in the alchemy classes that the part derives from."""
        ours = (c.node for c in self.line if c.node is not None and c.dotted.startswith("alchemy."))
        return self.own_words | self.known | {word for node in ours for word in words_in(node)}


def find(dotted: str, roots: Sequence[str] = (".",)) -> Part | None:
    """Return the part that a `type` names, or None if it cannot be found or read (`look` returns the reason)."""
    found = look(dotted, roots) if dotted else None
    return found if isinstance(found, Part) else None


def look(dotted: str, roots: Sequence[str] = (".",), *, base: str = "") -> Part | Gap:
    """Return the part that a `type` names, or a `Gap` if there is none; `base` selects among identical aliases."""
    pieces = dotted.split(".")
    if len(pieces) > _LONGEST:
        return Gap("form", f"type = {dotted[:40]!r}... is not an import path: it has {len(pieces)} components")
    if not is_import_path(dotted):
        return Gap("form", f"type = {dotted!r} is not an import path", "write it like 'package.module.Class'")
    module_name, name = ".".join(pieces[:-1]), pieces[-1]
    if module_name in ENTRY_MODULES:
        return _live_part(dotted, name)
    if module_name == "torch":  # torch defines its names at run time
        near = [f"{home}.{name}" for home in ("torch.optim", "torch.nn") if isinstance(lookup(home, name, ()), Class)]
        if near:
            return Gap("name", f"module 'torch' has no {name!r}", f"did you mean {near[0]!r}?")
    found = lookup(MODULES.get(module_name, module_name), name, tuple(roots), base=base)
    if isinstance(found, Gap):
        # defined at run time, in a notebook or a loop: known to the registry, but not visible in source
        return Gap("unreadable") if is_registered(dotted) else found
    return _make_part(found, dotted, tuple(roots))


def _live_part(dotted: str, name: str) -> Part | Gap:
    """Return a part defined in the running script or notebook, read from the class itself, which may have no source."""
    running = [sys.modules[module] for module in ENTRY_MODULES if module in sys.modules]
    there = {key: value for module in running for key, value in vars(module).items()}
    if is_registered(dotted):
        there.setdefault(name, None)
    if name not in there:
        classes = [key for key, value in there.items() if isinstance(value, type) and value.__module__ in ENTRY_MODULES]
        hint = did_you_mean(name, classes) or "the class is defined in a script or notebook: run it from there"
        return Gap("name", f"the running script does not define {name!r}", hint)
    part = there[name]
    names, takes_any = parameters(part) if callable(part) else ({}, True)
    if takes_any or not names or not isinstance(part, type):  # the part reads its table itself, or is not a class
        return Gap("unreadable")
    rows = annotations_of(part)
    params = [Param(key, rows[key][0], MISSING if required else rows[key][1]) for key, required in names.items()]
    above = [f"{base.__module__}.{base.__qualname__}" for base in part.__mro__[1:]]
    line = [Class(path) for path in (dotted, *above)]
    return Part(name, "__main__", tuple(params), path=dotted, bases=tuple(above), line=line)


class Sources:
    """Parts found below `roots`, each looked up once. Use a new instance per command, because sources may change."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(roots)
        self._parts: dict[tuple[str, str], Part | Gap] = {}
        self._words: dict[str, set[str]] = {}

    def look(self, dotted: str, *, base: str = "") -> Part | Gap:
        key = (dotted, base)
        if key not in self._parts:
            self._parts[key] = look(dotted, self.roots, base=base)
        return self._parts[key]

    def find(self, dotted: str) -> Part | None:
        found = self.look(dotted) if dotted else None
        return found if isinstance(found, Part) else None

    def words(self, module: str) -> set[str]:
        if module not in self._words:
            self._words[module] = project_words(module, self.roots)
        return self._words[module]


# -- classes to parts


def _make_part(found: Class, dotted: str, roots: tuple[str, ...]) -> Part | Gap:
    node, module = found.node, found.module
    if node is None or module is None:
        return Gap("unreadable")
    name = found.dotted.rpartition(".")[2]
    line = ancestors(found, roots) if isinstance(node, ast.ClassDef) else [found]
    params, takes_kwargs, readable = _constructor(line)
    return Part(
        name=name,
        module=module.name,
        params=tuple(params),
        takes_kwargs=takes_kwargs,
        bare=readable and not params and not takes_kwargs,
        readable=readable,
        function=not isinstance(node, ast.ClassDef),
        doc=ast.get_docstring(node) or "",
        where=module.at(node.lineno),
        path=dotted,
        bases=tuple(c.dotted for c in line[1:]),
        registered=tuple(b.rpartition(".")[2] for rows in module.aliases.values() for b, c in rows if c == name),
        line=line,
    )


def _constructor(line: list[Class]) -> tuple[list[Param], bool, bool]:
    """Return the parameters, whether other keywords are accepted, and whether the source could be read."""
    for klass in line:
        if klass.node is None:
            if klass.dotted in PLAIN_BASES or klass.dotted == "builtins.object":
                continue
            return [], True, False
        params, takes_kwargs, has_one = _own_parameters(klass)
        if has_one:
            if isinstance(klass.node, ast.ClassDef) and is_dataclass(klass.node):
                params = _dataclass_fields(line)
            return params, takes_kwargs, True
    return [], False, True


def _dataclass_fields(line: list[Class]) -> list[Param]:
    """Return the fields of a dataclass and its dataclass ancestors; the nearest definition wins."""
    found: dict[str, Param | None] = {}
    for klass in line:
        if isinstance(klass.node, ast.ClassDef) and klass.module is not None and is_dataclass(klass.node):
            found = {**found, **{n: p for n, p in fields_of(klass.node, klass.module).items() if n not in found}}
    return [param for param in found.values() if param is not None]


def _own_parameters(klass: Class) -> tuple[list[Param], bool, bool]:
    if klass.node is None or klass.module is None:
        return [], False, False
    return parameters_of(klass.node, klass.module)


# -- the project around a part, and alchemy's own parts


def project_words(name: str, roots: Sequence[str], limit: int = 60) -> set[str]:
    """Collect the names and strings in a project's module and, recursively, in its imports from the same package."""
    top = name.split(".")[0]
    queue, words = [name], set()
    for name in queue:  # grows during the loop
        place = locate(name, roots)
        module = read_module(name, place) if place else None
        if module is None or module.error is not None:
            continue
        words |= words_in(module.tree)
        named = [found for node in ast.walk(module.tree) for found in _imports(module, node)]
        new = [found for found in dict.fromkeys(named) if found.split(".")[0] == top and found not in queue]
        queue += new[: limit - len(queue)]
    return words


def _imports(module: Module, node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [a.name for a in node.names]
        case ast.ImportFrom():
            source = absolute(module, node.module or "", node.level)
            return [source, *(f"{source}.{a.name}" for a in node.names if a.name != "*")]
    return []


_NOT_SHORT = ("alchemy.pipeline",)  # its module names (itr, lst, output, ...) are part of the public names
_INTERNAL = ("Wrapped", "Foreign", "Optimizers", "PlainModel")  # wrappers created by alchemy itself
_NOT_LISTED = tuple(f"alchemy.{name}" for name in ("util", "cli", "verify", "config", "scheduler", "questions"))


def parts(kind: str = "") -> list[Part]:
    """Return alchemy's own parts (of one kind) with their parameters, under the names that a config uses."""
    place = locate("alchemy", ())
    found: dict[str, Part] = {}
    for name in sorted(_module_names(place.folders[0], "alchemy")) if place else ():
        home = locate(name, ())
        module = read_module(name, home) if home and not name.startswith(_NOT_LISTED) else None
        for binding in module.names.values() if module else ():
            if isinstance(binding, ast.ClassDef) and not binding.name.startswith("_"):
                part = look(_public_path(module, binding.name), ())
                if isinstance(part, Part) and part.kinds and _is_part(part):
                    found[part.path] = part
    inherited = {base for part in found.values() for base in part.bases}
    return [p for _, p in sorted(found.items()) if _is_listed(p, inherited) and (not kind or kind in p.kinds)]


def _is_part(part: Part) -> bool:
    """Return whether a part is usable and not just a base class; a default type may be both."""
    return part.name not in _KIND_OF_CLASS or f"{part.module}.{part.name}" in DEFAULT_TYPES.values()


def _is_listed(part: Part, inherited: set[str]) -> bool:
    """Return whether a part is meant to be named in a config rather than subclassed."""
    if part.registered or f"{part.module}.{part.name}" in DEFAULT_TYPES.values():
        return True
    return part.name not in _INTERNAL and f"{part.module}.{part.name}" not in inherited


def _public_path(module: Module | None, name: str) -> str:
    """Return the name used in configs: the alias of an `Alchemy...` class, under the shortest public module."""
    if module is None:
        return name
    if name.lower().startswith("alchemy"):
        name = next((alias for alias, rows in module.aliases.items() if rows[0][1] == name and alias != name), name)
    pieces = module.name.split(".")
    for i in range(2, len(pieces)):
        package = ".".join(pieces[:i])
        found = lookup(package, name, ()) if package not in _NOT_SHORT else None
        if isinstance(found, Class) and found.dotted == f"{module.name}.{name}":
            return f"{package}.{name}"
    return f"{module.name}.{name}"


def _module_names(folder: str, package: str) -> Iterator[str]:
    yield package
    for entry in os.scandir(folder):
        stem, suffix = os.path.splitext(entry.name)
        if entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")):
            yield from _module_names(entry.path, f"{package}.{entry.name}")
        elif suffix == ".py" and stem != "__init__":
            yield f"{package}.{stem}"
