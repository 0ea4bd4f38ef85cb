"""From files to the document that a run is made of: bases, body, variant, command line, seed, dynamic values."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alchemy.config.dynamic import resolve
from alchemy.config.explain import diff, differences, explain
from alchemy.config.foreign import take_recipes, vet
from alchemy.config.formats import read_file
from alchemy.config.merge import merge
from alchemy.config.override import override
from alchemy.config.scan import Path
from alchemy.config.secrets import note_secrets, settle_secrets
from alchemy.config.seed import settle_seed
from alchemy.config.spelling import modern, rename, settle
from alchemy.config.tree import CODE, Array, Document, Origin, Table, grow
from alchemy.config.values import Parsed, decode, line_of
from alchemy.errors import ConfigError, Problem, did_you_mean
from alchemy.trust import is_trusted, record_of

__all__ = ["diff", "differences", "expand", "explain", "prepare_cfg", "variants"]

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
    problems: list[Problem] = []
    doc = _document(cfg, variant, allow_code, problems, record)
    note_secrets(doc)
    for text in overrides:
        problems += override(doc, modern(text))
    settle(doc, problems)
    settle_secrets(doc)  # before anything that may fail and show a value
    if not doc.vetted and not compare:
        problems += vet(doc, user_dir)
        doc.vetted = True
    _raise(problems)
    resolve(doc, problems, drawn=False)
    _raise(problems)
    settle_seed(doc, seed, problems)
    _raise(problems)
    resolve(doc, problems, drawn=True)
    settle_secrets(doc)
    _raise(problems)
    doc.notes = problems
    return doc


def variants(source: _Source, *, allow_code: bool = False) -> list[str]:
    """The names of a file's variants, in its order."""
    if not isinstance(source, Mapping):
        source = _split(os.fspath(source))[0]
    return list(_layer(source, allow_code, "", []).variants)


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
    for source in sources:
        try:
            named = isinstance(source, Mapping) or _split(os.fspath(source))[1] is not None
            names: list[str | None] = [None]
            if all_variants and not named:
                names = [*variants(source, allow_code=allow_code)] or names
            runs = [(name, seed) for name in names for seed in (seeds or (None,))]
            for name, seed in runs:
                options: dict[str, Any] = {"overrides": overrides, "allow_code": allow_code, "user_dir": user_dir}
                docs.append(prepare_cfg(source, variant=name, seed=seed, **options))
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    _raise(problems)
    return docs


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
    foreign: bool = False  # or one of its bases


def _document(
    source: _Source, variant: str | None, allow_code: bool, problems: list[Problem], record: bool
) -> Document:
    variant = variant or None
    if isinstance(source, Document) and not variant:
        return _again(source)
    name = ""
    if not isinstance(source, Mapping):
        name, named = _split(os.fspath(source))
        source, variant = name, variant or named  # with an empty name after '#', which is refused
    layer = _layer(source, allow_code, "", problems, record=record)
    doc = Document(origin=layer.body.origin, path=name)
    merge(doc, layer.body, [])
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
    rename(delta, problems)
    merge(body, delta, problems)
    return plain


def _layer(
    source: str | Mapping[str, Any],
    allow_code: bool,
    where: str,
    problems: list[Problem],
    chain: tuple[str, ...] = (),
    *,
    record: bool = False,
) -> _Layer:
    name = source if isinstance(source, str) else ""
    parsed = read_file(source, allow_code=allow_code, where=where) if isinstance(source, str) else _of_mapping(source)
    foreign = bool(name) and (record or bool(record_of(name))) and not is_trusted(parsed.digest)
    table = grow(parsed.data, _origins(parsed, name, foreign))
    if foreign:
        problems += take_recipes(table)
    chain = (*chain, os.path.realpath(name)) if name else chain
    variants = _take_variants(table, problems)
    body = Table(origin=table.origin)
    for base, at in _take_bases(table, problems):
        path, variant = _split(os.path.join(os.path.dirname(name), os.path.expanduser(base)))
        if os.path.realpath(path) in chain:
            names = [os.path.basename(file) for file in (*chain, path)]
            problems.append(Problem(f"base goes round in a circle: {' -> '.join(names)}", at, hint="break the circle"))
            continue
        try:
            lower = _layer(path, allow_code, at, problems, chain)
        except ConfigError as error:
            problems += error.problems
            continue
        foreign |= lower.foreign
        merge(body, lower.body, problems)
        if variant is not None:
            _choose(body, lower, variant, path, problems)
    rename(table, problems)
    merge(body, table, problems)
    return _Layer(body, variants, parsed.source, foreign)


def _take_bases(table: Table, problems: list[Problem]) -> list[tuple[str, str]]:
    where, base = table.where("base"), table.pop("base", None)
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


def _origins(parsed: Parsed, name: str, foreign: bool) -> Callable[[Path], Origin]:
    return lambda path: Origin(file=name, line=line_of(parsed.lines, path), foreign=foreign) if name else CODE


def _split(text: str) -> tuple[str, str | None]:
    """`f.toml#NAME` as file and variant, None without a '#'; a file whose name has a '#' is taken as it is."""
    path, sign, variant = text.rpartition("#")
    return (text, None) if not sign or os.path.exists(text) else (path, variant)
