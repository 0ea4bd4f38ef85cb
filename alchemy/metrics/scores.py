"""Scores for labels, numbers and tags, computed with scikit-learn, SciPy and seqeval.

The libraries are only imported when a score needs them. For text scores, see `bleu_chrf`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package

Row = dict[str, float]  # precision, recall, f1, support


# -- tables: scores per class, and their averages
class ClassScores:
    """Scores of single-label predictions. `names` lists the labels that occur, in the order of `labels`, then others.

    >>> found = ClassScores(["a", "b", "a"], ["a", "b", "b"], ["b", "a", "never"])
    >>> found.rows["b"]["precision"], found.means["macro"]["recall"], found.matrix().tolist()
    (0.5, 0.75, [[1, 0], [1, 1]])
    """

    def __init__(
        self, gold: Sequence[Hashable], predicted: Sequence[Hashable], labels: Iterable[Hashable] = ()
    ) -> None:
        check_pairs(gold, predicted)
        found = {*gold, *predicted}
        self.names: list[Any] = [label for label in dict.fromkeys(labels) if label in found]
        self.names += sorted(found.difference(self.names), key=str)
        numbers = {name: number for number, name in enumerate(self.names)}
        # integers are compared much faster than strings
        self.gold, self.predicted = (
            np.fromiter(map(numbers.__getitem__, row), int, len(row)) for row in (gold, predicted)
        )
        compute = import_package("sklearn.metrics", "this score").precision_recall_fscore_support
        columns = compute(self.gold, self.predicted, labels=range(len(self.names)), average=None, zero_division=0)
        self.rows = _to_rows(self.names, columns)
        self.means = {"macro": _average(columns), "weighted": _average(columns, weights=columns[-1])}

    def scores(self) -> dict[str, float]:
        """Return accuracy, the F1 averages, and the Matthews correlation; micro F1 equals accuracy here."""
        right = float((self.gold == self.predicted).mean())
        with warnings.catch_warnings(action="ignore"):  # a single class has no correlation
            mcc = float(import_package("sklearn.metrics", "this score").matthews_corrcoef(self.gold, self.predicted))
        return {"accuracy": right, **_f1_averages(self.means), "micro_f1": right, "mcc": mcc}

    def matrix(self) -> Any:
        """Return the confusion matrix: gold labels in rows, predictions in columns."""
        with warnings.catch_warnings(action="ignore"):  # scikit-learn warns about a single class
            compute = import_package("sklearn.metrics", "this score").confusion_matrix
            return compute(self.gold, self.predicted, labels=range(len(self.names)))

    def relations(self, other: str) -> dict[str, Row]:
        """Return scores per relation, with both directions combined: `Cause(e1,e2)`, `Cause(e2,e1)`.

        As in SemEval-2010 task 8, the wrong direction is an error. Omits `other` and any relation without gold labels.
        """
        counts, owners = self.matrix(), [name.partition("(")[0] for name in self.names]
        found = {}
        for owner in sorted({owners[number] for number in set(self.gold.tolist())} - {other}):
            own = [number for number, name in enumerate(owners) if name == owner]
            right, wanted, given = counts[own, own].sum(), counts[own].sum(), counts[:, own].sum()
            shares = [right / given if given else 0.0, right / wanted, 2 * right / (wanted + given)]
            found[owner] = _to_row([*shares, wanted])
        return found

    def relation_scores(self, other: str) -> dict[str, float]:
        """Return `scores`, and `f1` as in SemEval-2010 task 8: the mean over the relations of the gold labels.

        `other` is not a relation and has no F1, but a relation predicted for it counts as a false positive.
        """
        f1 = [row["f1"] for row in self.relations(other).values()]
        return {"f1": sum(f1) / len(f1) if f1 else 0.0, **self.scores()}


class LabelScores:
    """Scores of multi-label predictions. `names` lists all labels."""

    def __init__(
        self,
        gold: Sequence[Iterable[Hashable]],
        predicted: Sequence[Iterable[Hashable]],
        labels: Iterable[Hashable] = (),
    ) -> None:
        check_pairs(gold, predicted)
        found = {name for row in [*gold, *predicted] for name in row}
        self.names: list[Any] = list(dict.fromkeys([*labels, *sorted(found, key=str)]))
        self.gold, self.predicted = self._multi_hot(gold), self._multi_hot(predicted)
        self.rows = _to_rows(self.names, self._compute(None))
        self.means = {mean: _to_row(self._compute(mean)) for mean in ("micro", "macro", "weighted", "samples")}

    def scores(self) -> dict[str, float]:
        """Return the F1 averages, and the exact-match ratio as `accuracy`."""
        return {"accuracy": float((self.gold == self.predicted).all(1).mean()), **_f1_averages(self.means)}

    def matrix(self) -> Any:
        """Return [[true negatives, false positives], [false negatives, true positives]] per label."""
        columns = range(len(self.names))
        return import_package("sklearn.metrics", "this score").multilabel_confusion_matrix(
            self.gold, self.predicted, labels=columns
        )

    def _multi_hot(self, rows: Sequence[Iterable[Hashable]]) -> np.ndarray:
        numbers = {name: number for number, name in enumerate(self.names)}
        # an extra column that is never set: scikit-learn treats a single column as classes 0 and 1
        hot = np.zeros((len(rows), len(self.names) + 1), bool)
        for place, row in enumerate(rows):
            hot[place, [numbers[name] for name in row]] = True
        return hot

    def _compute(self, mean: str | None) -> Sequence[Any]:
        compute = import_package("sklearn.metrics", "this score").precision_recall_fscore_support
        columns = list(compute(self.gold, self.predicted, labels=range(len(self.names)), average=mean, zero_division=0))
        return columns if mean is None else [*columns[:3], self.gold.sum()]


class SpanScores:
    """Scores of BIOES tag sequences per span type. The micro average is over all spans."""

    def __init__(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
        check_pairs(gold, predicted)
        # both modes of seqeval agree on well-formed BIOES; the strict mode takes three times as long
        compute = import_package("seqeval.metrics.sequence_labeling", "this score").precision_recall_fscore_support
        one, two = [list(row) for row in gold], [list(row) for row in predicted]
        columns = compute(one, two, average=None, zero_division=0)
        types = sorted({tag[2:] for row in [*one, *two] for tag in row if tag != "O"})
        self.rows = _to_rows(types, columns)
        self.means = {"micro": _to_row(compute(one, two, average="micro", zero_division=0))}
        if types:
            self.means |= {"macro": _average(columns), "weighted": _average(columns, weights=columns[-1])}

    def scores(self) -> dict[str, float]:
        """Return F1, precision and recall of whole spans."""
        return {name: self.means["micro"][name] for name in ("f1", "precision", "recall")}


# -- scores without a table
def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    """Return the fraction of predictions that equal the gold values.

    >>> accuracy([1, 0, 1], [1, 1, 1])
    0.6666666666666666
    """
    check_pairs(gold, predicted)
    return sum(bool(one == two) for one, two in zip(gold, predicted)) / len(gold)


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return the mean squared and mean absolute errors, and the Pearson and Spearman correlations.

    The correlation is 0 if either sequence is constant. If any value is not finite, all scores are NaN.

    >>> number_scores([1.0, 2.0], [2.0, 4.0])["mse"]
    2.5
    """
    check_pairs(gold, predicted)
    if not all(map(math.isfinite, [*gold, *predicted])):
        return dict.fromkeys(("mse", "mae", "pearson", "spearman"), math.nan)
    metrics, stats = import_package("sklearn.metrics", "this score"), import_package("scipy.stats", "this score")
    found = {"mse": metrics.mean_squared_error(gold, predicted), "mae": metrics.mean_absolute_error(gold, predicted)}
    spread = len(set(gold)) > 1 and len(set(predicted)) > 1
    with warnings.catch_warnings(action="ignore"):  # SciPy warns about nearly constant values
        found["pearson"] = stats.pearsonr(gold, predicted)[0] if spread else 0.0
        found["spearman"] = stats.spearmanr(gold, predicted)[0] if spread else 0.0
    return {name: 0.0 if math.isnan(value) else float(value) for name, value in found.items()}


