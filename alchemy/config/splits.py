"""Expand `[task.data]`, which describes the data of a task once, into the tables of its splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from alchemy.annotations import find_mismatches
from alchemy.config.extend import NOT_INHERITED
from alchemy.config.merge import DATASETS, format_brief, merge
from alchemy.config.part_source import Part, find
from alchemy.config.short_names import explain_name
from alchemy.config.tree import Array, Document, Table, copy_tree
from alchemy.errors import Problem, did_you_mean
from alchemy.key_rules import LOADER_OPTIONS
from alchemy.synonyms import place_of

SPLITS = ("train", "dev", "test", "inference")
SECTION = "task.data"
_OWN = ("processor", "batch_size")  # keys used by the expansion itself
_SHARED = ("kind", "labels", "marks", "mode", "pair")  # keys shared by the task and its processor
_BATCHES = ("batch_size", "batch_sampler", "max_sentences", "max_tokens")
_HOLD_OUT, _EVALUATE = "alchemy.pipeline.lst.HoldOut", "alchemy.pipeline.sched.EvalEEPipeline"
_DEFAULT_BATCHES = {"batch_size": 32}  # used if the task does not declare `batches`


def expand_splits(doc: Document, notes: list[Problem], roots: Sequence[str]) -> None:
    """Add a table to `[task.datasets]` for each split in `[task.data]`.

    The task declares the `processor` that reads the files and the size of its `batches` as class attributes. The config
    may name a different processor. A project's task that declares no processor reads the table itself.
    """
    task = doc.table("task")
    data = task.get("data")
    if not isinstance(data, Table):
        return
    part = find(str(task.get("type", "")), roots)
    name = data.get("processor") or (part.attribute("processor") if part else None)
    own = part is not None and part.param("data") is not None
    if own or not isinstance(name, str) or "." not in name or not any(split in data for split in SPLITS):
        if part is not None and part.ours and not own:
            notes.append(_unreadable_problem(data, part))
            del task["data"]
        return
    batches = part.attribute("batches") if part is not None else None
    doc.written |= {data.where(key): SECTION for key in data if data.origin_of(key).file}
    plan = _Plan(data, name, find(name, roots), batches or _DEFAULT_BATCHES, notes)
    del task["data"]
    _share_settings(task, data, plan, part)
    _merge_datasets(task, plan.expand(), notes)
    _evaluate_dev(doc, data)


def _unreadable_problem(data: Table, part: Part) -> Problem:
    word = data.get("processor")
    if isinstance(word, str) and word:
        message, hint = explain_name(word, "data pipe")
        return Problem(message, data.where("processor"), SECTION, hint)
    if not any(split in data for split in SPLITS):
        hint = did_you_mean(next(iter(data), ""), SPLITS) or _FORMS[0]
        return Problem(f"no files are given: set at least one of {', '.join(SPLITS)}", data.where(), SECTION, hint)
    hint = 'add processor = "package.module.Class", a data pipe with a `path` parameter'
    return Problem(f"{part.name} does not define how to read the files", data.where(), SECTION, hint)


def _share_settings(task: Table, data: Table, plan: _Plan, part: Part | None) -> None:
    """Copy settings that the task and its processor share from one table to the other."""
    for key in _SHARED:
        if key == "labels" and not _is_required(plan.part, key):  # other processors find the labels in their files
            continue
        if key in task and key not in data and key != "pair" and plan.part is not None and plan.part.param(key):
            data.put(key, copy_tree(task[key]), task.origin_of(key))
        elif key in data and key not in task and part is not None and part.param(key):
            # the processor names the column of the second text; the task only needs to know whether there is one
            task.put(key, bool(data[key]) if key == "pair" else copy_tree(data[key]), data.origin_of(key))


def _is_required(part: Part | None, key: str) -> bool:
    param = part.param(key) if part is not None else None
    return param is not None and param.required


def _merge_datasets(task: Table, splits: dict[str, Table], notes: list[Problem]) -> None:
    """Merge `[task.datasets]` into the expansion; a split may use a different batch option."""
    own = task.table("datasets")
    datasets = Table(origin=own.origin)
    for name, table in splits.items():
        mine = own.get(name)
        if isinstance(mine, Table):
            for key in _BATCHES if any(key in mine for key in _BATCHES) else ():
                table.pop(key, None)
            merge(table, mine, notes, (*DATASETS, name))
        datasets.put(name, table, table.origin)
    for name in own:
        if name not in datasets:
            datasets.put(name, own[name], own.origin_of(name))
    task.put("datasets", datasets, datasets.origin)


def _evaluate_dev(doc: Document, data: Table) -> None:
    """Evaluate after every epoch if there is a dev split and the schedule has no pipes."""
    sched = doc.get("sched")
    if isinstance(sched, Table) and "pipes" not in sched and "dev" in doc.table("task").table("datasets"):
        origin = data.origin_of("dev")
        sched.put("pipes", [{"type": _EVALUATE, "period": 1}], origin)


@dataclass
class _Plan:
    """A `[task.data]` table, and what is known about the parts it expands to."""

    data: Table
    processor: str
    part: Part | None  # the processor, if its source can be read
    batches: dict[str, int]
    notes: list[Problem]

    def expand(self) -> dict[str, Table]:
        reads, loads = self._sort_keys()
        held = self._shares()
        splits = {}
        for name in SPLITS:
            if name in self.data:
                origin = self.data.origin_of(name)
                splits[name] = table = Table(origin=origin)
                pipes = [self._reader(name, reads), *self._hold_out(name, held)]
                self._batch(table, name)
                for key in loads:
                    if name == "train" or key not in NOT_INHERITED:
                        self._copy(table, key)
                if name == "train" and not table.keys() & {"shuffle", "sampler", "batch_sampler"}:
                    table.put("shuffle", True, origin)
                table.put("pipes", Array(pipes, origin=origin), origin)
        return splits

    def _sort_keys(self) -> tuple[list[str], list[str]]:
        """Return the keys for the processor and the keys for the loader, and report all others."""
        reads, loads = [], []
        for key in self.data:
            if key in SPLITS or key in _OWN:
                continue
            if self._takes(key):
                reads.append(key)
            elif key in LOADER_OPTIONS:
                loads.append(key)
            else:
                self._refuse(key)
        return reads, loads

    def _takes(self, key: str) -> bool:
        if self.part is None or self.part.old_style:
            return key not in LOADER_OPTIONS
        return self.part.param(key) is not None

    def _refuse(self, key: str) -> None:
        names = [param.name for param in self.part.params if param.name != "path"] if self.part else []
        known = [*SPLITS, *names, *_OWN, *LOADER_OPTIONS]
        hint = did_you_mean(key, known) or place_of(key, SECTION) or f"it takes {', '.join([*SPLITS, *_OWN, *names])}"
        short = self.processor.rpartition(".")[2]
        self._note(f"neither {short} nor the loader has an option {key!r}", key, hint)

    def _reader(self, name: str, reads: list[str]) -> Table:
        """Return the table of a split's processor: shared keys, its file, and settings from its own table, if any."""
        value, origin = self.data[name], self.data.origin_of(name)
        pipe = Table(origin=origin)
        pipe.put("type", self.processor, self.data.origin_of("processor"))
        source = "train" if _parse_share(value) is not None else name
        own = self.data.get(source)
        if isinstance(own, Table) and "dyn" not in own:
            merge(pipe, own, self.notes)
        elif own is not None:
            pipe.put("path", copy_tree(own), self.data.origin_of(source))
        for key in reads:
            if key not in pipe:
                self._copy(pipe, key)
        return pipe

    def _copy(self, table: Table, key: str) -> None:
        table.put(key, copy_tree(self.data[key]), self.data.origin_of(key))

    def _batch(self, table: Table, name: str) -> None:
        """Set the batch size; evaluation uses twice the size, because it stores no gradients."""
        given = [key for key in _BATCHES if key in self.data and (name == "train" or key not in NOT_INHERITED)]
        if given and given != ["batch_size"]:
            return
        key, number = next(iter(self.batches.items()))
        size = self.data.get("batch_size")
        wrong = find_mismatches("batch_size", size, "Annotated[int, Ge(1)]") if "batch_size" in self.data else []
        for text, hint in wrong if name == "train" else ():
            self._note(text, "batch_size", hint)
        if size is not None and not wrong:
            key, number = "max_sentences" if key == "max_tokens" else key, size
        table.put(key, number if name == "train" else number * 2, self.data.origin_of("batch_size"))

    # -- held-out shares
    def _shares(self) -> dict[str, float]:
        """Return the share of the training data that is held out for each split without its own files."""
        found: dict[str, float] = {}
        for name in SPLITS:
            value = self.data.get(name)
            share = _parse_share(value)
            if share is None:
                if name in self.data and not isinstance(value, str | Table | list):
                    self._note(f"{name} must be a path, not {format_brief(value)}", name, _FORMS[name != "train"])
            elif name == "train" or not 0 < share < 1:
                self._note(
                    f"{name} = {format_brief(value)} is neither a path nor a share", name, _FORMS[name != "train"]
                )
            elif _parse_share(self.data.get("train")) is not None or "train" not in self.data:
                text = f"{name} = {format_brief(value)} is a share of the training data, but no training file is given"
                self._note(text, name, 'add train = "data/train.csv"')
            else:
                found[name] = share
        if sum(found.values()) >= 1:
            text = f"{' and '.join(found)} hold out {100 * sum(found.values()):g}% of the training data"
            self._note(text, list(found)[-1], "leave some of it to train on")
            return {}
        return found

    def _hold_out(self, name: str, held: dict[str, float]) -> Iterator[Table]:
        if not held or (name != "train" and name not in held):
            return
        origin = self.data.origin_of(name if name in held else next(iter(held)))
        before = [share for other, share in held.items() if SPLITS.index(other) < SPLITS.index(name)]
        pipe: dict[str, Any] = {"type": _HOLD_OUT, "share": held.get(name) or _total(held.values())}
        if name in held:
            pipe |= {"held": True} | ({"skip": _total(before)} if before else {})
        yield Table(pipe, origin=origin)

    def _note(self, text: str, key: str, hint: str) -> None:
        self.notes.append(Problem(text, self.data.where(key), SECTION, hint))


_FORMS = ('write train = "data/train.csv"', "write a path, or a share of the training data such as 0.1")


def _parse_share(value: object) -> float | None:
    """Return the share that a value specifies; a number that `--set` substitutes for a path is still a string."""
    if isinstance(value, str):
        try:
            return float(value) if value[:1] in ".0" else None
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _total(shares: Any) -> float:
    return float(round(sum(shares), 9))
