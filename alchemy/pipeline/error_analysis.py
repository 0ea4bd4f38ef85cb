"""Compare predictions with gold values: per-class metrics, confusions and the hardest examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from alchemy.data.tag_schemes import Scheme
from alchemy.metrics.scores import ClassScores, LabelScores, SpanScores
from alchemy.metrics.segmentation import MaskScores
from alchemy.pipeline.plots import draw_confusion, draw_numbers

NONE = "O"  # no span, as in tag schemes

Rows = list[dict[str, Any]]


@dataclass
class Analysis:
    """The result of comparing predictions with gold values."""

    tables: dict[str, dict[str, dict[str, float]]]  # metrics by table title, row and column
    hardest: Rows  # worst predictions first
    grid: list[list[Any]] = field(default_factory=list)  # confusion matrix with a header row and a name per row
    picture: str = ""  # name of the plot; `draw` takes the grid's file name and holds no references to rows
    draw: Callable[[str], bytes] | None = None
    confusion: tuple[Sequence[str], np.ndarray] | None = None  # names of the classes, and counts by gold and prediction
    are_spans: bool = False  # whether `missed` and `false` of the hardest rows are spans of their tokens


@dataclass
class PredictionRows:
    """Rows of an evaluation, the names of their gold and prediction fields, and how to interpret them."""

    rows: Rows
    gold: str
    pred: str
    labels: Sequence[str] = ()
    scheme: str = "BIO"
    other: str = ""

    def columns(self, read: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        """Return the gold values and the predictions."""
        return [read(row[self.gold]) for row in self.rows], [read(row[self.pred]) for row in self.rows]

    def name(self, label: object) -> str:
        """Return the name of a label; an integer is an index into the labels."""
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(self.labels):
            return self.labels[int(label)]
        return str(label)


def _analyze_classes(data: PredictionRows) -> Analysis:
    gold, predicted = data.columns(data.name)
    found = ClassScores(gold, predicted, data.labels)
    tables = {"classes": found.rows, "means": found.means}
    if data.other:
        tables["relations"] = found.relations(data.other)
    wrong = [row for row, one, two in zip(data.rows, gold, predicted) if one != two]
    return _with_confusions(tables, sorted(wrong, key=lambda row: _gold_probability(row, data)), found)


def _analyze_labels(data: PredictionRows) -> Analysis:
    gold, predicted = data.columns(lambda row: sorted(set(map(data.name, row))))
    found = LabelScores(gold, predicted, data.labels)
    wrong = _incorrect_rows(data.rows, gold, predicted)
    wrong.sort(key=lambda row: -_label_loss(row))
    cells = found.matrix()[:, [1, 0, 1, 0], [1, 1, 0, 0]].tolist()
    grid = [["label", "right", "false", "missed", "neither"], *([name, *row] for name, row in zip(found.names, cells))]
    return Analysis({"labels": found.rows, "means": found.means}, wrong, grid)


def _analyze_tags(data: PredictionRows) -> Analysis:
    scheme = Scheme(data.scheme, begins=True)
    tags = data.columns(lambda row: list(map(data.name, row)))
    found = SpanScores(*([scheme.in_bioes(row) for row in column] for column in tags))
    gold, predicted = ([scheme.spans(row) for row in column] for column in tags)
    wrong = _incorrect_rows(data.rows, gold, predicted)
    wrong.sort(key=lambda row: -len(row["missed"]) - len(row["false"]))
    tables = {"spans": found.rows, "means": found.means}
    if not found.rows:
        return Analysis(tables, wrong)
    analysis = _with_confusions(tables, wrong, ClassScores(*_match_types(gold, predicted), [*found.rows, NONE]))
    analysis.are_spans = all("tokens" in row for row in wrong)
    return analysis


def _analyze_words(data: PredictionRows) -> Analysis:
    """Analyze tags that encode no spans; only words whose gold tag is a label are scored."""
    known, hardest, pairs = set(data.labels), [], []
    for row in data.rows:
        own = [pair for pair in zip(row[data.gold], row[data.pred]) if pair[0] in known]
        pairs += own
        wrong = sum(one != two for one, two in own)
        hardest += [{**row, "wrong": wrong, "scored": len(own)}] if wrong else []
    if not pairs:
        return Analysis({}, hardest)
    hardest.sort(key=lambda row: -row["wrong"] / row["scored"])
    found = ClassScores([one for one, _ in pairs], [two for _, two in pairs], data.labels)
    return _with_confusions({"tags": found.rows, "means": found.means}, hardest, found)


def _analyze_numbers(data: PredictionRows) -> Analysis:
    gold, predicted = data.columns(float)
    residuals = [two - one for one, two in zip(gold, predicted)]
    columns = {"gold": gold, "said": predicted, "residual": residuals}
    rows = [{**row, "residual": residual} for row, residual in zip(data.rows, residuals)]
    rows.sort(key=lambda row: math.inf if math.isnan(row["residual"]) else abs(row["residual"]), reverse=True)
    found = Analysis({"numbers": {name: _summarize(column) for name, column in columns.items()}}, rows)
    finite = [pair for pair in zip(gold, predicted) if all(map(math.isfinite, pair))]
    if finite:
        found.picture, found.draw = "numbers", lambda legend: draw_numbers(*zip(*finite))
    return found


def _analyze_masks(data: PredictionRows) -> Analysis:
    """Analyze rows with the confusion `counts` of the pixels and the `iou` of each image."""
    names = list(data.labels)
    found = MaskScores([row["counts"] for row in data.rows], names)
    grid = [["gold \\ predicted", *names], *([name, *row] for name, row in zip(names, found.total.tolist()))]
    hardest = sorted(data.rows, key=lambda row: row["iou"])
    draw = partial(draw_confusion, names, found.total)
    return Analysis({"classes": found.rows()}, hardest, grid, "confusion", draw, (names, found.total))


KINDS: dict[str, Callable[[PredictionRows], Analysis]] = {
    "classes": _analyze_classes, "labels": _analyze_labels, "tags": _analyze_tags, "words": _analyze_words,
    "numbers": _analyze_numbers, "masks": _analyze_masks,
}  # fmt: skip


def kind_of(gold: str, pred: object) -> str:
    """Return the kind of prediction, inferred from the name of the gold field and one prediction.

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
    grid = [["gold \\ predicted", *names], *([name, *row] for name, row in zip(names, counts.tolist()))]
    return Analysis(tables, hardest, grid, "confusion", partial(draw_confusion, names, counts), (names, counts))


