"""Combinations that cannot work: each key is right, and together they are wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeGuard

from alchemy.config.fields import fits
from alchemy.config.slots import Layout, Slot
from alchemy.config.tree import Table
from alchemy.config.watch import brings_data, homeless_checkpoints, watched_splits
from alchemy.errors import Problem, did_you_mean

Rule = Callable[[Layout], Iterator[Problem]]


def check_combos(layout: Layout) -> Iterator[Problem]:
    """The problems of every rule below."""
    for rule in RULES:
        yield from rule(layout)


class _Split:
    """The data set of one split: its table for the loader, and its pipes."""

    def __init__(self, name: str, table: Table, pipes: list[Slot]) -> None:
        self.name, self.table, self.pipes = name, table, pipes

    @property
    def iterable(self) -> bool:
        """Whether the loader gets an iterable data set; False where that cannot be told."""
        last = self.pipes[-1] if self.pipes else None
        return last is not None and last.is_a("ItrDataPipeline", "IterableDataset") and not last.is_a("LstDataPipeline")

    def number(self, key: str) -> int:
        value = self.table.get(key, 0)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def on(self, key: str) -> bool:
        value = self.table.get(key)
        return value is not None and value is not False and value != 0

    def find(self, *names: str) -> list[Slot]:
        return [pipe for pipe in self.pipes if pipe.is_a(*names)]

    def problem(self, message: str, key: str, hint: str, *, error: bool = True) -> Problem:
        return Problem(message, self.table.where(key), f"task.datasets.{self.name}", hint, error)


def _splits_of(layout: Layout) -> list[_Split]:
    rows = layout.splits.items()
    return [_Split(name, table, layout.inside(f"task.datasets.{name}.pipes")) for name, table in rows]


# -- data


def _shuffled_stream(layout: Layout) -> Iterator[Problem]:
    for split in _splits_of(layout):
        for key in ("shuffle", "sampler", "batch_sampler"):
            if split.iterable and split.on(key):
                text = f"{key} cannot be used with iterable data ({split.pipes[-1].name} is the last pipe)"
                hint = "shuffle with the pipe alchemy.pipeline.itr.Shuffle, or end with alchemy.pipeline.lst.ItrToLst"
                yield split.problem(text, key, hint)


def _workers_without_split(layout: Layout) -> Iterator[Problem]:
    for split in _splits_of(layout):
        workers = split.number("num_workers")
        if not split.iterable or workers < 2 or any(_splits(pipe) for pipe in split.pipes):
            continue
        text = f"{workers} workers would each read all of the data: no pipe splits it"
        hint = "put alchemy.pipeline.itr.SplitByWorker after the opener, or set num_workers = 0"
        # a pipe of the project whose source cannot be seen may split in its own way
        sure = all(pipe.part is not None and pipe.part.readable for pipe in split.pipes)
        yield split.problem(text, "num_workers", hint, error=sure)


def _splits(pipe: Slot) -> bool:
    words = pipe.part.own_words if pipe.part else ()
    return pipe.is_a("SplitByWorker", "Sharding") or "get_worker_info" in words or "splits" in words


def _split_twice(layout: Layout) -> Iterator[Problem]:
    for split in _splits_of(layout):
        for pipe in split.find("SplitByWorker")[1:]:
            yield pipe.problem(
                "the data is split by worker twice, and most of it is lost", hint="remove one SplitByWorker"
            )
        to_list = split.find("ItrToLst")
        for pipe in split.find("SplitByWorker"):
            if to_list and pipe.order < to_list[-1].order and split.number("num_workers") > 0:
                text = "the data is split by worker, and again by the loader, which shares a list out among the workers"
                yield pipe.problem(text, hint="remove SplitByWorker: ItrToLst needs the whole data")


def _batched_twice(layout: Layout) -> Iterator[Problem]:
    for split in _splits_of(layout):
        batches = split.find("Batch", "BucketBatch", "TokenBatch")
        for pipe in batches[1:]:
            yield pipe.problem("the data is batched twice: a batch of batches", hint="remove one of the pipes")
        for key in ("batch_size", "batch_sampler", "max_tokens", "max_sentences"):
            if batches and split.on(key):
                text = f"{key} batches again what the pipe {batches[-1].name} has batched"
                yield split.problem(text, key, f"remove {key} here, or the pipe")


def _batch_of_one(layout: Layout) -> Iterator[Problem]:
    for split in _splits_of(layout):
        ours = split.pipes and all(pipe.part is not None and pipe.part.ours for pipe in split.pipes)
        named = any("Batch" in pipe.name for pipe in split.pipes) or "batch_size" in split.table
        made = split.on("batch_sampler") or _budgets(split)
        if ours and not named and not made and _default_task(layout):
            text = f"nothing makes batches of the split {split.name!r}: the model gets single samples"
            hint = "end with alchemy.pipeline.itr.Batch, or give batch_size or max_tokens"
            yield split.problem(text, "pipes", hint, error=False)


def _default_task(layout: Layout) -> bool:
    task = layout.at("task")
    return task is not None and task.part is not None and task.part.ours


def _loader_options(layout: Layout) -> Iterator[Problem]:
    """What torch's DataLoader refuses."""
    for split in _splits_of(layout):
        for key in ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
            if split.on(key) and split.number("num_workers") == 0:
                yield split.problem(f"{key} needs workers", key, f"set num_workers, or remove {key}")
        if split.on("batch_sampler"):
            for key in ("batch_size", "shuffle", "sampler", "drop_last"):
                if split.on(key):
                    yield split.problem(f"batch_sampler excludes {key}", key, "remove one or the other")
        elif split.on("drop_last") and not split.on("batch_size") and not _budgets(split):
            yield split.problem("drop_last needs batch_size", "drop_last", "give it to the pipe that makes the batches")
        if split.on("sampler") and split.on("shuffle"):
            yield split.problem(
                "sampler excludes shuffle", "shuffle", "remove shuffle: the sampler decides about the order"
            )


