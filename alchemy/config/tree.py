"""The configuration as a tree of plain values that remember where they came from and whether they were read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from alchemy.config.scan import Path

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values


@dataclass(frozen=True)
class Origin:
    """Where a value came from, and what it replaced there."""

    file: str = ""
    line: int = 0
    kind: str = "file"  # file | command line | default | dynamic | drawn | code | environment
    overrode: Origin | None = None
    value_text: str = ""  # the value as it stood at this origin, for `config explain`
    spelt: str = ""  # the old name that the key had there

    def __str__(self) -> str:
        if self.file:
            return f"{self.file}:{self.line}" if self.line else self.file
        return "" if self.kind == "file" else self.kind


CODE = Origin(kind="code")


class Unread(NamedTuple):
    """A key that no part has read, and the keys of its table that were asked for but are not there."""

    section: str
    key: str
    where: str
    missed: list[str]


class Table(dict[str, Any]):
    """A mapping of plain scalars, Tables and Arrays. Reading a key is remembered; `peek` and `plain` do not count.

    What was read is no part of the value: it is neither written, compared nor pickled, and a copy starts unread.
    """

    def __init__(self, data: Mapping[str, Any] | None = None, *, origin: Origin = CODE) -> None:
        super().__init__()
        self.origin = origin
        self.origins: dict[str, Origin] = {}
        self._read: set[str] = set()
        for key, value in (data or {}).items():
            self.put(str(key), value, origin)

    # -- where values come from
    def where(self, key: str = "") -> str:
        """`file:line` of a key, or of the table itself."""
        return str(self.origins.get(key, self.origin))

    def put(self, key: str, value: Any, origin: Origin) -> None:
        """Assigns with an origin."""
        super().__setitem__(key, _wrap(value, origin))
        self.origins[key] = origin

    # -- reading, which is remembered
    def __getitem__(self, key: str) -> Any:
        self._read.add(key)  # also when it is not there: what a part asked for in vain is the hint for a misspelt key
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))  # a part that asks whether a switch is there has read it
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:  # also keeps `**table` off the path that would bypass __getitem__
        return super().__iter__()

    def items(self) -> dict_items[str, Any]:
        self._read.update(super().keys())
        return super().items()

    def values(self) -> dict_values[str, Any]:
        self._read.update(super().keys())
        return super().values()

    def peek(self, key: str, default: Any = None) -> Any:
        """Reads without counting as a reader."""
        return super().get(key, default)

    def entries(self) -> dict_items[str, Any]:
        """All items, without counting as a reader."""
        return super().items()

    # -- writing
    def __setitem__(self, key: str, value: Any) -> None:
        self.put(key, value, CODE)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.origins.pop(key, None)

    def pop(self, key: str, *default: Any) -> Any:
        self._read.add(key)
        self.origins.pop(key, None)
        return super().pop(key, *default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        super().clear()
        self.origins.clear()

    def popitem(self) -> tuple[str, Any]:
        key, value = super().popitem()
        self.origins.pop(key, None)
        return key, value

    def __ior__(self, other: Any) -> Table:  # type: ignore[override, misc]
        self.update(other)
        return self

    # -- copies
    def copy(self) -> Table:
        return copy.copy(self)

    def __copy__(self) -> Table:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.origins, twin._read = dict(self.origins), set()
        dict.update(twin, dict.items(self))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        twin = copy.copy(self)
        for key, value in dict.items(self):
            dict.__setitem__(twin, key, copy.deepcopy(value, memo))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), dict(dict.items(self)), {**self.__dict__, "_read": set()})

    def plain(self) -> dict[str, Any]:
        """The tree as ordinary dicts and lists; does not count as reading."""
        return {key: plain(value) for key, value in dict.items(self)}

    def never_read(self, section: str = "") -> list[Unread]:
        """Every key that nobody has read, with what was asked for in vain beside it."""
        unread: list[Unread] = []
        for key, value in dict.items(self):
            if key not in self._read:
                missed = sorted(name for name in self._read if not dict.__contains__(self, name))
                unread.append(Unread(section, key, self.where(key), missed))
            else:
                unread.extend(_never_read(value, f"{section}.{key}" if section else key))
        return unread

    def mark_read(self, *keys: str) -> None:
        """Counts `keys` (all, when none is named) as read."""
        self._read.update(keys or super().keys())


class Array(list[Any]):
    """A list of plain scalars, Tables and Arrays that remembers the line of each element it was read with."""

    def __init__(self, data: Sequence[Any] = (), *, origin: Origin = CODE) -> None:
        super().__init__(_wrap(value, origin) for value in data)
        self.origin = origin

    def __setitem__(self, index: Any, value: Any) -> None:
        wrapped = [_wrap(v, CODE) for v in value] if isinstance(index, slice) else _wrap(value, CODE)
        super().__setitem__(index, wrapped)

    def append(self, value: Any) -> None:
        super().append(_wrap(value, CODE))

    def insert(self, index: SupportsIndex, value: Any) -> None:
        super().insert(index, _wrap(value, CODE))

    def extend(self, values: Any) -> None:
        super().extend(_wrap(value, CODE) for value in values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_array, (type(self), list(self), self.__dict__)


class Document(Table):
    """The root of a configuration: what `prepare_cfg` gives."""

    def __init__(self, data: Mapping[str, Any] | None = None, *, origin: Origin = CODE, path: str = "") -> None:
        self.source = ""  # the text it was read from, so that comments can be written back
        self.path = path  # the name shown in messages
        self.variant = ""
        self.delta: dict[str, Any] = {}
        self.dynamic: dict[str, Any] = {}  # dotted key -> the recipe that gave its value
        self.notes: list[Any] = []  # warnings found while loading
        self.warnings: list[Any] = []  # those and the ones of the check, to be told by the run
        super().__init__(data, origin=origin)


def grow(data: Mapping[str, Any], origin_of: Callable[[Path], Origin], *, kind: type[Table] = Table) -> Table:
    """Nested plain data as a tree; `origin_of` tells where the value at a path came from."""
    return _grow(data, origin_of, (), kind)


def plain(value: Any) -> Any:
    """A value as ordinary Python; does not count as reading."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in dict.items(value)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _grow(value: Any, origin_of: Callable[[Path], Origin], path: Path, kind: type[Table] = Table) -> Any:
    origin = origin_of(path)
    if isinstance(value, Mapping):
        table = kind(origin=origin)
        for key, item in value.items():
            table.put(str(key), _grow(item, origin_of, (*path, str(key))), origin_of((*path, str(key))))
        return table
    if isinstance(value, list | tuple):
        array = Array(origin=origin)
        list.extend(array, [_grow(item, origin_of, (*path, i)) for i, item in enumerate(value)])
        return array
    return value


def _wrap(value: Any, origin: Origin) -> Any:
    if isinstance(value, Table | Array):
        return value
    if isinstance(value, Mapping):
        return Table(value, origin=origin)
    if isinstance(value, list | tuple):
        return Array(value, origin=origin)
    # tomlkit's scalars are subclasses that end up in saved states; keep what they stand for
    unwrap = getattr(value, "unwrap", None)
    return unwrap() if unwrap is not None and type(value).__module__.startswith("tomlkit") else value


def _never_read(value: Any, path: str) -> list[Unread]:
    if isinstance(value, Table):
        return value.never_read(path)
    if isinstance(value, Array):
        return [row for i, item in enumerate(value) for row in _never_read(item, f"{path}.{i}")]
    return []


def _restore(kind: type[Table], data: dict[str, Any], state: dict[str, Any]) -> Table:
    table = kind.__new__(kind)
    dict.update(table, data)
    table.__dict__.update(state)
    return table


def _restore_array(kind: type[Array], data: list[Any], state: dict[str, Any]) -> Array:
    array = kind.__new__(kind)
    list.extend(array, data)
    array.__dict__.update(state)
    return array
