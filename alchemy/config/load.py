"""From files to the document that a run is made of: bases, body, variant, command line, seed, dynamic values."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alchemy.config.dynamic import resolve
from alchemy.config.explain import diff, differences, explain
from alchemy.config.foreign import take_recipes, vet
from alchemy.config.formats import read_file
from alchemy.config.merge import deletes, merge
from alchemy.config.override import override
from alchemy.config.scan import DEEPEST
from alchemy.config.secrets import note_secrets, settle_secrets
from alchemy.config.seed import settle_seed
from alchemy.config.spelling import modern, rename, settle
from alchemy.config.splits import expand_splits
from alchemy.config.tree import CODE, Array, Document, Origin, Place, Table, grow, twin
from alchemy.config.values import Parsed, decode, fail
from alchemy.errors import ConfigError, Problem, did_you_mean
from alchemy.trust import is_trusted, record_of

__all__ = ["diff", "differences", "expand", "explain", "family", "prepare_cfg", "variants"]

_Source = str | os.PathLike[str] | Mapping[str, Any]


def prepare_cfg(
    cfg: _Source,
    *,
    variant: str | None = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    allow_code: bool = False,
    user_dir: str = "src",
    record: bool = False,
    compare: bool = False,
) -> Document:
    """Loads a config: a file, `file#variant`, or a mapping.

    Later layers win: the files in `base`, the file itself, its variant, `overrides` ("optim.lr=0.1"), `seed`.
    Everything that is wrong is raised at once as a ConfigError; warnings are left in `doc.notes`.

    Values from the config of a record that is not trusted may name only what docs/security.md lists, and parts that
    the project's `user_dir` defines. `record` says that the file is a record's, whatever lies beside it; `compare`
    that nothing is built from it, so that it may name anything.
    """
    files = _Files(allow_code, user_dir, record=record, compare=compare, once=True)
    return _prepare(cfg, files, variant=variant, overrides=overrides, seed=seed)


def _prepare(
    source: _Source, files: _Files, *, variant: str | None, overrides: Sequence[str], seed: int | None
) -> Document:
    problems: list[Problem] = []
    doc = _document(source, variant, files, problems)
    note_secrets(doc)
    for text in overrides:
        problems += override(doc, modern(text))
    settle(doc, problems)
    settle_secrets(doc)  # before anything that may fail and show a value
    notes: list[Problem] = []  # errors too, which the check tells together with its own
    expand_splits(doc, notes, files.roots)
    if not doc.vetted and not files.compare:
        problems += vet(doc, files.user_dir)
        doc.vetted = True
    _raise(problems)
    resolve(doc, problems, drawn=False)
    _raise(problems)
    settle_seed(doc, seed, problems)
    _raise(problems)
    resolve(doc, problems, drawn=True)
    if doc.dynamic:
        settle_secrets(doc)
    _raise(problems)
    doc.notes = problems + notes
    return doc


def variants(source: _Source, *, allow_code: bool = False) -> list[str]:
    """The names of a file's variants, in its order."""
    if not isinstance(source, Mapping):
        source = _split(os.fspath(source))[0]
    return list(_Files(allow_code).layer(source).variants)


def expand(
    sources: Sequence[_Source],
    *,
    all_variants: bool = False,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    allow_code: bool = False,
    user_dir: str = "src",
) -> list[Document]:
    """One document a run: every source (with `all_variants` every variant of it, if it has any) with every seed."""
    docs: list[Document] = []
    problems: list[Problem] = []
    files = _Files(allow_code, user_dir)
    for source in sources:
        try:
            names: list[str | None] = [*_variants_of(source, files)] if all_variants else []
            for name in names or [None]:
                for seed in seeds or (None,):
                    docs.append(_prepare(source, files, variant=name, overrides=overrides, seed=seed))
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    _raise(problems)
    return docs


def family(
    source: _Source,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    allow_code: bool = False,
    user_dir: str = "src",
) -> list[Document]:
    """The document of a file, and those of its variants; with a variant in its name, only that one."""
    files = _Files(allow_code, user_dir)
    names = [None, *_variants_of(source, files)]
    files.once = len(names) == 1
    return [_prepare(source, files, variant=name, overrides=overrides, seed=seed) for name in names]


def _variants_of(source: _Source, files: _Files) -> list[str]:
    """The variants to choose from: none where one is named, or where there is no file."""
    if isinstance(source, Mapping) or _split(os.fspath(source))[1] is not None:
        return []
    return list(files.layer(os.fspath(source)).variants)


def _raise(problems: list[Problem]) -> None:
    errors = [problem for problem in problems if problem.error]
    if errors:
        raise ConfigError(errors)


# -- one file, or one mapping
@dataclass
class _Layer:
    """A file with its bases merged in; its variants are deltas that are still to be chosen from."""

    body: Table
    variants: Table
    source: str = ""
    problems: list[Problem] = field(default_factory=list)
    foreign: bool = False  # or one of its bases


