"""From files to the document that a run is made of: bases, body, variant, command line, seed, dynamic values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from alchemy.config.defaults import fill_in, is_experiment
from alchemy.config.deprecated import modern, settle
from alchemy.config.dynamic_values import resolve
from alchemy.config.explain import diff, differences, explain
from alchemy.config.extend import extend
from alchemy.config.layers import Layers, Source, split_variant
from alchemy.config.merge import assign
from alchemy.config.override import override
from alchemy.config.references import References
from alchemy.config.secrets import note_secrets, settle_secrets
from alchemy.config.seed import settle_seed
from alchemy.config.short_names import expand_names
from alchemy.config.splits import expand_splits
from alchemy.config.stale_keys import drop_leftovers
from alchemy.config.tree import COMMAND_LINE, Document
from alchemy.config.untrusted import vet
from alchemy.errors import ConfigError, Problem

__all__ = ["diff", "differences", "expand", "explain", "family", "prepare_cfg", "variants"]


def prepare_cfg(
    cfg: Source,
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
    layers = Layers(allow_code, user_dir, record=record, compare=compare, once=True)
    return _prepare(cfg, layers, variant=variant, overrides=overrides, seed=seed)


def _prepare(
    source: Source, layers: Layers, *, variant: str | None, overrides: Sequence[str], seed: int | None
) -> Document:
    problems: list[Problem] = []
    doc = layers.document(source, variant, problems)
    if not isinstance(source, Mapping) and is_experiment(doc) and not layers.is_record(doc.path):
        fill_in(doc, layers.user_dir, problems)
    note_secrets(doc)
    for text in overrides:
        problems += override(doc, modern(text))
    if seed is not None:
        assign(doc, "seed", seed, COMMAND_LINE)
    settle(doc, problems)
    settle_secrets(doc)  # before anything that may fail and show a value
    notes: list[Problem] = []  # errors too, which the check tells together with its own
    references = References(doc, problems)
    references.settle_early()
    expand_names(doc, [], layers.roots)
    expand_splits(doc, notes, layers.roots)
    extended = extend(doc, problems)
    references.settle()
    foreign = not doc.vetted and not layers.compare
    if foreign:
        problems += vet(doc, layers.user_dir)
        doc.vetted = True
    _raise(problems)
    resolve(doc, problems, drawn=False)
    references.settle_dynamic(last=False)
    _raise(problems)
    settle_seed(doc, problems)
    _raise(problems)
    resolve(doc, problems, drawn=True)
    references.settle_dynamic(last=True)
    if doc.dynamic or doc.references:
        settle_secrets(doc)
    expand_names(doc, notes, layers.roots)  # again: splits that were extended, and choices, may have brought short ones
    if foreign and (doc.dynamic or doc.references):  # a value means something else to a part that was chosen late
        problems += vet(doc, layers.user_dir)
    if extended or overrides or doc.variant or isinstance(source, Mapping) or len(layers.layers) > 1:
        drop_leftovers(doc, layers.roots, notes)
    _raise(problems)
    doc.notes = problems + notes
    return doc


def variants(source: Source, *, allow_code: bool = False) -> list[str]:
    """The names of a file's variants, in its order."""
    if not isinstance(source, Mapping):
        source = split_variant(os.fspath(source))[0]
    return list(Layers(allow_code).layer(source).variants)


def expand(
    sources: Sequence[Source],
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
    layers = Layers(allow_code, user_dir)
    for source in sources:
        try:
            names: list[str | None] = [*_variants_of(source, layers)] if all_variants else []
            for name in names or [None]:
                for seed in seeds or (None,):
                    docs.append(_prepare(source, layers, variant=name, overrides=overrides, seed=seed))
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    _raise(problems)
    return docs


def family(
    source: Source,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    allow_code: bool = False,
    user_dir: str = "src",
) -> list[Document]:
    """The document of a file, and those of its variants; with a variant in its name, only that one."""
    layers = Layers(allow_code, user_dir)
    names = [None, *_variants_of(source, layers)]
    layers.once = len(names) == 1
    return [_prepare(source, layers, variant=name, overrides=overrides, seed=seed) for name in names]


def _variants_of(source: Source, layers: Layers) -> list[str]:
    """The variants to choose from: none where one is named, or where there is no file."""
    if isinstance(source, Mapping) or split_variant(os.fspath(source))[1] is not None:
        return []
    return list(layers.layer(os.fspath(source)).variants)


def _raise(problems: list[Problem]) -> None:
    errors = [problem for problem in problems if problem.error]
    if errors:
        raise ConfigError(errors)
