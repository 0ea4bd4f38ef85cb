"""Sentences that an export is checked on."""

from __future__ import annotations

from itertools import islice
from typing import Any

from alchemy.data.files import read_lines
from alchemy.errors import AlchemyError
from alchemy.export.check import LINES, Pair
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.processors.samples import is_blank


def of_split(task: Any, split: str = "dev") -> list[Pair]:
    """The first ones of a split, with their translations."""
    section = f"task.datasets.{split}"
    table = (task.cfg.get("datasets") or {}).get(split)
    try:
        if table is None:
            raise AlchemyError("the config has no such split", section=section)
        data = build_datapipes(table.get("pipes"), section=section)
    except AlchemyError as error:
        message = f"there are no sentences to check the export on: {error.problem.message}"
        raise AlchemyError(message, section=section, hint="give some with --lines FILE") from error
    numbers = range(min(LINES, len(data))) if hasattr(data, "__len__") else ()
    samples = [data[number] for number in numbers] or list(islice(data, LINES))
    if any("source" not in sample or "target" not in sample for sample in samples):
        hint = "give some with --lines FILE and --references FILE"
        raise AlchemyError("its samples are no pairs of source and target", section=section, hint=hint)
    decode = task.target_tokenizer.decode
    return [Pair(list(map(int, sample["source"])), decode(sample["target"])) for sample in samples]


def of_lines(task: Any, lines: str, references: str = "") -> list[Pair]:
    """The first lines of a file that have words, with those of another as their translations."""
    sources = [line for _, line in islice(read_lines(lines), LINES)]
    gold = [line for _, line in islice(read_lines(references), LINES)] if references else [None] * len(sources)
    if len(gold) != len(sources):
        hint = "a translation stands in the line of its sentence"
        raise AlchemyError(f"{lines} has {len(sources)} lines, and {references} {len(gold)}", hint=hint)
    asked = [(line, reference) for line, reference in zip(sources, gold) if not is_blank(line)]
    encoded = task.encoded([{"text": line} for line, _ in asked])
    return [Pair(list(map(int, encoded[place]["source"])), reference) for place, (_, reference) in enumerate(asked)]