def _incorrect_rows(rows: Rows, gold: list[list[Any]], predicted: list[list[Any]]) -> Rows:
    """Return the incorrect rows, each with its missed and incorrectly predicted items."""
    return [
        {**row, "missed": _difference(one, two), "false": _difference(two, one)}
        for row, one, two in zip(rows, gold, predicted)
        if one != two
    ]


def describe_spans(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the sentence of an incorrect row of tags, and what was missed and falsely predicted, for people.

    >>> describe_spans({"tokens": ["in", "New", "York"], "missed": [(1, 3, "LOC")], "false": []})
    {'text': 'in New York', 'missed': 'New York (LOC)', 'false': ''}
    """
    tokens = list(map(str, row["tokens"]))
    gap = "" if all(len(token) == 1 for token in tokens) else " "  # characters, as in Chinese
    text = {"text": gap.join(tokens)}
    for name in ("missed", "false"):
        text[name] = ", ".join(f"{gap.join(tokens[start:end])} ({kind})" for start, end, kind in row[name])
    return text


def _difference(one: Iterable[Any], other: list[Any]) -> list[Any]:
    return [item for item in one if item not in other]


def _gold_probability(row: Mapping[str, Any], data: PredictionRows) -> float:
    """Return the probability of the gold label, or the upper bound 1 - `prob` if it is not known."""
    probs, gold = row.get("probs"), row[data.gold]
    if isinstance(row.get("loss"), float):
        chance = math.exp(-row["loss"])
    elif isinstance(probs, Mapping):
        chance = probs.get(data.name(gold), 0.0)
    elif probs is not None and isinstance(gold, int):
        chance = probs[gold]
    else:
        chance = 1.0 - row.get("prob", 0.0)
    return 0.0 if math.isnan(chance) else float(chance)


def _label_loss(row: Mapping[str, Any]) -> float:
    """Return the loss over the incorrect labels, or the number of incorrect labels if there are no probabilities."""
    probs = row.get("probs")
    if not isinstance(probs, Mapping):
        return len(row["missed"]) + len(row["false"])
    chances = [probs.get(label, 0.0) for label in row["missed"]] + [
        1.0 - probs.get(label, 0.0) for label in row["false"]
    ]
    return -sum(math.log(max(chance, 1e-12)) for chance in chances if not math.isnan(chance))


def _match_types(gold: list[Any], predicted: list[Any]) -> tuple[list[str], list[str]]:
    """Return the gold and predicted types of all spans, matched by position."""
    pairs: list[tuple[str, str]] = []
    for one, two in zip(gold, predicted):
        wanted, given = ({(start, end): kind for start, end, kind in spans} for spans in (one, two))
        pairs += [(wanted.get(place, NONE), given.get(place, NONE)) for place in dict.fromkeys([*wanted, *given])]
    return [one for one, _ in pairs], [two for _, two in pairs]


def _summarize(column: list[float]) -> dict[str, float]:
    with np.errstate(all="ignore"):  # non-finite values propagate
        values = np.asarray(column)
        return {"mean": float(values.mean()), "std": float(values.std()), "min": min(column), "max": max(column)}
