"""Resolve `type = "..."` to a class and build the part from its config table."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import Any, ClassVar, ForwardRef, Protocol, TypeVar, get_origin, runtime_checkable

from alchemy.annotations import expand_aliases, find_mismatches, is_constrained
from alchemy.errors import AlchemyError, did_you_mean, origin_of, recognize
from alchemy.key_rules import RULES, find_violations
from alchemy.moved import current_path

C = TypeVar("C", bound=type)

Maker = Callable[..., Any]  # a class or a function that returns a part
Adapter = Callable[[Maker], Maker]
Wrong = tuple[str, str, str]  # a key, what is wrong with it, and how to fix it
_adapt: Adapter = lambda part: part  # noqa: E731 (replaced by the runner)

_registered: dict[type, dict[str, type]] = {}  # dotted name -> class, for each base class

own_packages = {"src"}  # packages that belong to the project

# a class in the entry script is registered under the script's module name in this process
ENTRY_MODULES = ("__main__", "__mp_main__")


class Registrable:
    """Base class for all parts. `@Base.register("Alias")` registers a class under an alias and under its own name."""

    # optional packages that the part imports, for `alchemy check`; `{"key": (..)}` if only that key needs them
    packages: ClassVar[tuple[str, ...] | Mapping[str, tuple[str, ...]]]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            _constrain(cls)

    @classmethod
    def register(cls, alias: str | None = None, exist_ok: bool = False) -> Callable[[C], C]:
        """Register a class under `<module>.<ClassName>` and `<module>.<alias>` for the base class `cls`."""

        def decorate(part: C) -> C:
            init = vars(part).get("__init__")
            if init is not None and inspect.unwrap(init) is init:
                _constrain(part)  # a dataclass gets its constructor only now
            names = _registered.setdefault(cls, {})
            for name in dict.fromkeys((part.__name__, alias or part.__name__)):
                key = f"{part.__module__}.{name}"
                other = names.get(key)
                if other is not None and not exist_ok and not _same_source(other, part):
                    raise AlchemyError(
                        f"{key!r} is registered twice for {cls.__name__}: {other.__qualname__} and {part.__qualname__}",
                        hint="use a different alias for one of them, or pass exist_ok=True",
                    )
                names[key] = part
            return part

        return decorate

    @classmethod
    def resolve_registered_module(cls, ty: str) -> type:
        """Return the class for a dotted name; an alias takes precedence over a module attribute."""
        module_name, _, name = _text(ty, cls).rpartition(".")
        if not module_name:
            raise AlchemyError(
                f"type = {ty!r} lacks a module", hint=f"use the import path, such as 'src.module.{ty or 'Class'}'"
            )
        module = _import(module_name, ty)
        found = cls._lookup((*_spellings(module_name), module.__name__), name)
        if found is not None:
            return found
        found = getattr(module, name, None)
        if found is None:
            raise AlchemyError(
                f"module {module_name!r} has no {cls.__name__} named {name!r}",
                hint=did_you_mean(name, _names_in(module, cls)) or _offer(_names_in(module, cls)),
            )
        if not (isinstance(found, type) and issubclass(found, cls)):
            raise AlchemyError(
                f"{ty!r} is not a {cls.__name__}",
                hint=f"make it a subclass, or register it with @{cls.__name__}.register()",
            )
        return found

    @classmethod
    def _lookup(cls, modules: Collection[str], name: str) -> type | None:
        keys = [f"{module}.{name}" for module in modules]
        own = _registered.get(cls, {})
        for key in keys:
            if key in own:
                return own[key]
        # registered on a related base class (a pipe registered on EndEpochPipeline is also found as a SchedPipeline)
        for names in _registered.values():
            for key in keys:
                if key in names and issubclass(names[key], cls):
                    return names[key]
        return None

    @classmethod
    def from_registry(cls, ty: str, *args: object, **kwargs: object) -> Any:
        """Resolve `ty` and call it with the given arguments."""
        part = cls.resolve_registered_module(ty)
        # older projects pass the whole table, `from_registry(table["type"], **table)`, even to built-in parts
        names, takes_any = parameters(part)
        if not takes_any and "type" not in names:
            kwargs.pop("type", None)
        return _adapt(part)(*args, **kwargs)


def set_adapter(adapter: Adapter) -> None:
    """Set the function that may replace the constructors of parts; used for older projects."""
    global _adapt
    _adapt = adapter


def build(
    base: type[Registrable],
    table: Mapping[str, Any],
    *,
    drop: Collection[str] = (),
    given: Mapping[str, Any] | None = None,
    section: str = "",
) -> Any:
    """Build the part described by a config table.

    A class whose constructor has no parameters is called without arguments and reads its own table; any other class
    receives the keys as keyword arguments. `type` is passed only if the constructor names it or accepts `**kwargs`.
    """
    if not isinstance(table, Mapping) or "type" not in table:
        raise AlchemyError(f"a {base.__name__} needs a 'type'", where=where_of(table), section=section)
    try:
        cls = base.resolve_registered_module(table["type"])
    except AlchemyError as error:
        raise add_location(error, where_of(table, "type"), section) from error
    return construct(cls, table, drop=drop, given=given, section=section)


def construct(
    cls: Maker,
    table: Mapping[str, Any],
    *,
    drop: Collection[str] = (),
    given: Mapping[str, Any] | None = None,
    section: str = "",
) -> Any:
    """Call `cls` with the keys of `table` as keyword arguments, as `build` does after resolving the class."""
    values = _keywords(cls, table, drop, given or {}, section)
    try:
        return _adapt(cls)(**values)
    except AlchemyError as error:
        if type(error) is not AlchemyError or error.problem.where:
            raise
        raise add_location(error, where_of(table), section) from error
    except Exception as error:
        known = recognize(error)
        if known is not None:
            text = f"{_name(cls)} could not be built at {known.problem.where}: {known.problem.message}"
            raise AlchemyError(text, where=where_of(table), section=section, hint=known.problem.hint) from error
        place = origin_of(error)
        text = f"{_name(cls)} could not be built{f' at {place}' if place else ''}: {type(error).__name__}: {error}"
        raise AlchemyError(text, where=where_of(table), section=section) from error


def _keywords(
    cls: Maker, table: Mapping[str, Any], drop: Collection[str], given: Mapping[str, Any], section: str
) -> dict[str, Any]:
    """Return the arguments of a constructor; raise an error for an unknown, invalid or missing key."""
    names, takes_any = parameters(cls)
    if not names and not takes_any:
        return {}  # the class reads its own table
    hidden = {*drop, *given} | (set() if "type" in names or takes_any else {"type"})
    keys = [key for key in table if key not in hidden]
    for key in keys:
        if key not in names and not takes_any:
            hint = did_you_mean(key, names) or f"it takes {', '.join(names) or 'nothing'}"
            raise AlchemyError(
                f"{_name(cls)} has no option {key!r}", where=where_of(table, key), section=section, hint=hint
            )
    for key, text, hint in _wrong_values(cls, {key: table[key] for key in keys}):
        raise AlchemyError(f"{_name(cls)}: {text}", where=where_of(table, key), section=section, hint=hint)
    # parts with typed keywords get plain values; older parts, which accept any key, get the original tables
    values = {key: table[key] if takes_any else plain(table[key]) for key in keys}
    values |= {key: value for key, value in given.items() if key in names or takes_any}
    missing = [key for key, required in names.items() if required and key not in values]
    if missing:
        raise AlchemyError(
            f"{_name(cls)} needs {', '.join(map(repr, missing))}", where=where_of(table), section=section
        )
    for key, text, hint in broken_rules(cls, values):
        raise AlchemyError(text, where=where_of(table, key), section=section, hint=hint)
    return values


def parameters(cls: Maker) -> tuple[dict[str, bool], bool]:
    """Return the parameter names of a constructor (True if required) and whether it accepts any other name."""
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return {}, True
    keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    rows = signature.parameters.values()
    names = {row.name: row.default is inspect.Parameter.empty for row in rows if row.kind in keyword}
    return names, any(row.kind is inspect.Parameter.VAR_KEYWORD for row in rows)


def _wrong_values(function: Maker, values: Mapping[str, object], *, limited: bool = False) -> Iterator[Wrong]:
    """Yield the values that violate the annotations of a class or function: the parameter, the problem and the fix.

    With `limited`, check only parameters whose annotation is a Literal or has constraints.
    """
    # the annotations of older parts, which accept any key, were never checked and may be wrong
    if parameters(function)[1] and not function.__module__.startswith("alchemy."):
        return
    rows = annotations_of(function)
    for name, value in values.items():
        annotation, default = rows.get(name, ("", ""))
        if annotation and (not limited or is_constrained(annotation)):
            yield from ((name, text, hint) for text, hint in find_mismatches(name, value, annotation, default))


def broken_rules(function: Maker, values: Mapping[str, object]) -> Iterator[Wrong]:
    """Yield the rules that a combination of values violates; omitted values have their defaults."""
    owners: list[Maker] = [_with_parameters(function)]
    if isinstance(function, type) and function.__module__.startswith("alchemy."):
        owners += function.__mro__  # built-in classes inherit rules from their ancestors
    names = [f"{owner.__module__}.{owner.__qualname__.removesuffix('.__init__')}" for owner in owners]
    for name in [name for name in dict.fromkeys(names) if name in RULES]:
        rows = inspect.signature(function).parameters.values()
        yield from find_violations(name, {row.name: values.get(row.name, row.default) for row in rows})


def _with_parameters(function: Maker) -> Maker:
    """Return the function that defines the parameters, or a class without an `__init__` function (named tuples)."""
    init = inspect.unwrap(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    return init if inspect.isfunction(init) else function


@functools.lru_cache(maxsize=512)
def annotations_of(function: Maker) -> dict[str, tuple[str, str]]:
    """Return the annotation and default of every parameter, as text in the form used by the static check."""
    try:
        rows = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    home = sys.modules.get(_with_parameters(function).__module__)
    names = vars(home) if home is not None else {}
    defaults = {row.name: "" if row.default is row.empty else repr(row.default) for row in rows}
    return {row.name: (_expand(row.annotation, names), defaults[row.name]) for row in rows}


def _expand(annotation: object, names: Mapping[str, object]) -> str:
    """Return an annotation as text, with aliases such as PositiveInt expanded."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    if isinstance(text, str):
        return expand_aliases(text, lambda name: repr(names[name]) if get_origin(names.get(name)) is not None else "")
    return text.__qualname__ if isinstance(text, type) else repr(text)


