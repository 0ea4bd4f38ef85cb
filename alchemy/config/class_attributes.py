"""What parts declare in class attributes, read from their source: the packages they need, the scores they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from alchemy.config.part_slots import Layout, Slot
from alchemy.errors import Problem
from alchemy.optional_packages import explain_missing, is_installed


def read_attribute(slot: Slot, attribute: str, *, inherited: bool = True) -> list[str] | None:
    """The names that a part declares, for the values in its table; None where it declares none.

    A tuple counts always; a mapping has a condition for each tuple: `""`, a key that must be set, or `key=value`.
    `{key}` in a name stands for the value of a key. Without `inherited`, what a project's part has from a class of
    alchemy does not count: the project may have changed what it does.
    """
    found = slot.part.attribute(attribute, inherited=inherited) if slot.part else None
    if found is None:
        return None
    rows = found if isinstance(found, Mapping) else {"": found}
    choices = [condition for condition in rows if "=" in condition]
    if choices and not any(_holds(slot, condition) for condition in choices):
        return None  # of a value that it does not take
    names = [name for condition, several in rows.items() if _holds(slot, condition) for name in several]
    return [_filled(slot, name) for name in names]


def _holds(slot: Slot, condition: str) -> bool:
    key, equals, value = condition.partition("=")
    return not key or (slot.value(key) == value if equals else bool(slot.value(key)))


def _filled(slot: Slot, name: str) -> str:
    before, brace, rest = name.partition("{")
    key, _, after = rest.partition("}")
    return f"{before}{slot.value(key)}{after}" if brace else name


def check_packages(layout: Layout) -> Iterator[Problem]:
    """Optional packages that a part needs and that are not installed."""
    runner = layout.at("runner")
    infers = runner is not None and runner.is_a("InferenceRunner", "AlchemyInferenceRunner")
    for slot in layout.slots:
        if slot.kind == "task" and infers:  # tasks need theirs to score
            continue
        needed = read_attribute(slot, "packages") or []
        if slot.kind == "task" and translates_text(layout):
            needed = ["sacrebleu"]
        for package in needed:
            if not is_installed(package):
                text, hint = explain_missing(package, slot.name)
                yield slot.problem(text, "type", hint=hint)


def translates_text(layout: Layout) -> bool:
    """Whether the task is a translation of raw text, which is searched for by default; corpora need a `search`."""
    task = layout.at("task")
    pipes = [pipe for split in layout.splits for pipe in layout.inside(f"task.datasets.{split}.pipes")]
    of_text = any(pipe.is_a("ParallelText") for pipe in pipes)
    return task is not None and task.is_a("Translation") and of_text and "search" not in task.table
