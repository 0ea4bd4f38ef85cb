"""The layers of a config: files, the bases that they name, and the variants chosen from them."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alchemy.config.deprecated import rename
from alchemy.config.formats import read_file
from alchemy.config.line_numbers import DEEPEST
from alchemy.config.merge import compose, deletes, merge
from alchemy.config.references import escape
from alchemy.config.tree import CODE, Array, Document, Origin, Place, Table, grow, twin
from alchemy.config.untrusted import take_recipes
from alchemy.config.values import Parsed, decode, fail
from alchemy.errors import ConfigError, Problem, did_you_mean
from alchemy.trust import is_trusted, record_of

Source = str | os.PathLike[str] | Mapping[str, Any]


@dataclass
class Layer:
    """A file with its bases merged in; its variants are deltas that are still to be chosen from."""

    body: Table
    variants: Table
    name: str = ""  # the path of the file, as messages show it
    source: str = ""
    problems: list[Problem] = field(default_factory=list)
    foreign: bool = False  # it is the config of a record that is not trusted
    laid: frozenset[str] = frozenset()  # the real paths of the files that the body is made of
    path: str = ""  # the real path of the file


@dataclass
class _Pile:
    """Layers that are being laid over each other."""

    body: Table
    problems: list[Problem]
    laid: set[str] = field(default_factory=set)  # the real paths of the files that are not laid on it again
    below: set[str] = field(default_factory=set)  # those of their bases


@dataclass
class Layers:
    """The layers that were read; each file once, however often others name it."""

    allow_code: bool
    user_dir: str = "src"
    record: bool = False  # whether the first file is the config of a record, whatever lies beside it
    compare: bool = False  # whether nothing is built from them
    once: bool = False  # whether one document alone is made of the layers, which may then take one over
    layers: dict[str, Layer] = field(default_factory=dict)  # by real path

    @property
    def roots(self) -> tuple[str, ...]:
        """Where modules of the project are looked for."""
        return (os.path.dirname(os.path.abspath(self.user_dir)), ".")

    def layer(self, source: str | Mapping[str, Any], where: str = "", chain: tuple[str, ...] = ()) -> Layer:
        """A file, which `where` asks for and which is a base of the files in `chain`, or a mapping."""
        if isinstance(source, Mapping):
            return self._read(_of_mapping(source), "", chain)
        path = _real(source)
        if path not in self.layers:
            parsed = read_file(source, allow_code=self.allow_code, where=where)
            self.layers[path] = self._read(parsed, source, (*chain, path))
        return self.layers[path]

    def document(self, source: Source, variant: str | None, problems: list[Problem]) -> Document:
        """The document of a source, with a variant laid over it."""
        variant = variant or None
        if isinstance(source, Document) and not variant:
            return _again(source)
        name = ""
        if not isinstance(source, Mapping):
            name, named = split_variant(os.fspath(source))
            source, variant = name, variant or named  # with an empty name after '#', which is refused
        layer = self.layer(source)
        problems += layer.problems
        doc = Document(origin=layer.body.origin, path=name)
        # a base that a variant names may need the body as it was
        body = layer.body if self.once and variant is None else twin(layer.body)
        dict.update(doc, body)
        doc.origins, doc.source = body.origins, layer.source
        if variant is not None:
            pile = _Pile(doc, problems, set(layer.laid))
            doc.variant, doc.delta = variant, self._choose(pile, layer, variant).plain()
        doc.vetted = not any(row.foreign for row in self.layers.values())
        return doc

    def is_record(self, name: str) -> bool:
        """Whether the file that was asked for is the config of a record, which says all that its run was made of."""
        return self.record or bool(record_of(name))

    def _read(self, parsed: Parsed, name: str, chain: tuple[str, ...]) -> Layer:
        record = bool(name) and ((self.record and len(chain) == 1) or bool(record_of(name)))
        foreign = record and not is_trusted(parsed.digest)
        table = grow(parsed.data, Origin(name, Place(parsed.lines), foreign=foreign) if name else CODE)
        if record:
            escape(table)  # it holds values
        problems = take_recipes(table) if foreign else []
        variants = _take_variants(table, problems)
        bases = _take_bases(table, problems)
        pile = _Pile(Table(origin=table.origin), problems)
        self._lay_bases(pile, bases, name, chain)
        rename(table, problems)
        if bases or deletes(table):
            merge(pile.body, table, problems)
            table = pile.body
        path = _real(name)
        laid = frozenset({*pile.below, path})
        return Layer(table, variants, name, parsed.source, list(dict.fromkeys(problems)), foreign, laid, path)

    def _lay_bases(self, pile: _Pile, bases: list[tuple[str, str]], name: str, chain: tuple[str, ...]) -> None:
        """Lays the bases that a file names on the pile; one that was laid there before adds its variant alone."""
        for base, at in bases:
            path, variant = split_variant(os.path.join(os.path.dirname(name), os.path.expanduser(base)))
            try:
                lower = self._base(path, at, chain)
            except ConfigError as error:
                pile.problems += error.problems
                continue
            pile.problems += lower.problems
            if _real(path) not in pile.laid:
                merge(pile.body, lower.body, pile.problems)
            pile.laid.add(_real(path))
            pile.below |= lower.laid
            if variant is not None:
                self._choose(pile, lower, variant, chain)

    def _base(self, path: str, at: str, chain: tuple[str, ...]) -> Layer:
        if _real(path) in chain:
            fail(f"base goes round in a circle: {_shown((*chain, path))}", where=at, hint="break the circle")
        if len(chain) > DEEPEST:
            fail(f"bases of bases are nested more than {DEEPEST} deep", where=at)
        return self.layer(path, at, chain)

    def _choose(self, pile: _Pile, layer: Layer, variant: str, chain: tuple[str, ...] = ()) -> Table:
        """Lays a variant on the pile, or several of them, `wide+sgd`, from left to right; returns what they say."""
        said = Table()
        for name in [variant] if variant in layer.variants else variant.split("+"):
            delta, link = layer.variants.get(name), f"{layer.path}#{name}"
            if not isinstance(delta, Table):
                pile.problems.append(_no_variant(name, variant, layer))
            elif link in chain:
                text = f"base goes round in a circle: {_shown((*chain, link))}"
                pile.problems.append(Problem(text, delta.where("base"), hint="break the circle"))
            else:
                compose(said, delta, pile.problems)
                delta = twin(delta)  # which may be chosen again
                self._lay_bases(pile, _take_bases(delta, pile.problems), layer.name, (*chain, link))
                rename(delta, pile.problems)
                merge(pile.body, delta, pile.problems)
        return said


def split_variant(text: str) -> tuple[str, str | None]:
    """`f.toml#NAME` as file and variant, None without a '#'; a file whose name has a '#' is taken as it is."""
    path, sign, variant = text.rpartition("#")
    return (text, None) if not sign or os.path.exists(text) else (path, variant)


def _again(doc: Document) -> Document:
    """A document of our own from one that was prepared before."""
    twin = copy.deepcopy(doc)
    twin.notes, twin.dynamic, twin.delta = [], dict(doc.dynamic), copy.deepcopy(doc.delta)
    twin.references = dict(doc.references)
    escape(twin)
    return twin


def _no_variant(name: str, variant: str, layer: Layer) -> Problem:
    names = layer.variants
    offer = f"there are {', '.join(names)}" if names else "the file has no [variant.NAME] tables"
    hint = (did_you_mean(name, names) if name else "") or offer
    place = f"in {variant!r}" if name != variant else "after '#'"
    return Problem(f"there is no variant {name!r}" if name else f"no variant is named {place}", layer.name, hint=hint)


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


def _of_mapping(data: Mapping[str, Any]) -> Parsed:
    from alchemy.config.toml_writer import toml_source

    return Parsed(decode(data.plain() if isinstance(data, Table) else data), source=toml_source(data))


def _real(path: str) -> str:
    return os.path.realpath(path) if "\0" not in path else path


def _shown(chain: tuple[str, ...]) -> str:
    return " -> ".join(map(os.path.basename, chain))