def _constrain(cls: type) -> None:
    """Make the constructor of a class validate its arguments, even when it is called from code."""
    init: Callable[..., None] = vars(cls)["__init__"]

    @functools.wraps(init)
    def checked(self: object, *args: object, **kwargs: object) -> None:
        values = dict(zip(annotations_of(init), (self, *args))) | kwargs
        for _, text, hint in _wrong_values(init, values, limited=True):
            raise AlchemyError(f"{type(self).__name__}: {text}", hint=hint)
        if all(name in values for name, required in parameters(init)[0].items() if required):
            for _, text, hint in broken_rules(init, values):
                raise AlchemyError(text, hint=hint)
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[misc]


def is_registered(dotted: str) -> bool:
    """Return whether a class is registered under this name for any base class."""
    return any(dotted in names for names in _registered.values())


def is_known(dotted: str) -> bool:
    """Return whether a data file may refer to a class: one in alchemy, the project or an imported module."""
    module = dotted.rpartition(".")[0]
    return module.partition(".")[0] in ("alchemy", *own_packages) or module in sys.modules


def unregister_package(package: str) -> None:
    """Unregister all classes of a package, so that another package with the same name can be used."""
    for names in _registered.values():
        for key in [key for key in names if key.startswith(f"{package}.")]:
            del names[key]


