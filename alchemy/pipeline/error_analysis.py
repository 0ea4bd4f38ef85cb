"""What answers show beside the truth, for each kind of answer: classes, several labels, tags, numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from alchemy.data.tag_schemes import Scheme
from alchemy.metrics.scores import ClassScores, LabelScores, SpanScores
from alchemy.pipeline.plots import draw_confusion, draw_numbers

NONE = "O"  # where there is no span, as in tags

Rows = list[dict[str, Any]]


@dataclass
class Analysis:
    """What an evaluation has shown."""

    tables: dict[str, dict[str, dict[str, float]]]  # of numbers, by their title
    hardest: Rows  # those that were answered worst, in order
    grid: list[list[Any]] = field(default_factory=list)  # the table of confusions: a line of names, and one for each
    picture: str = ""  # what `draw` shows; it takes the name of the file with the grid, and holds on to no rows
    draw: Callable[[str], bytes] | None = None


@dataclass
class Answered:
    """Rows of an evaluation with the field of truth and that of the answer, and what these mean."""

    rows: Rows
    gold: str
    pred: str
    labels: Sequence[str] = ()
    scheme: str = "BIO"
    other: str = ""

    def columns(self, read: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        """What is true, and what was said."""
        return [read(row[self.gold]) for row in self.rows], [read(row[self.pred]) for row in self.rows]

    def name(self, label: object) -> str:
        """A label by its name; a number is the place of one among the labels."""
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(self.labels):
            return self.labels[int(label)]
        return str(label)


def _of_classes(answered: Answered) -> Analysis:
    gold, said = answered.columns(answered.name)
    found = ClassScores(gold, said, answered.labels)
    tables = {"classes": found.rows, "means": found.means}
    if answered.other:
        tables["relations"] = found.relations(answered.other)
    wrong = [row for row, one, two in zip(answered.rows, gold, said) if one != two]
    return _with_confusions(tables, sorted(wrong, key=lambda row: _chance(row, answered)), found)


def _of_labels(answered: Answered) -> Analysis:
    gold, said = answered.columns(lambda row: sorted(set(map(answered.name, row))))
    found = LabelScores(gold, said, answered.labels)
    wrong = _wrong(answered.rows, gold, said)
    wrong.sort(key=lambda row: -_doubt(row))
    cells = found.matrix()[:, [1, 0, 1, 0], [1, 1, 0, 0]].tolist()
    grid = [["label", "right", "false", "missed", "neither"], *([name, *row] for name, row in zip(found.names, cells))]
    return Analysis({"labels": found.rows, "means": found.means}, wrong, grid)


def _of_tags(answered: Answered) -> Analysis:
    scheme = Scheme(answered.scheme, begins=True)
    tags = answered.columns(lambda row: list(map(answered.name, row)))
    found = SpanScores(*([scheme.in_bioes(row) for row in column] for column in tags))
    gold, said = ([scheme.spans(row) for row in column] for column in tags)
    wrong = _wrong(answered.rows, gold, said)
    wrong.sort(key=lambda row: -len(row["missed"]) - len(row["false"]))
    tables = {"spans": found.rows, "means": found.means}
    if not found.rows:
        return Analysis(tables, wrong)
    return _with_confusions(tables, wrong, ClassScores(*_types(gold, said), [*found.rows, NONE]))


def _of_numbers(answered: Answered) -> Analysis:
    gold, said = answered.columns(float)
    residuals = [two - one for one, two in zip(gold, said)]
    columns = {"gold": gold, "said": said, "residual": residuals}
    rows = [{**row, "residual": residual} for row, residual in zip(answered.rows, residuals)]
    rows.sort(key=lambda row: math.inf if math.isnan(row["residual"]) else abs(row["residual"]), reverse=True)
    found = Analysis({"numbers": {name: _spread(column) for name, column in columns.items()}}, rows)
    finite = [pair for pair in zip(gold, said) if all(map(math.isfinite, pair))]
    if finite:
        found.picture, found.draw = "numbers", lambda legend: draw_numbers(*zip(*finite))
    return found


KINDS: dict[str, Callable[[Answered], Analysis]] = {
    "classes": _of_classes, "labels": _of_labels, "tags": _of_tags, "numbers": _of_numbers,
}  # fmt: skip


def kind_of(gold: str, pred: object) -> str:
    """The kind of answers, by the name of the field of truth and by one answer.

    >>> [kind_of("label", answer) for answer in ("sport", 3, 0.5, ["a"])], kind_of("tags", ["O"])
    (['classes', 'classes', 'numbers', 'labels'], 'tags')
    """
    if gold == "tags":
        return "tags"
    if isinstance(pred, float | np.floating):
        return "numbers"
    return "labels" if isinstance(pred, list | tuple | set) else "classes"


def _with_confusions(tables: dict[str, Any], hardest: Rows, mixed: ClassScores) -> Analysis:
    names, counts = mixed.names, mixed.matrix()
    grid = [["gold \\ said", *names], *([name, *row] for name, row in zip(names, counts.tolist()))]
    return Analysis(tables, hardest, grid, "confusion", partial(draw_confusion, names, counts))


def _wrong(rows: Rows, gold: list[list[Any]], said: list[list[Any]]) -> Rows:
    """The rows that are not right, with what they missed and what is false in them."""
    return [
        {**row, "missed": _minus(one, two), "false": _minus(two, one)}
        for row, one, two in zip(rows, gold, said)
        if one != two
    ]


def _minus(one: Iterable[Any], other: list[Any]) -> list[Any]:
    return [item for item in one if item not in other]


def _chance(row: Mapping[str, Any], answered: Answered) -> float:
    """How likely the truth was to the model: by the probabilities of all, or at most what that of its answer left."""
    probs, gold = row.get("probs"), row[answered.gold]
    if isinstance(probs, Mapping):
        chance = probs.get(answered.name(gold), 0.0)
    elif probs is not None and isinstance(gold, int):
        chance = probs[gold]
    else:
        chance = 1.0 - row.get("prob", 0.0)
    return 0.0 if math.isnan(chance) else float(chance)


def _doubt(row: Mapping[str, Any]) -> float:
    """The loss of the labels that are wrong; without probabilities their number."""
    probs = row.get("probs")
    if not isinstance(probs, Mapping):
        return len(row["missed"]) + len(row["false"])
    chances = [probs.get(label, 0.0) for label in row["missed"]] + [
        1.0 - probs.get(label, 0.0) for label in row["false"]
    ]
    return -sum(math.log(max(chance, 1e-12)) for chance in chances if not math.isnan(chance))


def _types(gold: list[Any], said: list[Any]) -> tuple[list[str], list[str]]:
    """The types of spans that stand, or should, between the same two words."""
    pairs: list[tuple[str, str]] = []
    for one, two in zip(gold, said):
        wanted, given = ({(start, end): kind for start, end, kind in spans} for spans in (one, two))
        pairs += [(wanted.get(place, NONE), given.get(place, NONE)) for place in dict.fromkeys([*wanted, *given])]
    return [one for one, _ in pairs], [two for _, two in pairs]


def _spread(column: list[float]) -> dict[str, float]:
    with np.errstate(all="ignore"):  # what is not finite stays so
        values = np.asarray(column)
        return {"mean": float(values.mean()), "std": float(values.std()), "min": min(column), "max": max(column)}