def _budget_options(layout: Layout) -> Iterator[Problem]:
    """A budget of tokens makes the batches: nothing else may, and what is cut must be cut somewhere."""
    for split in _splits_of(layout):
        for budget in _budgets(split)[:1]:
            for key in ("batch_size", "batch_sampler", "sampler", "drop_last"):
                if split.on(key):
                    hint = "remove one or the other; max_sentences limits the samples of a batch"
                    yield split.problem(f"{budget} excludes {key}", key, hint)
        cuts = split.table.get("too_long") == "truncate"
        if cuts and not split.on("max_tokens") and not split.on("max_length"):
            text = 'too_long = "truncate" needs to know at what length'
            yield split.problem(text, "too_long", "give max_length, or max_tokens")


def _budgets(split: _Split) -> list[str]:
    return [key for key in ("max_tokens", "max_sentences") if split.on(key)]


def _chain_starts(layout: Layout) -> Iterator[Problem]:
    """The first pipe must have something to read, and a list of pipes must not be empty."""
    for split in _splits_of(layout):
        if "pipes" in split.table and split.table.get("pipes") == []:
            yield split.problem("the list of pipes is empty", "pipes", 'name its parts: pipes = [{ type = "..." }, ..]')
        first = split.pipes[0] if split.pipes else None
        param = first.part.param("datapipe") if first and first.part and first.part.ours else None
        if first and param and not param.required and "datapipe" not in first.table:
            text = f"{first.name} is the first pipe and has nothing to read"
            yield first.problem(text, hint="put an opener or alchemy.pipeline.lst.SequenceWrapper before it")


def _fields_flow(layout: Layout) -> Iterator[Problem]:
    """A pipe that declares fields which the pipe before it does not give."""
    for split in _splits_of(layout):
        fields: dict[str, str] | None = None
        for pipe in split.pipes:
            takes, gives, keeps = (
                pipe.part.attribute(name) if pipe.part else None for name in ("takes", "gives", "keeps")
            )
            for name, kind in (takes or {}).items() if fields is not None else ():
                have = (fields or {}).get(name)
                if have is None or not fits(kind, have):
                    lack = f"the field {name!r}" if have is None else f"{name!r} as {kind}"
                    there = ", ".join(f"{key}: {value or 'any'}" for key, value in (fields or {}).items()) or "no field"
                    yield pipe.problem(
                        f"{pipe.name} takes {lack}, but it is given {there}", hint="put a pipe between them"
                    )
            if gives is not None or not keeps:
                fields = gives


# -- numbers


def _no_end(layout: Layout) -> Iterator[Problem]:
    sched = layout.at("sched")
    if sched is None or sched.part is None or not sched.part.ours:
        return
    ends = layout.of_kind("stop rule")
    if sched.value("epochs") is None and sched.value("num_training_steps") is None and not ends:
        yield sched.problem("does not say how long to train", hint="set epochs or num_training_steps")


def _nothing_learnt(layout: Layout) -> Iterator[Problem]:
    for optim in layout.of_kind("optim"):
        for key in ("lr", "trf_lr"):
            value = optim.table.get(key)
            if _is_number(value) and value == 0:
                yield optim.problem(f"{key} = 0: nothing will be learnt", key, hint="set a rate above 0", error=False)


def _long_warmup(layout: Layout) -> Iterator[Problem]:
    sched = layout.at("sched")
    if sched is None:
        return
    warmup, total = sched.table.get("num_warmup_steps"), sched.table.get("num_training_steps")
    unit = sched.value("unit") or "step"
    if unit == "epoch" and not _is_number(total):
        total = sched.table.get("epochs")
    if _is_number(warmup) and _is_number(total) and warmup > total:
        what = "epochs" if unit == "epoch" else "updates"
        text = f"the warm-up of {warmup} {what} is longer than the training of {total}"
        yield sched.problem(text, "num_warmup_steps", hint="the learning rate would never reach its height")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- evaluation


