"""Things that a config names by import path: functions, samplers, collates."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.registry import Registrable, construct, parameters, resolve


def import_named(spec: object, *, what: str, given: Mapping[str, Any] | None = None) -> Any:
    """The object that `"a.b.name"` or `{ type = "a.b.name", key = value }` means; anything else is taken as it is.

    A class is called with the keys, and with those of `given` that its constructor takes; a function with keys
    becomes a partial. Tables inside with a `type` of their own are built first.
    """
    if isinstance(spec, str):
        spec = {"type": spec}
    if not isinstance(spec, Mapping):
        return spec
    if "type" not in spec:
        raise AlchemyError(f"{what} needs a 'type'", hint=f'write {what} = {{ type = "package.module.Name", ... }}')
    target = _find(spec["type"], what)
    table = {key: _inner(value, f"{what}.{key}", given) for key, value in spec.items()}
    try:
        if isinstance(target, type):
            return construct(target, table, given=_missing(target, table, given), section=what)
        return _with_arguments(target, {key: value for key, value in table.items() if key != "type"}, what=what)
    except AlchemyError:
        raise
    except Exception as error:
        raise AlchemyError(f"{what}: {spec['type']} could not be made: {type(error).__name__}: {error}") from error


def import_function(spec: object, arguments: Mapping[str, Any], *, what: str) -> Any:
    """The function that `spec` means, with keywords filled in; a class is one only if its objects can be called."""
    if isinstance(spec, str):
        target = _find(spec, what)
        if not isinstance(target, type) or not any("__call__" in vars(kind) for kind in target.__mro__):
            return _with_arguments(target, arguments, what=what)
    return _with_arguments(import_named(spec, what=what), arguments, what=what)


def _with_arguments(function: Any, arguments: Mapping[str, Any], *, what: str) -> Any:
    """`function` with keywords filled in; names that it does not take are refused now, not at the first sample."""
    if not callable(function):
        raise AlchemyError(f"{what} is {function!r}, which cannot be called", hint="name a function or a class")
    name = getattr(function, "__name__", repr(function))
    try:
        signature = inspect.signature(function)
        signature.bind_partial(**arguments)
    except TypeError as error:
        raise AlchemyError(f"{what}: {name}: {error}", hint=f"it takes {', '.join(parameters(function)[0])}") from error
    except ValueError:  # some built-in functions have no signature to look at
        return functools.partial(function, **arguments) if arguments else function
    for key, parameter in signature.parameters.items():
        required = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if required and key not in arguments:
            raise AlchemyError(f"{what}: {name} needs {key!r}", hint="nobody but the config can give it a keyword")
    return functools.partial(function, **arguments) if arguments else function


def _find(dotted: Any, what: str) -> Any:
    with contextlib.suppress(AlchemyError):  # an alias of a registered part is no attribute of its module
        return Registrable.resolve_registered_module(dotted)
    try:
        return resolve(dotted)
    except AlchemyError as error:
        raise AlchemyError(f"{what}: {error.problem.message}", hint=error.problem.hint) from error


def _inner(value: object, what: str, given: Mapping[str, Any] | None) -> Any:
    return import_named(value, what=what, given=given) if isinstance(value, Mapping) and "type" in value else value


def _missing(target: type, table: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    names = parameters(target)[0]
    return {key: value for key, value in (given or {}).items() if key in names and key not in table}
