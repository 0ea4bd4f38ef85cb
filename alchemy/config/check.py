"""Everything that is wrong with a config, at once, found without running any of its code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import Any

from alchemy.annotations import misfits
from alchemy.config.check_combinations import check_combos
from alchemy.config.check_keys import UNREAD, check_keys, misspelt_data
from alchemy.config.check_paths import check_paths
from alchemy.config.check_tokenizers import check_tokenizers
from alchemy.config.formats import read_file
from alchemy.config.known_tables import LATER, LOADING, NEEDS, RUN_SETTINGS, RUNNER_NAMES, SECTIONS, SETTINGS, TOP_LEVEL
from alchemy.config.part_slots import MOST_PROBLEMS, Layout, collect_slots
from alchemy.config.part_source import Sources
from alchemy.config.secrets import missing_secrets
from alchemy.config.tree import Document, Table
from alchemy.config.values import line_of
from alchemy.errors import ConfigError, Problem, closest, did_you_mean
from alchemy.registry import ENTRY_MODULES
from alchemy.synonyms import option_for, place_of

Check = Callable[[Layout], Iterable[Problem]]


def check(doc: Mapping[str, Any], *, strict: bool = False, roots: Sequence[str] = (".",)) -> list[Problem]:
    """All problems of a config, errors and warnings, sorted by file and line.

    Neither torch nor a module of the project is imported: signatures are read from source. `strict` makes errors
    of the warnings about keys that nobody knows.
    """
    return check_all([doc], strict=strict, roots=roots)


def check_all(
    docs: Sequence[Mapping[str, Any]], *, strict: bool, roots: Sequence[str], more: Sequence[Check] = ()
) -> list[Problem]:
    """The problems of several configs, one after the other; the source of a part is read once for all of them.

    `more` are checks of other packages.
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
        _top_level(layout, strict),
        _needs(layout),
        _of_script(layout),
        check_keys(layout, strict),
        check_paths(layout),
        check_tokenizers(layout),
        check_combos(layout),
        _variants(doc),
        *(check(layout) for check in more),
    )
    found = list(islice(every, MOST_PROBLEMS + 1))
    if len(found) > MOST_PROBLEMS:
        text = f"there are more than {MOST_PROBLEMS} problems, checking stopped there"
        found[-1] = Problem(text, _whole(doc), hint="fix these first")
    # what is expanded, mostly into several tables, is reported once, in the table where it was written
    found = [replace(row, section=doc.written[row.where]) if row.where in doc.written else row for row in found]
    # a mistake in a split is repeated in every split that is like it: report it once
    once = {(row.where or row.section, row.message, row.hint): row for row in reversed(found)}
    return sorted(once.values(), key=_line)


def raise_if_wrong(doc: Mapping[str, Any], *, strict: bool = False, roots: Sequence[str] = (".",)) -> list[Problem]:
    """The warnings of a config; raises ConfigError with all its problems when one of them is an error."""
    problems = check(doc, strict=strict, roots=roots)
    errors = [problem for problem in problems if problem.error]
    if errors:
        raise ConfigError(errors)
    return problems


def _line(problem: Problem) -> tuple[str, int, str]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line), problem.section) if line.isdigit() else (problem.where, 0, problem.section)


# -- the top level


def _top_level(layout: Layout, strict: bool) -> Iterator[Problem]:
    doc = layout.doc
    renamed = _renamed(layout).values()
    for key, value in doc.items():
        place = doc.where(key)
        if key in renamed:
            continue  # what it should be called is missing, which is told
        if key in SETTINGS:
            for text, hint in misfits(key, value, SETTINGS[key]):
                yield Problem(text, place, hint=hint)
        elif key in RUN_SETTINGS:
            text = f"{key!r} is a setting of one run and is not read from a config"
            yield Problem(text, place, hint=f"give it on the command line: {RUN_SETTINGS[key]}", error=False)
        elif key in LATER:
            yield Problem(f"this version does not read [{key}]", place, key, "it has no effect", error=False)
        elif key not in SECTIONS and key not in LOADING and key != "plugins" and key not in layout.words:
            # what was asked for explicitly must not be without effect
            yield _unset(doc, key) if key in doc.added else _unclaimed(key, value, place, strict)
    yield from _settings(layout)


def _unclaimed(key: str, value: object, place: str, strict: bool) -> Problem:
    what = f"the table [{key}]" if isinstance(value, Table) else f"the key {key!r}"
    hint = place_of(key) or did_you_mean(key, [*TOP_LEVEL, *RUN_SETTINGS]) or UNREAD
    return Problem(f"nobody reads {what}", place, hint=hint, error=strict)


def _unset(doc: Document, key: str) -> Problem:
    """A key of the command line that no part reads; the hint names where it belongs, or a table that has such a key."""
    tables = [name for name, table in doc.items() if isinstance(table, Table) and key in table]
    near = f"write '--set {tables[0]}.{key}={doc.added[key]}'" if tables else did_you_mean(key, TOP_LEVEL)
    hint = near or option_for(key, doc.added[key]) or f"it has {', '.join(doc)}"
    return Problem(f"the config has no {key!r}, and nobody reads it", doc.where(key), hint=hint)