def resolve(dotted: str) -> Any:
    """Import any object by its dotted name: `torch.nn.functional.mse_loss`, `src.data.parse`."""
    module_name, _, name = _text(dotted, object).rpartition(".")
    if not module_name:
        raise AlchemyError(f"{dotted!r} lacks a module", hint="use the import path, such as 'package.module.name'")
    module = _import(module_name, dotted)
    try:
        return getattr(module, name)
    except AttributeError:
        raise AlchemyError(f"module {module_name!r} has no {name!r}", hint=did_you_mean(name, dir(module))) from None


def _import(module_name: str, ty: str) -> ModuleType:
    if module_name in ENTRY_MODULES:
        loaded = [sys.modules[name] for name in reversed(_spellings(module_name)) if name in sys.modules]
        if loaded:
            return loaded[0]
    if not all(module_name.split(".")):  # such as 'a..b' or '..'
        raise AlchemyError(f"{ty!r} is not an import path", hint="use a path such as 'package.module.Class'")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise AlchemyError(
                f"importing {module_name!r} for type = {ty!r} failed: {error}", hint=f"install {error.name!r}"
            ) from error
        raise AlchemyError(
            f"type = {ty!r}: there is no module {error.name!r}",
            hint="check the spelling and the working directory",
        ) from error


def _spellings(module_name: str) -> tuple[str, ...]:
    return ENTRY_MODULES if module_name in ENTRY_MODULES else (module_name,)


def _same_source(one: type, other: type) -> bool:
    """Return whether a class was defined again by rerunning its module, as in notebooks and reloads."""
    return one is other or (one.__module__ == other.__module__ and one.__qualname__ == other.__qualname__)


def _names_in(module: ModuleType, base: type) -> list[str]:
    prefix = f"{module.__name__}."
    registered = [key.removeprefix(prefix) for names in _registered.values() for key in names if key.startswith(prefix)]
    # use `dir` because a package may load its names lazily
    members = [(name, getattr(module, name, None)) for name in dir(module)]
    defined = [name for name, value in members if isinstance(value, type) and issubclass(value, base)]
    return sorted(set(registered + defined))


def _offer(names: Collection[str]) -> str:
    return f"it has {', '.join(names)}" if names else "it defines none"


def _text(ty: object, base: type) -> str:
    if not isinstance(ty, str):
        raise AlchemyError(f"the type of a {base.__name__} must be a string such as 'package.module.Class', not {ty!r}")
    return current_path(ty)


def _name(cls: Maker) -> str:
    return cls.__name__ if isinstance(cls, type) or inspect.isroutine(cls) else str(cls)


@runtime_checkable
class _Located(Protocol):
    """A table with a position in the config file."""

    def where(self, key: str = "") -> str: ...


def where_of(table: object, key: str = "") -> str:
    """Return `file:line` of a table or one of its keys; empty if it was defined in code."""
    return table.where(key) if isinstance(table, _Located) else ""


def add_location(error: AlchemyError, where: str, section: str) -> AlchemyError:
    """Return the same error with a location, unless it already has one."""
    problem = error.problem
    elsewhere = bool(problem.section) and not problem.section.startswith(section)  # not in this table
    return AlchemyError(
        problem.message,
        where=problem.where or ("" if elsewhere else where),
        section=problem.section or section,
        hint=problem.hint,
    )


def plain(value: object) -> Any:
    """Convert a config value to ordinary dicts and lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
