"""What a training watches, against what it evaluates: the rules of `[stop]`, and the best one of `[checkpoint]`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from alchemy.config.slots import Layout, Slot
from alchemy.config.tree import Table
from alchemy.errors import Problem, did_you_mean

SPLITS = ("train", "dev", "test")  # where the splits of the task are not known
LOGGED = "train"  # its numbers come from the log of the training, not from an evaluation


def watched_splits(layout: Layout) -> Iterator[Problem]:
    """A number of a split that is never scored: it would be waited for in vain."""
    if not isinstance(layout.doc.get("sched"), Table):
        return
    for slot in [*layout.of_kind("stop rule"), *layout.of_kind("checkpoint")]:
        monitor = slot.value("monitor")
        if isinstance(monitor, str) and monitor and (slot.part is None or slot.part.ours):
            yield from _watched(layout, slot, monitor)


def _watched(layout: Layout, slot: Slot, monitor: str) -> Iterator[Problem]:
    split, _, name = monitor.partition("/")
    if not split or not name:
        text = f"monitor = {monitor!r} does not name a split and a number of it"
        yield slot.problem(text, "monitor", hint=example(monitor, layout.splits))
    elif split == LOGGED:
        return
    elif split not in layout.splits:
        hint = did_you_mean(split, layout.splits) or f"add [task.datasets.{split}], or name another split"
        text = f"{slot.name} watches {monitor!r}, but the split {split!r} has no data set"
        yield slot.problem(text, "monitor", hint=hint, error=not brings_data(layout))
    elif split not in _evaluated(layout):
        text = f"{slot.name} watches {monitor!r}, but nothing evaluates {split!r} during training"
        known = all(pipe.part is not None and pipe.part.ours for pipe in layout.inside("sched.pipes"))
        at_end = slot.kind == "checkpoint" and split == "dev"  # which is scored once when training ends
        pipe = f'{{ type = "alchemy.pipeline.sched.EvalEEPipeline", split = "{split}" }}'
        hint = f"add {pipe} to the pipes of [sched]"
        yield slot.problem(text, "monitor", hint=hint, error=known and not at_end)


def example(monitor: str, splits: Collection[str] = SPLITS) -> str:
    """How to write the name of a number that lacks its split, or of a split that lacks its number."""
    word = monitor.strip("/") or "loss"
    if word == LOGGED:
        return f"write it like '{LOGGED}/loss'"
    return f"write it like '{word}/accuracy' or '{word}/loss'" if word in splits else f"write it like 'dev/{word}'"


def brings_data(layout: Layout) -> bool:
    """Whether the task may have splits that the config does not show."""
    task = layout.at("task")
    return task is not None and (task.part is None or (not task.part.ours and "_datasets" in task.part.words))


def _evaluated(layout: Layout) -> set[Any]:
    pipes = [pipe for pipe in layout.inside("sched.pipes") if re.search("eval", pipe.name, re.IGNORECASE)]
    return {pipe.value("split") or "dev" for pipe in pipes}


def homeless_checkpoints(layout: Layout) -> Iterator[Problem]:
    """Checkpoints are kept in the record."""
    for slot in layout.of_kind("checkpoint"):
        makes = any(plugin.is_a("FileLogger") for plugin in layout.inside("plugins"))
        if not makes and slot.value("enabled") is not False and "sched" in layout.doc:
            hint = "add alchemy.plugins.FileLogger to the plugins"
            yield slot.problem("there is no record to keep checkpoints in", hint=hint, error=False)
