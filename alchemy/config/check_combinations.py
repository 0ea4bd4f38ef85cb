"""Check for keys that are valid on their own but cannot be used together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from alchemy.config.check_monitors import brings_data, check_monitors, check_rows, evaluated_splits
from alchemy.config.class_attributes import check_packages
from alchemy.config.field_types import fits
from alchemy.config.part_slots import Layout, Slot
from alchemy.config.tree import Table
from alchemy.errors import Problem, did_you_mean
from alchemy.key_rules import BATCH_BUDGETS


def check_combos(layout: Layout) -> Iterator[Problem]:
    """Yield the problems found by all rules in this module."""
    for name, table in layout.splits.items():
        split = _Split(name, table, layout.inside(f"task.datasets.{name}.pipes"), layout)
        for check_split in _SPLIT_RULES:
            yield from check_split(split)
    for rule in _RULES:
        yield from rule(layout)


class _Split(NamedTuple):
    """The dataset of one split: its loader options and its pipes."""

    name: str
    table: Table
    pipes: list[Slot]
    layout: Layout

    @property
    def iterable(self) -> bool:
        """Whether the loader receives an iterable dataset; False if unknown."""
        last = self.pipes[-1] if self.pipes else None
        return last is not None and last.is_a("ItrDataPipeline", "IterableDataset") and not last.is_a("LstDataPipeline")

    @property
    def workers(self) -> int:
        value = self.table.get("num_workers")
        return value if isinstance(value, int) else 0

    def find(self, *names: str) -> list[Slot]:
        return [pipe for pipe in self.pipes if pipe.is_a(*names)]

    def problem(self, message: str, key: str, hint: str, *, error: bool = True) -> Problem:
        return Problem(message, self.table.where(key), f"task.datasets.{self.name}", hint, error)


# -- data


def _check_iterable_options(split: _Split) -> Iterator[Problem]:
    shuffle, batch = "shuffle with the pipe alchemy.pipeline.itr.Shuffle", "batch with alchemy.pipeline.itr.BucketBatch"
    instead = {"shuffle": shuffle, "sampler": shuffle, "batch_sampler": shuffle, **dict.fromkeys(BATCH_BUDGETS, batch)}
    for key, pipe in instead.items():
        if split.iterable and split.table.get(key):
            text = f"{key} cannot be used with iterable data ({split.pipes[-1].name} is the last pipe)"
            yield split.problem(text, key, f"{pipe}, or end the pipes with alchemy.pipeline.lst.ItrToLst")


def _check_worker_split(split: _Split) -> Iterator[Problem]:
    if not split.iterable or split.workers < 2 or any(map(_splits_data, split.pipes)):
        return
    text = f"{split.workers} workers would each read all of the data, because no pipe splits it"
    hint = "put alchemy.pipeline.itr.SplitByWorker after the opener, or set num_workers = 0"
    # a project's pipe whose source cannot be read may split the data itself
    sure = all(pipe.part is not None and pipe.part.readable for pipe in split.pipes)
    yield split.problem(text, "num_workers", hint, error=sure)


def _splits_data(pipe: Slot) -> bool:
    words = pipe.part.own_words if pipe.part else ()
    return pipe.is_a("SplitByWorker", "Sharding") or "get_worker_info" in words or "splits" in words


def _check_split_twice(split: _Split) -> Iterator[Problem]:
    for pipe in split.find("SplitByWorker")[1:]:
        text = "the data is split by worker twice, so most of it is lost"
        yield pipe.problem(text, hint="remove one SplitByWorker")
    to_list = split.find("ItrToLst")
    for pipe in split.find("SplitByWorker"):
        if to_list and pipe.order < to_list[-1].order and split.workers > 0:
            text = "the data is split by worker and again by the loader, which distributes a list among the workers"
            yield pipe.problem(text, hint="remove SplitByWorker: ItrToLst needs all of the data")


def _check_batched_twice(split: _Split) -> Iterator[Problem]:
    batches = split.find("Batch", "BucketBatch", "TokenBatch")
    for pipe in batches[1:]:
        yield pipe.problem("the data is batched twice, into batches of batches", hint="remove one of the pipes")
    for key in ("batch_size", "batch_sampler", "max_tokens", "max_sentences"):
        if batches and split.table.get(key):
            text = f"{key} batches the output of the pipe {batches[-1].name} again"
            yield split.problem(text, key, f"remove {key} here, or remove the pipe")


def _check_single_samples(split: _Split) -> Iterator[Problem]:
    task = split.layout.at("task")
    ours = split.pipes and all(slot is not None and slot.ours for slot in (task, *split.pipes))
    named = any("Batch" in pipe.name for pipe in split.pipes) or "batch_size" in split.table
    named = named or (task is not None and task.is_a("Translation"))  # Translation has its own default batch budget
    if ours and not named and not any(map(split.table.get, ("batch_sampler", *BATCH_BUDGETS))):
        text = f"the split {split.name!r} is not batched: the model gets single samples"
        hint = "end the pipes with alchemy.pipeline.itr.Batch, or set batch_size or max_tokens"
        yield split.problem(text, "pipes", hint, error=False)


def _check_same_samples(split: _Split) -> Iterator[Problem]:
    training = split.layout.splits.get("train")
    if training is None or split.name not in ("dev", "test") or not split.pipes:
        return
    first = split.pipes[0]
    if first.ours and "path" in first.table and training.get("pipes") == split.table.get("pipes"):
        text = f"{split.name} reads the same samples as train: its scores do not measure generalization"
        hint = "use a different file, or hold out a share of the training data: dev = 0.1"
        yield split.problem(text, "pipes", hint, error=False)


def _check_first_pipe(split: _Split) -> Iterator[Problem]:
    """Check that the list of pipes is not empty and that the first pipe has a data source."""
    if split.table.get("pipes") == []:
        yield split.problem("the list of pipes is empty", "pipes", 'list its pipes: pipes = [{ type = "..." }, ..]')
    first = split.pipes[0] if split.pipes else None
    param = first.part.param("datapipe") if first and first.part and first.part.ours else None
    if first and param and not param.required and "datapipe" not in first.table:
        text = f"{first.name} is the first pipe but has no data source"
        yield first.problem(text, hint="put an opener or alchemy.pipeline.lst.SequenceWrapper before it")


def _check_fields(split: _Split) -> Iterator[Problem]:
    """Check that the previous pipe produces the fields that each pipe declares in `takes`."""
    fields: Any = None  # fields produced by the previous pipe; None if unknown
    for pipe in split.pipes:
        takes, gives, keeps = map(pipe.part.attribute, ("takes", "gives", "keeps")) if pipe.part else (None, None, None)
        for name, kind in takes.items() if takes and fields is not None else ():
            have = fields.get(name)
            if have is None or not fits(kind, have):
                lack = f"the field {name!r}" if have is None else f"{name!r} as {kind}"
                there = ", ".join(f"{key}: {value or 'any'}" for key, value in fields.items()) or "no field"
                text = f"{pipe.name} expects {lack}, but receives {there}"
                yield pipe.problem(text, hint="insert a pipe between them")
        if gives is not None or not keeps:
            fields = gives


# -- schedule and learning rate


def _check_length(layout: Layout) -> Iterator[Problem]:
    sched = layout.at("sched")
    if sched is None or not sched.ours or layout.of_kind("stop rule"):
        return
    if sched.value("epochs") is None and sched.value("num_training_steps") is None:
        yield sched.problem("the length of training is not set", hint="set epochs or num_training_steps")


def _check_zero_rate(layout: Layout) -> Iterator[Problem]:
    for optim in layout.of_kind("optim"):
        for key in ("lr", "trf_lr"):
            value = optim.table.get(key)
            if _is_number(value) and value == 0:
                hint = "set a learning rate above 0"
                yield optim.problem(f"{key} = 0: nothing will be learned", key, hint=hint, error=False)


def _check_warmup(layout: Layout) -> Iterator[Problem]:
    sched = layout.at("sched")
    if sched is None:
        return
    warmup, total = sched.table.get("num_warmup_steps"), sched.table.get("num_training_steps")
    unit = sched.value("unit") or "step"
    if unit == "epoch" and not _is_number(total):
        total = sched.table.get("epochs")
    if _is_number(warmup) and _is_number(total) and warmup > total:
        what = "epochs" if unit == "epoch" else "updates"
        text = f"the warmup of {warmup} {what} is longer than training ({total} {what})"
        yield sched.problem(text, "num_warmup_steps", hint="the learning rate would never reach its peak")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- evaluation


def _check_evaluated_splits(layout: Layout) -> Iterator[Problem]:
    """Report schedule pipes that evaluate a split that has no data."""
    for pipe in layout.inside("sched.pipes"):
        split = pipe.value("split")
        takes = pipe.part is not None and pipe.part.param("split") is not None
        if isinstance(split, str) and takes and split not in layout.splits and "task" in layout.doc:
            text = f"{pipe.name} evaluates the split {split!r}, which has no dataset"
            hint = did_you_mean(split, layout.splits) or f"add [task.datasets.{split}], or use a different split"
            yield pipe.problem(text, "split", hint=hint, error=not brings_data(layout))


def _check_evaluation(layout: Layout) -> Iterator[Problem]:
    """Warn about evaluation pipes if no evaluation runs during training."""
    pipes, runner = layout.inside("task.evalpipes"), layout.at("runner")
    trains = runner is not None and runner.is_a("Trainer", "AlchemyTrainer")
    known = all(pipe.ours for pipe in layout.inside("sched.pipes"))
    if pipes and trains and known and not evaluated_splits(layout) and layout.at("sched"):
        hint = 'add { type = "alchemy.pipeline.sched.EvalEEPipeline", period = 1 } to the pipes of [sched]'
        yield pipes[0].problem(
            "there are evaluation pipes, but no evaluation runs during training", hint=hint, error=False
        )


def _check_weights(layout: Layout) -> Iterator[Problem]:
    runner, model = layout.at("runner"), layout.at("model")
    tests = runner is not None and runner.is_a("Tester", "ALchemyTester", "InferenceRunner", "AlchemyInferenceRunner")
    if tests and runner and model and not any("path" in str(k) or "checkp" in str(k) for k in model.table):
        text = f"{runner.name} needs a trained model, but 'model_path' is not set"
        yield model.problem(text, hint="without it, the model is newly initialized", error=False)


def _check_checkpoints(layout: Layout) -> Iterator[Problem]:
    """Warn about checkpoints if there is no record to store them in."""
    makes = any(plugin.is_a("FileLogger") for plugin in layout.inside("plugins"))
    for slot in layout.of_kind("checkpoint"):
        if not makes and slot.value("enabled") is not False and "sched" in layout.doc:
            hint = "add alchemy.plugins.FileLogger to the plugins"
            yield slot.problem("there is no record to store checkpoints in", hint=hint, error=False)


# -- plugins


def _check_repeated_plugins(layout: Layout) -> Iterator[Problem]:
    seen: dict[str, Slot] = {}
    for plugin in layout.inside("plugins"):
        key = f"{plugin.part.module}.{plugin.part.name}" if plugin.part else str(plugin.table.get("type", ""))
        if key in seen and key:
            first = seen[key].table.where() or seen[key].section
            equal = plugin.table == seen[key].table
            single = plugin.is_a("BasicSetup", "FileLogger", "Seeding")
            if equal or single:
                text = f"{plugin.name} is listed twice, first at {first}"
                yield plugin.problem(text, hint="remove one", error=single)
        seen.setdefault(key, plugin)


def _check_plugin_order(layout: Layout) -> Iterator[Problem]:
    """Check that plugins that write to the record come after the plugin that creates it."""
    plugins = layout.inside("plugins")
    maker = next((p for p in plugins if p.is_a("FileLogger")), None)
    for plugin in plugins:
        if not plugin.is_a("Backup", "TensorboardLogger"):
            continue
        if maker is None:
            text = f"{plugin.name} writes to a record, but no FileLogger creates one"
            yield plugin.problem(text, hint="add alchemy.plugins.FileLogger before it", error=False)
        elif plugin.order < maker.order:
            text = f"{plugin.name} comes before FileLogger, which creates the record it writes to"
            yield plugin.problem(text, hint="move FileLogger before it")


def _check_seeds(layout: Layout) -> Iterator[Problem]:
    top = layout.doc.get("seed")
    origin = layout.doc.origin_of("seed")
    if "seed" not in layout.doc or origin.kind != "file":  # drawn at random, or set deliberately with --seeds
        return
    for plugin in layout.inside("plugins"):
        own = plugin.table.get("seed")
        if plugin.is_a("Seeding") and top is not None and own is not None and own != top:
            text = f"Seeding has seed = {own}, but the config has seed = {top}"
            yield plugin.problem(text, "seed", hint="remove one of them: the top-level seed is used", error=False)


_SPLIT_RULES = (
    _check_iterable_options, _check_worker_split, _check_split_twice, _check_batched_twice, _check_single_samples,
    _check_same_samples, _check_first_pipe, _check_fields,
)  # fmt: skip
_RULES = (
    _check_length, _check_zero_rate, _check_warmup, _check_evaluated_splits, _check_evaluation, _check_weights,
    check_monitors, check_rows, check_packages, _check_checkpoints, _check_repeated_plugins, _check_plugin_order,
    _check_seeds,
)  # fmt: skip
