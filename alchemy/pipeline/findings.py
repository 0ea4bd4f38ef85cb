"""What answers show beside the truth, for each kind of answer: classes, several labels, tags, numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alchemy.metrics.answers import Classes, Labels, span_rows
from alchemy.pipeline.processors.schemes import Scheme

Numbers = Mapping[str, float]
NONE = "O"  # where there is no span, as in tags


@dataclass
class Findings:
    """Tables of numbers, by their title; how answers were mixed up; the rows that were answered worst, in order."""

    tables: dict[str, dict[str, Any]]
    hardest: list[dict[str, Any]]
    grid: list[list[Any]] = field(default_factory=list)  # the table of confusions: a line of names, and one for each
    names: list[str] = field(default_factory=list)  # with `counts`: a confusion that can be drawn
    counts: Any = None
    points: tuple[list[float], list[float]] | None = None  # gold and said numbers


@dataclass
class Answers:
    """Rows of an evaluation, and the fields of them that are compared."""

    rows: Sequence[Mapping[str, Any]]
    gold: str
    pred: str
    labels: Sequence[str] = ()
    scheme: str = "BIO"
    other: str = ""

    def columns(self, read: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        """What is true, and what was said."""
        return [read(row[self.gold]) for row in self.rows], [read(row[self.pred]) for row in self.rows]

    def name(self, label: Any) -> str:
        """A label by its name; a number is the place of one among the labels."""
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(self.labels):
            return self.labels[int(label)]
        return str(label)


def _of_classes(answers: Answers) -> Findings:
    gold, said = answers.columns(answers.name)
    found = Classes(gold, said, answers.labels)
    tables: dict[str, dict[str, Any]] = {"classes": found.rows, "means": found.means}
    if answers.other:
        tables["relations"] = found.relations(answers.other)
    wrong = [row for row, one, two in zip(answers.rows, gold, said) if one != two]
    hardest = sorted(wrong, key=lambda row: _chance(row, answers))
    names, counts = found.names, found.matrix()
    return Findings(tables, list(map(dict, hardest)), _grid(names, counts), names, counts)


def _of_labels(answers: Answers) -> Findings:
    gold, said = answers.columns(lambda row: sorted(set(map(answers.name, row))))
    found = Labels(gold, said, answers.labels)
    tables: dict[str, dict[str, Any]] = {"labels": found.rows, "means": found.means}
    wrong = [
        (_doubt(row, set(one), set(two)), {**row, "missed": _minus(one, two), "false": _minus(two, one)})
        for row, one, two in zip(answers.rows, gold, said)
        if one != two
    ]
    cells = found.matrix()[:, [1, 0, 1, 0], [1, 1, 0, 0]].tolist()
    grid = [["label", "right", "false", "missed", "neither"], *([name, *row] for name, row in zip(found.names, cells))]
    return Findings(tables, [row for _, row in sorted(wrong, key=lambda pair: -pair[0])], grid)


def _of_tags(answers: Answers) -> Findings:
    own, ended = Scheme(answers.scheme, begins=True), Scheme("BIOES")
    gold, said = answers.columns(lambda tags: own.spans(list(map(answers.name, tags))))
    lengths = [len(row[answers.gold]) for row in answers.rows]
    rows, means = span_rows(*([ended.tags(*pair) for pair in zip(column, lengths)] for column in (gold, said)))
    wrong = [
        {**row, "missed": _minus(one, two), "false": _minus(two, one)}
        for row, one, two in zip(answers.rows, gold, said)
        if one != two
    ]
    wrong.sort(key=lambda row: -len(row["missed"]) - len(row["false"]))
    mixed = Classes(*_kinds(gold, said), [*rows, NONE]) if rows else None
    if mixed is None:
        return Findings({"spans": {}, "means": means}, wrong)
    counts = mixed.matrix()
    return Findings({"spans": rows, "means": means}, wrong, _grid(mixed.names, counts), mixed.names, counts)


def _of_numbers(answers: Answers) -> Findings:
    gold, said = answers.columns(float)
    residuals = [two - one for one, two in zip(gold, said)]
    columns = {"gold": gold, "said": said, "residual": residuals}
    rows = [{**row, "residual": residual} for row, residual in zip(answers.rows, residuals)]
    rows.sort(key=lambda row: math.inf if math.isnan(row["residual"]) else abs(row["residual"]), reverse=True)
    finite = [pair for pair in zip(gold, said) if all(map(math.isfinite, pair))]
    points = ([one for one, _ in finite], [two for _, two in finite]) if finite else None
    return Findings({"numbers": {name: _spread(column) for name, column in columns.items()}}, rows, points=points)


KINDS: dict[str, Callable[[Answers], Findings]] = {
    "classes": _of_classes, "labels": _of_labels, "tags": _of_tags, "numbers": _of_numbers,
}  # fmt: skip


def kind_of(gold: str, pred: Any) -> str:
    """The kind of answers, by the name of the field of truth and by one answer.

    >>> [kind_of("label", answer) for answer in ("sport", 3, 0.5, ["a"])], kind_of("tags", ["O"])
    (['classes', 'classes', 'numbers', 'labels'], 'tags')
    """
    if gold == "tags":
        return "tags"
    if isinstance(pred, float | np.floating):
        return "numbers"
    return "labels" if isinstance(pred, list | tuple | set) else "classes"


def _chance(row: Mapping[str, Any], answers: Answers) -> float:
    """How likely the truth was to the model: by the probabilities of all, or at most what that of its answer left."""
    probs, gold = row.get("probs"), row[answers.gold]
    if isinstance(probs, Mapping):
        chance = probs.get(answers.name(gold), 0.0)
    elif probs is not None and isinstance(gold, int):
        chance = probs[gold]
    else:
        chance = 1.0 - row.get("prob", 0.0)
    return 0.0 if math.isnan(chance) else float(chance)


def _doubt(row: Mapping[str, Any], gold: set[str], said: set[str]) -> float:
    """The loss of the labels that are wrong; without probabilities their number."""
    probs, wrong = row.get("probs"), gold ^ said
    if not isinstance(probs, Mapping):
        return len(wrong)
    chances = [probs.get(label, 0.0) if label in gold else 1.0 - probs.get(label, 0.0) for label in wrong]
    return -sum(math.log(max(chance, 1e-12)) for chance in chances if not math.isnan(chance))


def _minus(one: Iterable[Any], other: Iterable[Any]) -> list[Any]:
    rest = list(other)
    return [item for item in one if item not in rest]


def _kinds(gold: list[Any], said: list[Any]) -> tuple[list[str], list[str]]:
    """The types of spans that stand, or should, between the same two words."""
    pairs: list[tuple[str, str]] = []
    for one, two in zip(gold, said):
        wanted, given = ({(start, end): kind for start, end, kind in spans} for spans in (one, two))
        pairs += [(wanted.get(place, NONE), given.get(place, NONE)) for place in dict.fromkeys([*wanted, *given])]
    return [one for one, _ in pairs], [two for _, two in pairs]


def _grid(names: list[str], counts: Any) -> list[list[Any]]:
    return [["gold \\ said", *names], *([name, *row] for name, row in zip(names, counts.tolist()))]


def _spread(column: list[float]) -> Numbers:
    with np.errstate(all="ignore"):  # what is not finite stays so
        values = np.asarray(column)
        return {"mean": float(values.mean()), "std": float(values.std()), "min": min(column), "max": max(column)}
