"""Load a config: merge bases, file, variant and overrides, then resolve references, seed and dynamic values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from alchemy.config.defaults import add_defaults, is_experiment
from alchemy.config.deprecated import rename_in_document, update_override
from alchemy.config.dynamic_values import resolve
from alchemy.config.explain import diff, differences, explain
from alchemy.config.extend import extend
from alchemy.config.layers import Layers, Source, split_variant
from alchemy.config.merge import assign
from alchemy.config.override import override
from alchemy.config.references import References
from alchemy.config.secrets import collect_secrets, restore_secrets
from alchemy.config.seed import resolve_seed
from alchemy.config.short_names import expand_names
from alchemy.config.splits import expand_splits
from alchemy.config.stale_keys import drop_stale_keys
from alchemy.config.tree import COMMAND_LINE, Document
from alchemy.config.untrusted import vet
from alchemy.errors import ConfigError, Problem

__all__ = ["diff", "differences", "expand", "explain", "load_family", "prepare_cfg", "variants"]


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
    """Load a config from a file, `file#variant`, or a mapping.

    Later layers win: the files in `base`, the file itself, its variant, `overrides` ("optim.lr=0.1"), `seed`.
    All errors are raised together in one ConfigError; warnings are added to `doc.notes`.

    The config of an untrusted record may name only the code listed in docs/security.md and parts defined in
    the project's `user_dir`. `record` marks the file as a record's config, regardless of its location; `compare`
    means that nothing will be built from it, so it may name anything.
    """
    layers = Layers(allow_code, user_dir, record=record, compare=compare, once=True)
    return _prepare(cfg, layers, variant=variant, overrides=overrides, seed=seed)


def _prepare(
    source: Source, layers: Layers, *, variant: str | None, overrides: Sequence[str], seed: int | None
) -> Document:
    problems: list[Problem] = []
    doc = layers.document(source, variant, problems)
    if not isinstance(source, Mapping) and is_experiment(doc) and not layers.is_record(doc.path):
        add_defaults(doc, layers.user_dir, problems)
    collect_secrets(doc)
    for text in overrides:
        problems += override(doc, update_override(text))
    if seed is not None:
        assign(doc, "seed", seed, COMMAND_LINE)
    rename_in_document(doc, problems)
    restore_secrets(doc)  # must precede anything that may fail and print a value
    notes: list[Problem] = []  # including errors, which `check` reports together with the errors it finds
    references = References(doc, problems)
    references.resolve_early()
    expand_names(doc, [], layers.roots)
    expand_splits(doc, notes, layers.roots)
    extended = extend(doc, problems)
    references.resolve()
    foreign = not doc.vetted and not layers.compare
    if foreign:
        problems += vet(doc, layers.user_dir)
        doc.vetted = True
    _raise_errors(problems)
    resolve(doc, problems, drawn=False)
    references.resolve_dynamic(last=False)
    _raise_errors(problems)
    resolve_seed(doc, problems)
    _raise_errors(problems)
    resolve(doc, problems, drawn=True)
    references.resolve_dynamic(last=True)
    if doc.dynamic or doc.references:
        restore_secrets(doc)
    expand_names(doc, notes, layers.roots)  # repeated: extended splits and drawn choices may contain short names
    if foreign and (doc.dynamic or doc.references):  # the type of a part may only be known now
        problems += vet(doc, layers.user_dir)
    if extended or overrides or doc.variant or isinstance(source, Mapping) or len(layers.layers) > 1:
        drop_stale_keys(doc, layers.roots, notes)
    _raise_errors(problems)
    doc.notes = problems + notes
    return doc


def variants(source: Source, *, allow_code: bool = False) -> list[str]:
    """Return the names of a file's variants in file order."""
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
    """Return one document per run: every source (all of its variants if `all_variants`) with every seed."""
    docs: list[Document] = []
    problems: list[Problem] = []
    layers = Layers(allow_code, user_dir)
    for source in sources:
        try:
            names: list[str | None] = [*_list_variants(source, layers)] if all_variants else []
            for name in names or [None]:
                for seed in seeds or (None,):
                    docs.append(_prepare(source, layers, variant=name, overrides=overrides, seed=seed))
        except ConfigError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    _raise_errors(problems)
    return docs


def load_family(
    source: Source,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    allow_code: bool = False,
    user_dir: str = "src",
) -> list[Document]:
    """Return the documents of a file and all its variants, or a single document if the path names a variant."""
    layers = Layers(allow_code, user_dir)
    names = [None, *_list_variants(source, layers)]
    layers.once = len(names) == 1
    return [_prepare(source, layers, variant=name, overrides=overrides, seed=seed) for name in names]


def _list_variants(source: Source, layers: Layers) -> list[str]:
    """Return the variants to choose from: none if the path names one or the source is a mapping."""
    if isinstance(source, Mapping) or split_variant(os.fspath(source))[1] is not None:
        return []
    return list(layers.layer(os.fspath(source)).variants)


def _raise_errors(problems: list[Problem]) -> None:
    errors = [problem for problem in problems if problem.error]
    if errors:
        raise ConfigError(errors)
