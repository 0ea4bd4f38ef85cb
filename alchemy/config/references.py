"""Resolve references in a config: `"${model.dim}"` is replaced by the value at that key, `$${` is a literal `${`.

References are resolved once everything else is known. A string that consists of a single reference becomes the
value with its type, which may be a table or list; inside a longer string the value is formatted as text. The config of
a record contains final values, so text that looks like a reference is left unchanged there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from alchemy.config.line_numbers import DEEPEST, Path, split_key
from alchemy.config.merge import find_key, format_brief
from alchemy.config.secrets import keep_secret, mask_value, setting_of
from alchemy.config.toml_writer import format_inline
from alchemy.config.tree import Array, Document, Origin, Table, children, copy_tree
from alchemy.config.values import dotted_key
from alchemy.errors import Problem

MARK, ESCAPED = "${", "$${"
LARGEST = 500_000  # limit on values and characters, since nested references could exhaust the memory
_PIECE = re.compile(r"\$\$\{|\$\{(?P<key>[^{}]*)\}|\$\{")
# keys whose references are needed by earlier loading steps
_EARLY_KEYS, _EARLY_TABLE = ("type", "runner", "like"), ("task", "data")
_ESCAPE = "write $${ for the text itself"


class _Place(NamedTuple):
    """A string with a reference: its container, key and path, and whether it is inside a dynamic value."""

    node: Table | Array
    key: Any
    path: Path
    dynamic: bool = False

    @property
    def text(self) -> Any:
        return self.node[self.key]

    @property
    def origin(self) -> Origin:
        return self.node.origin_of(self.key) if isinstance(self.node, Table) else self.node.origin


class _NotReady(Exception):
    """Raised if the value is not known yet, because it is dynamic or a seed that has not been drawn."""


class _Unresolvable(Exception):
    """Raised if a reference cannot be resolved; `problem` is None if the reason was already reported."""

    def __init__(self, problem: Problem | None = None) -> None:
        super().__init__(problem)
        self.problem = problem


class References:
    """The references in a document, resolved in place: first the references that other loading steps need, then the
    others, and finally references to dynamic values."""

    def __init__(self, doc: Document, problems: list[Problem]) -> None:
        self.doc, self.problems = doc, problems
        self.early = True
        self.places = {place.path: place for place in _find_places(doc)}  # not resolved yet
        self.active: list[Path] = []  # places being resolved, each needed by the previous one
        self.clean: set[Path] = set()  # tables and lists without unresolved references
        self.failed: set[Path] = set()
        self.size = 0

    def resolve_early(self) -> None:
        """Resolve references in `[task.data]`, `like` and part names, where possible."""
        for place in list(self.places.values()):
            if place.path[-1] in _EARLY_KEYS or place.path[:2] == _EARLY_TABLE:
                self._try(place)

    def resolve(self) -> None:
        """Resolve all references except references to dynamic values (see `resolve_dynamic`)."""
        self.early = False
        # expansion may have moved references; a config without references still has none
        self.places = {place.path: place for place in _find_places(self.doc)} if self.places else {}
        for place in list(self.places.values()):
            self._try(place)

    def resolve_dynamic(self, *, last: bool) -> None:
        """Resolve references to dynamic values."""
        for place in list(self.places.values()):
            self._try(place)
        for place in self.places.values() if last else ():  # references to a seed that the config does not have
            self._report(place, "the value is not known when the config is loaded", "set a seed in the config")

    def _try(self, place: _Place) -> None:
        try:
            self._resolve(place)
        except _NotReady:
            if place.dynamic and not self.early:
                self._report(place, "a dynamic value cannot depend on another one", "write a value instead")
        except _Unresolvable as error:
            if not self.early:
                self.problems += [error.problem] if error.problem else []

    def _report(self, place: _Place, why: str, hint: str) -> None:
        self.failed.add(place.path)
        self.problems.append(_problem(place, why, hint))

    # -- one reference
    def _resolve(self, place: _Place) -> None:
        """Replace a string that contains references with its value."""
        if place.path not in self.places:
            return
        text = place.text
        if place.path in self.failed:
            raise _Unresolvable
        if self.early and ESCAPED in text:
            raise _NotReady
        if place.path in self.active or len(self.active) > DEEPEST:
            raise _Unresolvable(self._circular_reference(place))
        self.active.append(place.path)
        try:
            value, origin, keys = self._value(place, text)
        except _Unresolvable:
            self.failed |= set() if self.early else {place.path}
            raise
        finally:
            self.active.pop()
        if keys:
            self.doc.references[dotted_key(place.path)] = text
        _put(place, value, origin)
        del self.places[place.path]

    def _value(self, place: _Place, text: str) -> tuple[Any, Origin, list[str]]:
        """Return the value of a string with references, its origin, and the keys it refers to."""
        origin, pieces, keys, end = place.origin, [], [], 0
        targets: list[tuple[Path, Any]] = []
        for match in _PIECE.finditer(text):
            pieces.append(text[end : match.start()])
            end = match.end()
            if match[0] == ESCAPED:
                pieces.append(MARK)
                continue
            path, value, source = self._target(place, match["key"])
            keys.append(dotted_key(path))
            targets.append((path, value))
            # a value from an untrusted config stays untrusted wherever it is referenced
            origin = source if source.foreign else origin
            pieces.append(_format_inside_text(place, keys[-1], value) if match[0] != text else "")
        pieces.append(text[end:])
        made = targets[0][1] if len(pieces) == 3 and not any(pieces) and targets else "".join(pieces)
        self._check_size(place, made)
        for path, value in targets:
            keep_secret(self.doc, path, value, made)
        return copy_tree(made), origin, keys

    def _target(self, place: _Place, dotted: str | None) -> tuple[Path, Any, Origin]:
        """Return the path, value and origin of a referenced key; references in that value are resolved first."""
        split = split_key(dotted or "")
        if split is None or split[1]:
            raise _Unresolvable(_problem(place, "invalid reference", f"write ${{table.key}}, or {_ESCAPE}"))
        node: Any = self.doc
        path: Path = ()
        origin = self.doc.origin
        for name in split[0]:
            if isinstance(node, Table) and "dyn" in node:
                raise _NotReady
            key = find_key(node, name, path, "")
            if isinstance(key, Problem):
                raise _NotReady if self.early or split[0] == ["seed"] else _Unresolvable(_missing_key(place, key))
            here = _Place(node, key, (*path, key))
            self._resolve(here)
            node, path, origin = here.text, here.path, here.origin
        if isinstance(node, Table | Array):
            if self.early and (isinstance(node, Table) or any(isinstance(item, Table | Array) for item in node)):
                raise _NotReady  # the table may still change
            if isinstance(node, Table) and "dyn" in node:
                raise _NotReady
            for inner in list(_find_places(node, path)) if path not in self.clean else ():
                self._resolve(inner)
            if _has_recipe(node):
                raise _NotReady
            self.clean.add(path)
        return path, node, origin

    def _circular_reference(self, place: _Place) -> Problem:
        if len(self.active) > DEEPEST:
            return _problem(place, f"references to references are nested more than {DEEPEST} levels deep", "")
        links = [*self.active[self.active.index(place.path) :], place.path]
        self.failed.update(links)
        return _problem(place, f"circular reference: {' -> '.join(map(dotted_key, links))}", "")

    def _check_size(self, place: _Place, value: object) -> None:
        if self.size > LARGEST:
            raise _Unresolvable  # already reported
        size, depth = _measure(value)
        self.size += size
        if self.size > LARGEST:
            raise _Unresolvable(_problem(place, f"references add more than {LARGEST} values and characters", ""))
        if len(place.path) + depth > DEEPEST:
            raise _Unresolvable(_problem(place, f"tables would be nested more than {DEEPEST} levels deep", ""))


def escape(node: Any) -> None:
    """Escape all strings in a tree that contains only final values, so that resolving it has no effect."""
    for place in list(_find_places(node)):
        text = place.text.replace(MARK, ESCAPED)
        if isinstance(place.node, Table):
            dict.__setitem__(place.node, place.key, text)  # keeps the origin of the value
        else:
            place.node[place.key] = text


def keys_in(text: str) -> list[list[str]]:
    """Return the keys that a string refers to."""
    found = (split_key(match["key"]) for match in _PIECE.finditer(text) if match["key"])
    return [split[0] for split in found if split]


def _find_places(node: Table | Array, path: Path = (), dynamic: bool = False) -> Iterator[_Place]:
    for key, item in children(node):
        if isinstance(item, str):
            if MARK in item:
                yield _Place(node, key, (*path, key), dynamic)
        elif isinstance(item, Table) and not (key == "sweep" and not path):
            yield from _find_places(item, (*path, key), dynamic or "dyn" in item)
        elif isinstance(item, Array):
            yield from _find_places(item, (*path, key), dynamic)


def _has_recipe(node: Table | Array) -> bool:
    inner = [item for _, item in children(node) if isinstance(item, Table | Array)]
    return any((isinstance(item, Table) and "dyn" in item) or _has_recipe(item) for item in inner)


def _put(place: _Place, value: Any, origin: Origin) -> None:
    node, key = place.node, place.key
    if isinstance(node, Table):
        node.put(key, value, origin)
    else:
        node[key] = value
        node.origin = node.origin._replace(foreign=node.origin.foreign or origin.foreign)


def _format_inside_text(place: _Place, key: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, Table | Array):
        kind = "a table" if isinstance(value, Table) else "a list" if isinstance(value, Array) else "none"
        text = f"{key} is {kind}, which cannot be part of a string"
        raise _Unresolvable(_problem(place, text, "use a string that contains only the reference"))
    return format_inline(value)


def _measure(value: object) -> tuple[int, int]:
    """Return the size of a value and its nesting depth."""
    if isinstance(value, str):
        return len(value), 0
    inner = [_measure(item) for _, item in children(value)] if isinstance(value, Table | Array) else []
    return 1 + sum(size for size, _ in inner), max((1 + depth for _, depth in inner), default=0)


def _problem(place: _Place, why: str, hint: str) -> Problem:
    name, text = dotted_key(place.path[-1:]), format_brief(mask_value(setting_of(place.path), place.text))
    return Problem(f"{name} = {text}: {why}", str(place.origin), dotted_key(place.path[:-1]), hint)


def _missing_key(place: _Place, gap: Problem) -> Problem:
    hint = gap.hint if gap.hint.startswith("did you") else ", or ".join(filter(None, (gap.hint, _ESCAPE)))
    return _problem(place, gap.message, hint)
