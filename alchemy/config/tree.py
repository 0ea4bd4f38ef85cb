"""A config as a tree of plain values that records where each value came from."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsIndex

from alchemy.config.line_numbers import Path
from alchemy.config.values import dotted_key, from_tomlkit, line_of
from alchemy.errors import Problem
from alchemy.registry import plain


class Place(NamedTuple):
    """A position in a text, whose lines are computed only on demand."""

    lines: Mapping[Path, int]
    path: Path = ()


class Origin(NamedTuple):
    """Where a value came from, and what it replaced."""

    file: str = ""
    at: int | Place = 0  # line number, or how to compute it
    kind: str = "file"  # file | command line | default | dynamic | drawn | code | environment
    overrode: Origin | None = None
    value_text: str = ""  # the value at this origin, for `config explain`
    spelt: str = ""  # the deprecated name of the key at this origin
    foreign: bool = False  # from the config of an untrusted record

    @property
    def line(self) -> int:
        return self.at if isinstance(self.at, int) else line_of(*self.at)

    def below(self, key: str | int) -> Origin:
        """Return the origin of a key in a table with this origin."""
        if isinstance(self.at, int):
            return self
        return Origin(self.file, Place(self.at.lines, (*self.at.path, key)), foreign=self.foreign)

    def __deepcopy__(self, memo: object) -> Origin:
        return self

    def __str__(self) -> str:
        if self.file:
            return f"{self.file}:{self.line}" if self.line else self.file
        return "" if self.kind == "file" else self.kind


CODE = Origin(kind="code")
DEFAULT = Origin(kind="default")
COMMAND_LINE = Origin(kind="command line")


class Table(dict[str, Any]):
    """A dict of plain scalars, Tables and Arrays that records the origin of each key."""

    former: Mapping[str, str] = MappingProxyType({})  # key -> the `type` it was set for, before a layer changed it

    def __init__(self, data: Mapping[str, Any] | None = None, *, origin: Origin = CODE) -> None:
        self.origin = origin
        # only origins that differ from the table's; the origins of deleted keys are kept
        self.origins: dict[str, Origin] = {}
        for key, value in data.items() if data else ():
            self.put(str(key), value, origin)

    def origin_of(self, key: str) -> Origin:
        """Return the origin of a key, or of the table if there is no such key."""
        return (self.origins.get(key) or self.origin.below(key)) if key in self else self.origin

    def where(self, key: str = "") -> str:
        """Return the `file:line` of a key, or of the table itself together with its command-line overrides."""
        place = str(self.origin_of(key))
        changed = [] if key or self.origin.kind == COMMAND_LINE.kind else list(_overridden_keys(self))
        return f"{place} and the command line ({', '.join(changed)})" if changed else place

    def table(self, key: str) -> Table:
        """Return the table at `key`, or an empty one."""
        found = self.get(key)
        return found if isinstance(found, Table) else Table(origin=self.origin)

    def put(self, key: str, value: object, origin: Origin) -> None:
        """Set a key and its origin."""
        super().__setitem__(key, _wrap(value, origin))
        self.origins[key] = origin

    def __setitem__(self, key: str, value: object) -> None:
        self.put(key, value, CODE)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: object = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Mapping[str, object]) -> Table:  # type: ignore[override, misc]
        self.update(other)
        return self

    def copy(self) -> Table:
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:  # copying and pickling would lose the origins otherwise
        return _restore_table, (type(self), dict(self), self.__dict__)

    def plain(self) -> dict[str, Any]:
        """Return the tree as ordinary dicts and lists."""
        tree: dict[str, Any] = plain(self)
        return tree


class Array(list[Any]):
    """A list of plain scalars, Tables and Arrays."""

    def __init__(self, data: Iterable[object] = (), *, origin: Origin = CODE) -> None:
        super().__init__(_wrap(value, origin) for value in data)
        self.origin = origin

    @classmethod
    def _of(cls, rows: Iterable[object], origin: Origin) -> Array:
        """Build an array from values that need no wrapping."""
        array = cls(origin=origin)
        list.extend(array, rows)
        return array

    def __setitem__(self, index: Any, value: Any) -> None:
        wrapped = [_wrap(v, CODE) for v in value] if isinstance(index, slice) else _wrap(value, CODE)
        super().__setitem__(index, wrapped)

    def append(self, value: object) -> None:
        super().append(_wrap(value, CODE))

    def insert(self, index: SupportsIndex, value: object) -> None:
        super().insert(index, _wrap(value, CODE))

    def extend(self, values: Iterable[object]) -> None:
        super().extend(_wrap(value, CODE) for value in values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_array, (type(self), list(self), self.__dict__)


class Document(Table):
    """The root of a config, returned by `prepare_cfg`."""

    def __init__(self, data: Mapping[str, Any] | None = None, *, origin: Origin = CODE, path: str = "") -> None:
        self.source = ""  # the text it was read from, so that comments can be written back
        self.path = path  # the name shown in messages
        self.variant = ""
        self.delta: dict[str, Any] = {}
        self.dynamic: dict[str, Any] = {}  # dotted key -> the recipe that produced its value
        self.references: dict[str, str] = {}  # dotted key -> the text whose references produced its value
        self.secrets: dict[str, str] = {}  # secret value -> the environment variable it came from, or ""
        self.masked: dict[str, str] = {}  # dotted key -> the masked secret in the file
        self.notes: list[Problem] = []  # warnings found while loading
        self.written: dict[str, str] = {}  # `file:line` of expanded keys -> the table they were written in
        self.added: dict[str, str] = {}  # top-level key added with `--set` -> its value as given
        self.vetted = True  # False: contains values from untrusted configs that have not been vetted
        self.warnings: list[Problem] = []  # `notes` and the warnings of the check, reported by the run
        self.trained_at: Any = None  # `symbols.TrainedAt` of the tested weights, if known from a record
        self.weights = ""  # description of the tested weights: folder, epoch and update
        self.parent = ""  # id of the record that the weights come from, or that is rerun
        self.parent_fold = ""  # its `fold_hash`
        super().__init__(data, origin=origin)

    @property
    def label(self) -> str:
        """File and variant, e.g. `train.toml#small`; empty if the config was not read from a file."""
        return f"{self.path}#{self.variant}" if self.variant else self.path


def build_tree(data: Mapping[str, Any], origin: Origin, *, kind: type[Table] = Table) -> Table:
    """Build a tree from nested plain data; `origin` is the origin of its root."""
    table = kind(origin=origin)
    for key, item in data.items():
        dict.__setitem__(table, key, _build_node(item, origin, key))
    return table


def _build_node(item: object, origin: Origin, key: str | int) -> object:
    if isinstance(item, dict):
        return build_tree(item, origin.below(key))
    if isinstance(item, list | tuple):
        home = origin.below(key)
        rows = item if is_flat(item) else [_build_node(row, home, index) for index, row in enumerate(item)]
        return Array._of(rows, home)
    return item


def _overridden_keys(table: Table, path: Path = ()) -> Iterator[str]:
    """Yield the keys that were set on the command line; values are left out, because they may be secret."""
    for key, value in table.items():
        origin = table.origins.get(key)
        if origin is not None and origin.kind == COMMAND_LINE.kind:
            yield dotted_key((*path, key))
        elif isinstance(value, Table):
            yield from _overridden_keys(value, (*path, key))


def copy_tree(node: Any) -> Any:
    """Return a copy of a tree with the same values and origins; scalars are returned unchanged."""
    if isinstance(node, Table):
        table = Table(origin=node.origin)
        table.origins = node.origins.copy()
        if node.former:
            table.former = dict(node.former)
        for key, item in node.items():
            dict.__setitem__(table, key, copy_tree(item) if isinstance(item, dict | list) else item)
        return table
    if isinstance(node, Array):
        return Array._of(node if is_flat(node) else map(copy_tree, node), node.origin)
    return node


def is_flat(items: Iterable[object]) -> bool:
    """Return whether a list contains only scalars; exact types are compared, since trees consist of known classes."""
    return set(map(type, items)).isdisjoint((dict, list, tuple, Table, Array))


def children(node: Table | Array) -> Iterable[tuple[str | int, Any]]:
    """Iterate over the keys of a table, or the indices of a list, with their values."""
    return node.items() if isinstance(node, Table) else enumerate(node)


def _wrap(value: object, origin: Origin) -> object:
    if isinstance(value, Table | Array):
        return value
    if isinstance(value, Mapping):
        return Table(value, origin=origin)
    if isinstance(value, list | tuple):
        return Array(value, origin=origin)
    return from_tomlkit(value)


def _restore_table(kind: type[Table], data: dict[str, Any], state: dict[str, Any]) -> Table:
    table = kind.__new__(kind)
    dict.update(table, data)
    table.__dict__.update(state, origins=dict(state["origins"]))
    return table


def _restore_array(kind: type[Array], data: list[Any], state: dict[str, Any]) -> Array:
    array = kind.__new__(kind)
    list.extend(array, data)
    array.__dict__.update(state)
    return array
