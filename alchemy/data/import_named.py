"""Import objects that a config names by path: functions, samplers, collate functions."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.registry import Registrable, construct, parameters, resolve


def import_named(spec: object, *, what: str, given: Mapping[str, Any] | None = None) -> Any:
    """Return the object for `"a.b.name"` or `{ type = "a.b.name", key = value }`; return other values unchanged.

    A class is instantiated with the keys and with the items of `given` that its constructor accepts. A function with
    keys becomes a partial. Nested tables with a `type` are built first.
    """
    if isinstance(spec, str):
        spec = {"type": spec}
    if not isinstance(spec, Mapping):
        return spec
    if "type" not in spec:
        raise AlchemyError(f"{what} needs a 'type'", hint=f'write {what} = {{ type = "package.module.Name", ... }}')
    target = _resolve(spec["type"], what)
    table = {key: _build_nested(value, f"{what}.{key}", given) for key, value in spec.items()}
    try:
        if isinstance(target, type):
            return construct(target, table, given=_select_given(target, table, given), section=what)
        return _bind_arguments(target, {key: value for key, value in table.items() if key != "type"}, what=what)
    except AlchemyError:
        raise
    except Exception as error:
        raise AlchemyError(f"{what}: cannot create {spec['type']}: {type(error).__name__}: {error}") from error


def import_function(spec: object, arguments: Mapping[str, Any], *, what: str) -> Any:
    """Return the function that `spec` names, with `arguments` bound; a class is instantiated if it is callable."""
    if isinstance(spec, str):
        target = _resolve(spec, what)
        if not isinstance(target, type) or not any("__call__" in vars(kind) for kind in target.__mro__):
            return _bind_arguments(target, arguments, what=what)
    return _bind_arguments(import_named(spec, what=what), arguments, what=what)


def _bind_arguments(function: Any, arguments: Mapping[str, Any], *, what: str) -> Any:
    """Bind keyword arguments to a function; raise for unknown names now rather than when the first sample is read."""
    if not callable(function):
        raise AlchemyError(f"{what} is {function!r}, which is not callable", hint="use a function or a class")
    name = getattr(function, "__name__", repr(function))
    try:
        signature = inspect.signature(function)
        signature.bind_partial(**arguments)
    except TypeError as error:
        raise AlchemyError(
            f"{what}: {name}: {error}", hint=f"accepted: {', '.join(parameters(function)[0])}"
        ) from error
    except ValueError:  # some built-in functions have no signature
        return functools.partial(function, **arguments) if arguments else function
    for key, parameter in signature.parameters.items():
        required = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if required and key not in arguments:
            raise AlchemyError(f"{what}: {name} requires {key!r}", hint=f"set {key!r} in the config")
    return functools.partial(function, **arguments) if arguments else function


def _resolve(dotted: Any, what: str) -> Any:
    with contextlib.suppress(AlchemyError):  # the alias of a registered part is not an attribute of its module
        return Registrable.resolve_registered_module(dotted)
    try:
        return resolve(dotted)
    except AlchemyError as error:
        raise AlchemyError(f"{what}: {error.problem.message}", hint=error.problem.hint) from error


def _build_nested(value: object, what: str, given: Mapping[str, Any] | None) -> Any:
    return import_named(value, what=what, given=given) if isinstance(value, Mapping) and "type" in value else value


def _select_given(target: type, table: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    names = parameters(target)[0]
    return {key: value for key, value in (given or {}).items() if key in names and key not in table}
