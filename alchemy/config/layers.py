"""Read the layers of a config: the files, their base files, and the selected variants."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alchemy.config.deprecated import rename_keys
from alchemy.config.formats import read_file
from alchemy.config.line_numbers import DEEPEST
from alchemy.config.merge import compose, deletes, merge
from alchemy.config.references import escape
from alchemy.config.tree import CODE, Array, Document, Origin, Place, Table, build_tree, copy_tree
from alchemy.config.untrusted import reject_recipes
from alchemy.config.values import Parsed, decode, fail
from alchemy.errors import ConfigError, Problem, did_you_mean
from alchemy.trust import is_trusted, record_of

Source = str | os.PathLike[str] | Mapping[str, Any]


@dataclass
class Layer:
    """A file merged with its bases, and its variants as deltas that have not been applied yet."""

    body: Table
    variants: Table
    name: str = ""  # path of the file as shown in messages
    source: str = ""
    problems: list[Problem] = field(default_factory=list)
    foreign: bool = False  # from the config of an untrusted record
    laid: frozenset[str] = frozenset()  # real paths of the files merged into the body
    path: str = ""  # real path of the file


@dataclass
class _Pile:
    """Layers in the process of being merged."""

    body: Table
    problems: list[Problem]
    laid: set[str] = field(default_factory=set)  # real paths of the files that must not be merged again
    below: set[str] = field(default_factory=set)  # real paths of the bases of these files


@dataclass
class Layers:
    """The layers read so far; each file is read once, no matter how many files name it."""

    allow_code: bool
    user_dir: str = "src"
    record: bool = False  # treat the first file as the config of a record, regardless of its location
    compare: bool = False  # nothing will be built from the layers
    once: bool = False  # only one document is created from the layers, so it may reuse a layer
    layers: dict[str, Layer] = field(default_factory=dict)  # by real path

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders to search for the project's modules."""
        return (os.path.dirname(os.path.abspath(self.user_dir)), ".")

    def layer(self, source: str | Mapping[str, Any], where: str = "", chain: tuple[str, ...] = ()) -> Layer:
        """Return the layer of a mapping or file, requested at `where` as a base of the files in `chain`."""
        if isinstance(source, Mapping):
            return self._read(_parse_mapping(source), "", chain)
        path = _real_path(source)
        if path not in self.layers:
            parsed = read_file(source, allow_code=self.allow_code, where=where)
            self.layers[path] = self._read(parsed, source, (*chain, path))
        return self.layers[path]

    def document(self, source: Source, variant: str | None, problems: list[Problem]) -> Document:
        """Return the document of a source with a variant applied."""
        variant = variant or None
        if isinstance(source, Document) and not variant:
            return _copy_document(source)
        name = ""
        if not isinstance(source, Mapping):
            name, named = split_variant(os.fspath(source))
            source, variant = name, variant or named  # an empty name after '#' is rejected later
        layer = self.layer(source)
        problems += layer.problems
        doc = Document(origin=layer.body.origin, path=name)
        # a base named by a variant may need the unchanged body
        body = layer.body if self.once and variant is None else copy_tree(layer.body)
        dict.update(doc, body)
        doc.origins, doc.source = body.origins, layer.source
        if variant is not None:
            pile = _Pile(doc, problems, set(layer.laid))
            doc.variant, doc.delta = variant, self._choose(pile, layer, variant).plain()
        doc.vetted = not any(row.foreign for row in self.layers.values())
        return doc

    def is_record(self, name: str) -> bool:
        """Return whether the requested file is the config of a record, which contains all settings of its run."""
        return self.record or bool(record_of(name))

    def _read(self, parsed: Parsed, name: str, chain: tuple[str, ...]) -> Layer:
        record = bool(name) and ((self.record and len(chain) == 1) or bool(record_of(name)))
        foreign = record and not is_trusted(parsed.digest)
        table = build_tree(parsed.data, Origin(name, Place(parsed.lines), foreign=foreign) if name else CODE)
        if record:
            escape(table)  # a record contains plain values and no references
        problems = reject_recipes(table) if foreign else []
        variants = _take_variants(table, problems)
        bases = _take_bases(table, problems)
        pile = _Pile(Table(origin=table.origin), problems)
        self._lay_bases(pile, bases, name, chain)
        rename_keys(table, problems)
        if bases or deletes(table):
            merge(pile.body, table, problems)
            table = pile.body
        path = _real_path(name)
        laid = frozenset({*pile.below, path})
        return Layer(table, variants, name, parsed.source, list(dict.fromkeys(problems)), foreign, laid, path)

    def _lay_bases(self, pile: _Pile, bases: list[tuple[str, str]], name: str, chain: tuple[str, ...]) -> None:
        """Merge the bases that a file names; a base that is already merged contributes only its variant."""
        for base, at in bases:
            path, variant = split_variant(os.path.join(os.path.dirname(name), os.path.expanduser(base)))
            try:
                lower = self._base(path, at, chain)
            except ConfigError as error:
                pile.problems += error.problems
                continue
            pile.problems += lower.problems
            if _real_path(path) not in pile.laid:
                merge(pile.body, lower.body, pile.problems)
            pile.laid.add(_real_path(path))
            pile.below |= lower.laid
            if variant is not None:
                self._choose(pile, lower, variant, chain)

    def _base(self, path: str, at: str, chain: tuple[str, ...]) -> Layer:
        if _real_path(path) in chain:
            fail(f"base is circular: {_format_chain((*chain, path))}", where=at, hint="break the cycle")
        if len(chain) > DEEPEST:
            fail(f"bases of bases are nested more than {DEEPEST} levels deep", where=at)
        return self.layer(path, at, chain)

    def _choose(self, pile: _Pile, layer: Layer, variant: str, chain: tuple[str, ...] = ()) -> Table:
        """Apply one variant, or several from left to right (`wide+sgd`); return their combined delta."""
        combined = Table()
        for name in [variant] if variant in layer.variants else variant.split("+"):
            delta, link = layer.variants.get(name), f"{layer.path}#{name}"
            if not isinstance(delta, Table):
                pile.problems.append(_unknown_variant(name, variant, layer))
            elif link in chain:
                text = f"base is circular: {_format_chain((*chain, link))}"
                pile.problems.append(Problem(text, delta.where("base"), hint="break the cycle"))
            else:
                compose(combined, delta, pile.problems)
                delta = copy_tree(delta)  # the variant may be chosen again
                self._lay_bases(pile, _take_bases(delta, pile.problems), layer.name, (*chain, link))
                rename_keys(delta, pile.problems)
                merge(pile.body, delta, pile.problems)
        return combined


