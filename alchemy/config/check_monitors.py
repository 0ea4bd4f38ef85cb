"""Check that the metrics a config monitors are computed by its evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from alchemy.config.class_attributes import read_attribute, translates_text
from alchemy.config.part_slots import Layout, Slot
from alchemy.errors import Problem, did_you_mean


def check_monitors(layout: Layout) -> Iterator[Problem]:
    """Report monitors that use a split that is never evaluated or a metric that is never computed."""
    if layout.at("sched") is None or (not layout.splits and not brings_data(layout)):  # nothing to evaluate
        return
    for slot in [*layout.of_kind("stop rule"), *layout.of_kind("checkpoint"), *layout.of_kind("sched")]:
        monitor = str(slot.value("monitor") or "") if slot.ours or slot.part is None else ""
        split, _, name = monitor.partition("/")
        if not split or not name or split == "train":  # training metrics come from the training log
            continue
        yield from _check_split(layout, slot, monitor) or _check_metric(slot, name, _collect_metrics(layout))
    for pipe in layout.inside("task.evalpipes"):
        if pipe.ours and pipe.is_a("_Monitoring") and pipe.value("enabled") is not False:
            split, monitor = str(pipe.value("split")), str(pipe.value("monitor"))
            yield from _check_metric(pipe, monitor.removeprefix(f"{split}/"), _collect_metrics(layout, before=pipe))


def _check_split(layout: Layout, slot: Slot, monitor: str) -> list[Problem]:
    split = monitor.partition("/")[0]
    if split not in layout.splits:
        hint = did_you_mean(split, layout.splits) or f"add [task.datasets.{split}], or use a different split"
        text = f"{slot.name} monitors {monitor!r}, but the split {split!r} has no dataset"
        return [slot.problem(text, "monitor", hint=hint, error=not brings_data(layout))]
    if split not in evaluated_splits(layout):
        text = f"{slot.name} monitors {monitor!r}, but {split!r} is never evaluated during training"
        known = all(pipe.ours for pipe in layout.inside("sched.pipes"))
        # a dev checkpoint is evaluated once at the end of training; a plateau rule without a metric has no effect
        harmless = slot.kind == "sched" or (slot.kind == "checkpoint" and split == "dev")
        pipe = f'{{ type = "alchemy.pipeline.sched.EvalEEPipeline", split = "{split}" }}'
        hint = f"add {pipe} to the pipes of [sched]"
        return [slot.problem(text, "monitor", hint=hint, error=known and not harmless)]
    return []


def _check_metric(slot: Slot, name: str, given: list[str] | None) -> list[Problem]:
    """Report an unknown metric if all parts that compute metrics are known."""
    if given is None or name in given:
        return []
    text = f"monitor = {slot.value('monitor')!r}: no evaluation computes {name!r}"
    longer = next((f"did you mean {score!r}?" for score in given if score.startswith(name)), "")
    hint = did_you_mean(name, given) or longer or f"available: {', '.join(given)}"
    return [slot.problem(text, "monitor", hint=hint)]


def _collect_metrics(layout: Layout, before: Slot | None = None) -> list[str] | None:
    """Return the metrics of an evaluation (up to the `before` pipe), or None if a project's part may add others."""
    task, pipes = layout.at("task"), layout.inside("task.evalpipes")
    if before is not None:
        pipes = pipes[: before.order]
    found: list[str] = []
    for slot in [task, *pipes]:
        names = read_attribute(slot, "produces", inherited=False) if slot is not None else None
        if slot is None or names is None:
            return None
        if slot is task and translates_text(layout):
            names = [*names, "bleu", "bleu_words", "chrf"]
        own = slot.value("name") if slot.kind == "eval pipe" and names else ""
        enabled = slot.kind != "eval pipe" or slot.value("enabled") is not False
        found += ([str(own)] if own else names) if enabled else []
    return list(dict.fromkeys(found))


def check_rows(layout: Layout) -> Iterator[Problem]:
    """Report score pipes whose rows no output pipe collects."""
    task, outputs = layout.at("task"), layout.inside("task.outputpipes")
    if task is None or not task.ours or not task.is_a("DefaultTask") or not all(pipe.ours for pipe in outputs):
        return
    collected = [str(pipe.value("varname")) for pipe in outputs if pipe.is_a("Collect")]
    pipes = layout.inside("task.evalpipes")
    for pipe in pipes if all(pipe.ours for pipe in pipes) else ():
        wanted = str(pipe.value("varname"))
        if pipe.is_a("_Score") and pipe.value("enabled") is not False and wanted not in collected:
            text = f"{pipe.name} scores the rows {wanted!r}, which no output pipe collects"
            collect = f'{{ type = "alchemy.pipeline.output.Collect", varname = "{wanted}" }}'
            hint = did_you_mean(wanted, collected) or f"add {collect} to the outputpipes"
            yield pipe.problem(text, "varname", hint=hint)


def brings_data(layout: Layout) -> bool:
    """Return whether the task may have splits that the config does not list."""
    task = layout.at("task")
    return task is not None and (task.part is None or (not task.ours and "_datasets" in task.part.words))


def evaluated_splits(layout: Layout) -> set[str]:
    """Return the splits that schedule pipes evaluate during training."""
    pipes = [pipe for pipe in layout.inside("sched.pipes") if "eval" in pipe.name.lower()]
    return {str(pipe.value("split") or "dev") for pipe in pipes}
