"""Read the class attributes that parts declare in their source, such as required packages and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from alchemy.config.part_slots import Layout, Slot
from alchemy.errors import Problem
from alchemy.optional_packages import explain_missing, is_installed


def read_attribute(slot: Slot, attribute: str, *, inherited: bool = True) -> list[str] | None:
    """Return the names in a class attribute that apply to the part's values, or None if the attribute is not declared.

    A tuple always applies. A mapping has a condition for each tuple: `""` (always), a key that must be set, or
    `key=value`.
    `{key}` in a name is replaced by the value of that key, or by each of its values if it is a list. Without
    `inherited`, attributes that a project's part inherits from alchemy are ignored, because the project may have
    changed the behavior.
    """
    found = slot.part.attribute(attribute, inherited=inherited) if slot.part else None
    if found is None:
        return None
    rows = found if isinstance(found, Mapping) else {"": found}
    choices = [condition for condition in rows if "=" in condition]
    if choices and not any(_applies(slot, condition) for condition in choices):
        return None  # no declared condition covers the value
    names = [name for condition, several in rows.items() if _applies(slot, condition) for name in several]
    return [filled for name in names for filled in _fill_in_value(slot, name)]


def _applies(slot: Slot, condition: str) -> bool:
    key, equals, value = condition.partition("=")
    return not key or (slot.value(key) == value if equals else bool(slot.value(key)))


def _fill_in_value(slot: Slot, name: str) -> list[str]:
    before, brace, rest = name.partition("{")
    key, _, after = rest.partition("}")
    if not brace:
        return [name]
    value = slot.value(key)
    return [f"{before}{each}{after}" for each in (value if isinstance(value, list) else [value])]


def check_packages(layout: Layout) -> Iterator[Problem]:
    """Report optional packages that a part needs but that are not installed."""
    runner = layout.at("runner")
    infers = runner is not None and runner.is_a("InferenceRunner", "AlchemyInferenceRunner")
    for slot in layout.slots:
        if slot.kind == "task" and infers:  # a task needs its packages only for scoring
            continue
        needed = read_attribute(slot, "packages") or []
        if slot.kind == "task" and translates_text(layout):
            needed = ["sacrebleu"]
        for package in needed:
            if not is_installed(package):
                text, hint = explain_missing(package, slot.name)
                yield slot.problem(text, "type", hint=hint)


def translates_text(layout: Layout) -> bool:
    """Return whether the task translates raw text with the default search (corpora have no default search)."""
    task = layout.at("task")
    pipes = [pipe for split in layout.splits for pipe in layout.inside(f"task.datasets.{split}.pipes")]
    of_text = any(pipe.is_a("ParallelText") for pipe in pipes)
    return task is not None and task.is_a("Translation") and of_text and "search" not in task.table