def _settings(layout: Layout) -> Iterator[Problem]:
    doc = layout.doc
    logger = next((s for s in layout.inside("plugins") if s.is_a("FileLogger")), None)
    tag = doc.get("tag")
    if logger is not None and (tag is None or (isinstance(tag, str) and not tag.strip())):
        text = "a record needs a 'tag': it is the title of its README and how runs are found again"
        place = doc.where("tag") if "tag" in doc else logger.table.where() or _whole(doc)
        yield Problem(text, place, hint='add tag = "what this experiment is" at the top')


# -- what the runner cannot do without


def _needs(layout: Layout) -> Iterator[Problem]:
    doc = layout.doc
    role = _role(layout)
    if role is None:
        return
    sections, split = NEEDS[role]
    renamed = _renamed(layout)
    for section in sections:
        if section not in doc:
            near = renamed.get(section, "")
            place = doc.where(near) if near else _whole(doc)
            hint = f"rename [{near}] to [{section}]" if near else f"add [{section}] with a type"
            yield Problem(f"{role} needs a table [{section}]", place, hint=hint)
    if isinstance(doc.get("task"), Table):
        yield from _needs_split(layout, role, split)


def _renamed(layout: Layout) -> dict[str, str]:
    """The tables that the runner needs and the file has under another name."""
    doc, role = layout.doc, _role(layout)
    absent = [section for section in (NEEDS[role][0] if role else ()) if section not in doc]
    unknown = [key for key, value in doc.items() if isinstance(value, Table) and key not in TOP_LEVEL]
    return {section: near for section in absent if (near := closest(section, unknown))}


def _needs_split(layout: Layout, role: str, split: str) -> Iterator[Problem]:
    task = layout.at("task")
    if split in layout.splits or task is None or task.part is None:  # an unknown task may read [task.data]
        return
    if misspelt_data(task):
        return
    itself = task is not None and task.part is not None and not task.part.ours and "_datasets" in task.part.words
    near = did_you_mean(split, layout.splits)
    place = task.table.where() if task else _whole(layout.doc)
    ready = task.part.attribute("processor") is not None
    hint = near or (f'write {split} = "data/{split}.csv" in [task.data]' if ready else f"add [task.datasets.{split}]")
    yield Problem(f"{role} needs the data set [task.datasets.{split}]", place, "task", hint, error=not itself)


def _of_script(layout: Layout) -> Iterator[Problem]:
    """Parts that only the running script or notebook can build again."""
    wrong = {problem.section for problem in layout.problems}
    named = [slot for slot in layout.slots if slot.section not in wrong]
    here = [slot for slot in named if str(slot.table.get("type")).partition(".")[0] in ENTRY_MODULES]
    if here and any(plugin.is_a("FileLogger") for plugin in layout.inside("plugins")):
        names = ", ".join(dict.fromkeys(slot.name for slot in here))
        are = "is" if len({slot.name for slot in here}) == 1 else "are"
        text = f"{names} {are} defined in this script or notebook: commands such as resume and predict cannot find it"
        hint = "move it into a module, such as src/model.py, and name it by its path"
        yield here[0].problem(text, "type", hint=hint, error=False)


def _role(layout: Layout) -> str | None:
    if "runner" not in layout.doc:
        return "Trainer"
    slot = layout.at("runner")
    return next((role for role, names in RUNNER_NAMES.items() if slot is not None and slot.is_a(*names)), None)


def _whole(doc: Document) -> str:
    """Where something missing belongs: the file as a whole."""
    return doc.path or doc.where()


# -- variants


def _variants(doc: Document) -> list[Problem]:
    """Variants of the file that come out equal: one of them was surely meant to differ."""
    path = doc.path.partition("#")[0]
    if not path or "variant" not in doc.source or not os.path.isfile(path):
        return []
    return _equal_variants(path, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=16)  # every variant of a file is checked, and each would load all of them
def _equal_variants(path: str, stamp: int) -> list[Problem]:
    from alchemy.config.load import family

    try:
        docs = family(path, seed=0)
    except ConfigError:
        return []  # what is wrong with another variant is said when that one is checked
    seen: dict[str, str] = {}
    found = []
    lines = read_file(path).lines
    for doc in docs:
        name, key = doc.variant, repr({k: v for k, v in doc.items() if k != "variant"})
        if key in seen:
            same = f"as the variant {seen[key]!r}" if seen[key] else "as the file without a variant"
            text = f"the variant {name!r} comes out the same {same}"
            hint = "change a value in it, or remove it"
            place = f"{path}:{line_of(lines, ('variant', name))}"
            found.append(Problem(text, place, f"variant.{name}", hint, error=False))
        seen.setdefault(key, name)
    return found