@dataclass
class _Files:
    """The layers that were read; each file once, however often others name it."""

    allow_code: bool
    user_dir: str = "src"
    record: bool = False  # whether the first file is the config of a record, whatever lies beside it
    compare: bool = False  # whether nothing is built from them
    once: bool = False  # whether one document alone is made of the layers, which may then take one over
    layers: dict[str, _Layer] = field(default_factory=dict)  # by real path

    @property
    def roots(self) -> tuple[str, ...]:
        """Where modules of the project are looked for."""
        return (os.path.dirname(os.path.abspath(self.user_dir)), ".")

    def layer(self, source: str | Mapping[str, Any], where: str = "", chain: tuple[str, ...] = ()) -> _Layer:
        """A file, which `where` asks for and which is a base of the files in `chain`, or a mapping."""
        if isinstance(source, Mapping):
            return self._read(_of_mapping(source), "", chain)
        path = _real(source)
        if path not in self.layers:
            parsed = read_file(source, allow_code=self.allow_code, where=where)
            self.layers[path] = self._read(parsed, source, (*chain, path))
        return self.layers[path]

    def _read(self, parsed: Parsed, name: str, chain: tuple[str, ...]) -> _Layer:
        record = bool(name) and ((self.record and len(chain) == 1) or bool(record_of(name)))
        foreign = record and not is_trusted(parsed.digest)
        table = grow(parsed.data, Origin(name, Place(parsed.lines), foreign=foreign) if name else CODE)
        problems = take_recipes(table) if foreign else []
        variants = _take_variants(table, problems)
        bases = _take_bases(table, problems)
        body = Table(origin=table.origin)
        for base, at in bases:
            path, variant = _split(os.path.join(os.path.dirname(name), os.path.expanduser(base)))
            try:
                lower = self._base(path, at, chain)
            except ConfigError as error:
                problems += error.problems
                continue
            problems += lower.problems
            foreign |= lower.foreign
            merge(body, lower.body, problems)
            if variant is not None:
                _choose(body, lower, variant, path, problems)
        rename(table, problems)
        if bases or deletes(table):
            merge(body, table, problems)
        else:
            body = table
        return _Layer(body, variants, parsed.source, list(dict.fromkeys(problems)), foreign)

    def _base(self, path: str, at: str, chain: tuple[str, ...]) -> _Layer:
        if _real(path) in chain:
            names = [os.path.basename(file) for file in (*chain, path)]
            fail(f"base goes round in a circle: {' -> '.join(names)}", where=at, hint="break the circle")
        if len(chain) > DEEPEST:
            fail(f"bases of bases are nested more than {DEEPEST} deep", where=at)
        return self.layer(path, at, chain)


def _document(source: _Source, variant: str | None, files: _Files, problems: list[Problem]) -> Document:
    variant = variant or None
    if isinstance(source, Document) and not variant:
        return _again(source)
    name = ""
    if not isinstance(source, Mapping):
        name, named = _split(os.fspath(source))
        source, variant = name, variant or named  # with an empty name after '#', which is refused
    layer = files.layer(source)
    problems += layer.problems
    doc = Document(origin=layer.body.origin, path=name)
    body = layer.body if files.once else twin(layer.body)
    dict.update(doc, body)
    doc.origins = body.origins
    doc.source, doc.vetted = layer.source, not layer.foreign
    if variant is not None:
        doc.variant, doc.delta = variant, _choose(doc, layer, variant, name, problems)
    return doc


def _again(doc: Document) -> Document:
    """A document of our own from one that was prepared before."""
    twin = copy.deepcopy(doc)
    twin.notes, twin.dynamic, twin.delta = [], dict(doc.dynamic), copy.deepcopy(doc.delta)
    return twin


def _choose(body: Table, layer: _Layer, variant: str, name: str, problems: list[Problem]) -> dict[str, Any]:
    delta = layer.variants.get(variant)
    if not isinstance(delta, Table):
        offer = f"there are {', '.join(layer.variants)}" if layer.variants else "the file has no [variant.NAME] tables"
        hint = (did_you_mean(variant, layer.variants) if variant else "") or offer
        message = f"there is no variant {variant!r}" if variant else "no variant is named after '#'"
        problems.append(Problem(message, name, hint=hint))
        return {}
    plain = delta.plain()
    delta = twin(delta)  # which may be chosen again
    rename(delta, problems)
    merge(body, delta, problems)
    return plain


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
    from alchemy.config.write import toml_source

    return Parsed(decode(data.plain() if isinstance(data, Table) else data), source=toml_source(data))


def _real(path: str) -> str:
    return os.path.realpath(path) if "\0" not in path else path


def _split(text: str) -> tuple[str, str | None]:
    """`f.toml#NAME` as file and variant, None without a '#'; a file whose name has a '#' is taken as it is."""
    path, sign, variant = text.rpartition("#")
    return (text, None) if not sign or os.path.exists(text) else (path, variant)