def split_variant(text: str) -> tuple[str, str | None]:
    """Split `f.toml#NAME` into file and variant (None without '#'), unless a file with this full name exists."""
    path, sign, variant = text.rpartition("#")
    return (text, None) if not sign or os.path.exists(text) else (path, variant)


def _copy_document(doc: Document) -> Document:
    """Return a copy of a prepared document so that it can be prepared again."""
    copy_tree = copy.deepcopy(doc)
    copy_tree.notes, copy_tree.dynamic, copy_tree.delta = [], dict(doc.dynamic), copy.deepcopy(doc.delta)
    copy_tree.references = dict(doc.references)
    escape(copy_tree)
    return copy_tree


def _unknown_variant(name: str, variant: str, layer: Layer) -> Problem:
    names = layer.variants
    offer = (
        f"available: {', '.join(names)}"
        if names
        else 'the file has no [variant.NAME] tables; base = "FILE#NAME" uses a variant of another file'
    )
    hint = (did_you_mean(name, names) if name else "") or offer
    place = f"in {variant!r}" if name != variant else "after '#'"
    return Problem(f"unknown variant {name!r}" if name else f"no variant is named {place}", layer.name, hint=hint)


def _take_bases(table: Table, problems: list[Problem]) -> list[tuple[str, str]]:
    if "base" not in table:
        return []
    where, base = table.where("base"), table.pop("base")
    bases = base if isinstance(base, Array) else [base] if base is not None else []
    for item in bases:
        if not isinstance(item, str) or not item or "\0" in item:
            hint = 'write base = "common.toml", or a list of such names'
            problems.append(Problem("base must name config files", where, hint=hint))
            return []
    return [(item, where) for item in bases]


def _take_variants(table: Table, problems: list[Problem]) -> Table:
    if not isinstance(table.get("variant"), Table):
        return Table()
    variants: Table = table.pop("variant")
    for name, delta in variants.items():
        if not isinstance(delta, Table):
            hint = f"write [variant.{name}] and its keys below"
            problems.append(Problem(f"variant.{name} must be a table", variants.where(name), hint=hint))
    return variants


def _parse_mapping(data: Mapping[str, Any]) -> Parsed:
    from alchemy.config.toml_writer import toml_source

    return Parsed(decode(data.plain() if isinstance(data, Table) else data), source=toml_source(data))


def _real_path(path: str) -> str:
    return os.path.realpath(path) if "\0" not in path else path


def _format_chain(chain: tuple[str, ...]) -> str:
    return " -> ".join(map(os.path.basename, chain))
