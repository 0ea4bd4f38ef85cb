"""Find all problems in a config in one pass, without running any of its code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from alchemy.annotations import find_mismatches
from alchemy.config.check_combinations import check_combos
from alchemy.config.check_keys import UNREAD, check_keys, find_misspelled_data
from alchemy.config.check_paths import check_paths
from alchemy.config.check_tokenizers import check_tokenizers
from alchemy.config.formats import read_file
from alchemy.config.known_tables import (
    LOADING,
    NEEDS,
    OTHER_COMMANDS,
    RUN_SETTINGS,
    RUNNER_NAMES,
    SECTIONS,
    SETTINGS,
    TOP_LEVEL,
)
from alchemy.config.part_slots import MOST_PROBLEMS, Layout, collect_slots
from alchemy.config.part_source import Sources
from alchemy.config.secrets import missing_secrets
from alchemy.config.splits import SECTION
from alchemy.config.tree import Document, Table
from alchemy.config.values import line_of
from alchemy.errors import ConfigError, Problem, closest, did_you_mean
from alchemy.registry import ENTRY_MODULES
from alchemy.synonyms import option_for, place_of

Check = Callable[[Layout], Iterable[Problem]]


def check(doc: Mapping[str, Any], *, strict: bool = False, roots: Sequence[str] = (".",)) -> list[Problem]:
    """Return all problems in a config, both errors and warnings, sorted by file and line.

    Reads signatures from source and imports neither torch nor the project's modules. `strict` turns warnings about
    unknown keys into errors.
    """
    return check_all([doc], strict=strict, roots=roots)


def check_all(
    docs: Sequence[Mapping[str, Any]], *, strict: bool, roots: Sequence[str], more: Sequence[Check] = ()
) -> list[Problem]:
    """Return the problems in several configs, in order, reading the source of each part only once.

    `more` contains checks defined by other packages.
    """
    sources = Sources(roots)
    trees = [doc if isinstance(doc, Document) else Document(doc) for doc in docs]
    return [problem for doc in trees for problem in _check(doc, sources, strict, more)]


def _check(doc: Document, sources: Sources, strict: bool, more: Sequence[Check]) -> list[Problem]:
    layout = collect_slots(doc, sources)
    every = chain(
        doc.notes,
        missing_secrets(doc),
        layout.problems,
        _check_top_level(layout, strict),
        _check_required(layout),
        _check_script_parts(layout),
        check_keys(layout, strict),
        check_paths(layout),
        check_tokenizers(layout),
        check_combos(layout),
        _check_variants(doc),
        *(check(layout) for check in more),
    )
    found = list(islice(every, MOST_PROBLEMS + 1))
    if len(found) > MOST_PROBLEMS:
        text = f"more than {MOST_PROBLEMS} problems found, checking stopped"
        found[-1] = Problem(text, _file_of(doc), hint="fix these first")
    # report problems in an expanded table once, at the table that the user wrote
    found = [replace(row, section=doc.written[row.where]) if row.where in doc.written else row for row in found]
    # a split inherits mistakes from the split it extends with `like`, so report each mistake only once
    once = {(row.where or row.section, row.message, row.hint): row for row in reversed(found)}
    return sorted(once.values(), key=_sort_key)


def raise_if_wrong(doc: Mapping[str, Any], *, strict: bool = False, roots: Sequence[str] = (".",)) -> list[Problem]:
    """Return the warnings of a config; raise ConfigError with all errors if there are any."""
    problems = check(doc, strict=strict, roots=roots)
    errors = [problem for problem in problems if problem.error]
    if errors:
        raise ConfigError(errors)
    return problems


def _sort_key(problem: Problem) -> tuple[str, int, str]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line), problem.section) if line.isdigit() else (problem.where, 0, problem.section)


# -- the top level


def _check_top_level(layout: Layout, strict: bool) -> Iterator[Problem]:
    doc = layout.doc
    renamed = _find_misspelled(layout).values()
    for key, value in doc.items():
        place = doc.where(key)
        if key in renamed:
            continue  # already reported as a missing table
        if key in SETTINGS:
            for text, hint in find_mismatches(key, value, SETTINGS[key]):
                yield Problem(text, place, hint=hint)
        elif key in RUN_SETTINGS:
            text = f"{key!r} is a per-run setting and is not read from a config"
            yield Problem(text, place, hint=f"pass it on the command line: {RUN_SETTINGS[key]}", error=False)
        elif key in OTHER_COMMANDS:
            if not isinstance(value, Table):
                yield Problem(f"{key} must be a table", place, hint=f"write [{key}]")
        elif key not in SECTIONS and key not in LOADING and key != "plugins" and key not in layout.words:
            # a key set on the command line must have an effect
            yield _unused_override(doc, key) if key in doc.added else _unknown_key(key, value, place, strict)
    yield from _check_tag(layout)


def _unknown_key(key: str, value: object, place: str, strict: bool) -> Problem:
    what = f"the table [{key}]" if isinstance(value, Table) else f"the key {key!r}"
    hint = place_of(key) or did_you_mean(key, [*TOP_LEVEL, *RUN_SETTINGS]) or UNREAD
    return Problem(f"{what} is not used by any part", place, hint=hint, error=strict)


def _unused_override(doc: Document, key: str) -> Problem:
    """Report a key set on the command line that no part uses, with a hint that names a table with this key."""
    tables = [name for name, table in doc.items() if isinstance(table, Table) and key in table]
    near = f"write '--set {tables[0]}.{key}={doc.added[key]}'" if tables else did_you_mean(key, TOP_LEVEL)
    hint = near or option_for(key, doc.added[key]) or f"it has {', '.join(doc)}"
    return Problem(f"the config has no {key!r}, and no part uses it", doc.where(key), hint=hint)


def _check_tag(layout: Layout) -> Iterator[Problem]:
    doc = layout.doc
    logger = next((s for s in layout.inside("plugins") if s.is_a("FileLogger")), None)
    tag = doc.get("tag")
    if logger is not None and (tag is None or (isinstance(tag, str) and not tag.strip())):
        text = "a record needs a 'tag', which is the title of its README and helps you find the run later"
        place = doc.where("tag") if "tag" in doc else logger.table.where() or _file_of(doc)
        yield Problem(text, place, hint='add tag = "a short description" at the top')


# -- tables and splits that the runner requires


def _check_required(layout: Layout) -> Iterator[Problem]:
    doc = layout.doc
    role = _runner_role(layout)
    if role is None:
        return
    sections, split = NEEDS[role]
    renamed = _find_misspelled(layout)
    for section in sections:
        if section not in doc:
            near = renamed.get(section, "")
            place = doc.where(near) if near else _file_of(doc)
            hint = f"rename [{near}] to [{section}]" if near else f"add [{section}] with a type"
            yield Problem(f"{role} needs the [{section}] table", place, hint=hint)
    if isinstance(doc.get("task"), Table):
        yield from _check_required_split(layout, role, split)


def _find_misspelled(layout: Layout) -> dict[str, str]:
    """Map each missing required table to the unknown table that is probably a misspelling of it."""
    doc, role = layout.doc, _runner_role(layout)
    absent = [section for section in (NEEDS[role][0] if role else ()) if section not in doc]
    unknown = [key for key, value in doc.items() if isinstance(value, Table) and key not in TOP_LEVEL]
    return {section: near for section in absent if (near := closest(section, unknown))}


def _check_required_split(layout: Layout, role: str, split: str) -> Iterator[Problem]:
    task = layout.at("task")
    if split in layout.splits or task is None or task.part is None:  # an unknown task may read [task.data]
        return
    if find_misspelled_data(task) or _has_unreadable_data(layout):
        return
    itself = task is not None and task.part is not None and not task.part.ours and "_datasets" in task.part.words
    near = did_you_mean(split, layout.splits)
    place = task.table.where() if task else _file_of(layout.doc)
    ready = task.part.attribute("processor") is not None
    hint = near or (f'write {split} = "data/{split}.csv" in [task.data]' if ready else f"add [task.datasets.{split}]")
    yield Problem(f"{role} needs the dataset [task.datasets.{split}]", place, "task", hint, error=not itself)


def _has_unreadable_data(layout: Layout) -> bool:
    """Return whether an error in `[task.data]`, reported already, is the reason that there are no splits."""
    return not layout.splits and any(note.error and note.section == SECTION for note in layout.doc.notes)


def _check_script_parts(layout: Layout) -> Iterator[Problem]:
    """Warn about parts that can only be rebuilt from the running script or notebook."""
    wrong = {problem.section for problem in layout.problems}
    named = [slot for slot in layout.slots if slot.section not in wrong]
    here = [slot for slot in named if str(slot.table.get("type")).partition(".")[0] in ENTRY_MODULES]
    if here and any(plugin.is_a("FileLogger") for plugin in layout.inside("plugins")):
        names = ", ".join(dict.fromkeys(slot.name for slot in here))
        are, it = ("is", "it") if len({slot.name for slot in here}) == 1 else ("are", "them")
        text = f"{names} {are} defined in this script or notebook: commands such as resume and predict cannot find {it}"
        hint = f"move {it} to a module, such as src/model.py, and use the full import path as the type"
        yield here[0].problem(text, "type", hint=hint, error=False)


def _runner_role(layout: Layout) -> str | None:
    if "runner" not in layout.doc:
        return "Trainer"
    slot = layout.at("runner")
    return next((role for role, names in RUNNER_NAMES.items() if slot is not None and slot.is_a(*names)), None)


def _file_of(doc: Document) -> str:
    """Return the location to report for something missing: the file as a whole."""
    return doc.path or doc.where()


# -- variants


def _check_variants(doc: Document) -> list[Problem]:
    """Warn about variants in a file that resolve to the same config."""
    path = doc.path.partition("#")[0]
    if not path or "variant" not in doc.source or not os.path.isfile(path):
        return []
    return _equal_variants(path, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=16)  # every variant in a file is checked, and each check loads all variants
def _equal_variants(path: str, stamp: int) -> list[Problem]:
    from alchemy.config.load import load_family

    try:
        docs = load_family(path, seed=0)
    except ConfigError:
        return []  # reported when the variant with the error is checked
    seen: dict[str, str] = {}
    found = []
    lines = read_file(path).lines
    for doc in docs:
        name, key = doc.variant, repr({k: v for k, v in doc.items() if k != "variant"})
        if key in seen:
            same = f"as the variant {seen[key]!r}" if seen[key] else "as the file without a variant"
            text = f"the variant {name!r} resolves to the same config {same}"
            hint = "change a value in it, or remove it"
            place = f"{path}:{line_of(lines, ('variant', name))}"
            found.append(Problem(text, place, f"variant.{name}", hint, error=False))
        seen.setdefault(key, name)
    return found