def _evaluated_splits(layout: Layout) -> Iterator[Problem]:
    """A schedule pipe that evaluates a split which has no data."""
    for pipe in layout.inside("sched.pipes"):
        split = pipe.value("split")
        takes = pipe.part is not None and pipe.part.param("split") is not None
        if isinstance(split, str) and takes and split not in layout.splits and "task" in layout.doc:
            text = f"{pipe.name} evaluates the split {split!r}, which has no data set"
            hint = did_you_mean(split, layout.splits) or f"add [task.datasets.{split}], or name another split"
            yield pipe.problem(text, "split", hint=hint, error=not brings_data(layout))


def _never_evaluated(layout: Layout) -> Iterator[Problem]:
    """Evaluation pipes in a training that evaluates nothing."""
    pipes, runner = layout.inside("task.evalpipes"), layout.at("runner")
    trains = runner is not None and runner.is_a("Trainer", "AlchemyTrainer")
    known = all(p.part is not None and p.part.ours for p in layout.inside("sched.pipes"))
    evaluates = any(re.search("eval", p.name, re.I) for p in layout.inside("sched.pipes"))
    if pipes and trains and known and not evaluates and isinstance(layout.doc.get("sched"), Table):
        hint = 'add { type = "alchemy.pipeline.sched.EvalEEPipeline", period = 1 } to the pipes of [sched]'
        yield pipes[0].problem(
            "there are evaluation pipes, but nothing evaluates during training", hint=hint, error=False
        )


def _untrained_test(layout: Layout) -> Iterator[Problem]:
    runner, model = layout.at("runner"), layout.at("model")
    tests = runner is not None and runner.is_a("Tester", "ALchemyTester", "InferenceRunner", "AlchemyInferenceRunner")
    if tests and runner and model and not any("path" in str(k) or "checkp" in str(k) for k in model.table):
        text = f"{runner.name} runs a model that names no 'model_path' to load"
        yield model.problem(text, hint="without one the weights are those of a new model", error=False)


# -- plugins


def _repeated_plugins(layout: Layout) -> Iterator[Problem]:
    seen: dict[str, Slot] = {}
    for plugin in layout.inside("plugins"):
        key = f"{plugin.part.module}.{plugin.part.name}" if plugin.part else str(plugin.table.get("type", ""))
        if key in seen and key:
            first = seen[key].table.where() or seen[key].section
            equal = plugin.table == seen[key].table
            single = plugin.is_a("BasicSetup", "FileLogger", "Seeding")
            if equal or single:
                text = f"{plugin.name} stands in the list twice, first at {first}"
                yield plugin.problem(text, hint="remove one", error=single)
        seen.setdefault(key, plugin)


def _plugin_order(layout: Layout) -> Iterator[Problem]:
    """Whoever writes into the record comes after the plugin that makes it."""
    plugins = layout.inside("plugins")
    maker = next((p for p in plugins if p.is_a("FileLogger")), None)
    for plugin in plugins:
        if not plugin.is_a("Backup", "TensorboardLogger"):
            continue
        if maker is None:
            text = f"{plugin.name} writes into a record, and no FileLogger makes one"
            yield plugin.problem(text, hint="add alchemy.plugins.FileLogger before it", error=False)
        elif plugin.order < maker.order:
            text = f"{plugin.name} comes before FileLogger, which makes the record it writes into"
            yield plugin.problem(text, hint="move FileLogger before it")


def _two_seeds(layout: Layout) -> Iterator[Problem]:
    top = layout.doc.get("seed")
    origin = layout.doc.origin_of("seed")
    if "seed" not in layout.doc or origin.kind != "file":  # drawn, or given with --seeds on purpose
        return
    for plugin in layout.inside("plugins"):
        own = plugin.table.get("seed")
        if plugin.is_a("Seeding") and top is not None and own is not None and own != top:
            text = f"Seeding has the seed {own}, the config has seed = {top}"
            yield plugin.problem(text, "seed", hint="keep one of them: the top-level seed is used", error=False)


RULES: tuple[Rule, ...] = (
    _shuffled_stream, _workers_without_split, _split_twice, _batched_twice, _batch_of_one, _loader_options,
    _budget_options, _chain_starts, _fields_flow, _no_end, _nothing_learnt, _long_warmup, _evaluated_splits,
    _never_evaluated, _untrained_test, _repeated_plugins, _plugin_order, _two_seeds, watched_splits,
    homeless_checkpoints,
)  # fmt: skip