# -- helpers
def check_pairs(gold: Sequence[Any], predicted: Sequence[Any]) -> None:
    """Raise an error if predictions and gold labels cannot be paired."""
    if len(gold) != len(predicted):
        raise AlchemyError(f"cannot compare {len(predicted)} predictions with {len(gold)} gold labels")
    if not gold:
        raise AlchemyError("there are no predictions to score", hint="is the dataset empty?")


def _to_rows(names: Sequence[str], columns: Sequence[Any]) -> dict[str, Row]:
    """Convert the columns returned by the library to one row per name."""
    return {name: _to_row(row) for name, *row in zip(names, *columns, strict=True)}


def _to_row(numbers: Sequence[Any]) -> Row:
    *shares, support = numbers
    return dict(zip(("precision", "recall", "f1", "support"), (*map(float, shares), int(support))))


def _average(columns: Sequence[Any], weights: Any = None) -> Row:
    """Return the average of each column over the classes; 0 if all weights are 0."""
    total = int(columns[-1].sum())
    if weights is not None and not total:
        return _to_row([0.0, 0.0, 0.0, 0])
    return _to_row([*(np.average(column, weights=weights) for column in columns[:3]), total])


def _f1_averages(means: dict[str, Row]) -> dict[str, float]:
    return {f"{mean}_f1": row["f1"] for mean, row in means.items()}
