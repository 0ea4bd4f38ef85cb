"""How good labels, numbers and tags are, as scikit-learn, scipy and seqeval count it; texts are scored in `texts`.

The libraries are imported when a score needs them.
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


# -- tables: the numbers of each class, and their means
class ClassScores:
    """One label for each. `names` are the labels that occur, in the order of `labels`; any others stand behind.

    >>> found = ClassScores(["a", "b", "a"], ["a", "b", "b"], ["b", "a", "never"])
    >>> found.rows["b"]["precision"], found.means["macro"]["recall"], found.matrix().tolist()
    (0.5, 0.75, [[1, 0], [1, 1]])
    """

    def __init__(self, gold: Sequence[Hashable], said: Sequence[Hashable], labels: Iterable[Hashable] = ()) -> None:
        check_pairs(gold, said)
        found = {*gold, *said}
        self.names: list[Any] = [label for label in dict.fromkeys(labels) if label in found]
        self.names += sorted(found.difference(self.names), key=str)
        numbers = {name: number for number, name in enumerate(self.names)}
        # numbers are counted many times faster than texts
        self.gold, self.said = (np.fromiter(map(numbers.__getitem__, row), int, len(row)) for row in (gold, said))
        counted = import_package("sklearn.metrics", "this score").precision_recall_fscore_support
        columns = counted(self.gold, self.said, labels=range(len(self.names)), average=None, zero_division=0)
        self.rows = _rows_of(self.names, columns)
        self.means = {"macro": _mean_of(columns), "weighted": _mean_of(columns, weights=columns[-1])}

    def scores(self) -> dict[str, float]:
        """Accuracy, which is the micro mean where each has one label, F1 in its means, and Matthews' correlation."""
        right = float((self.gold == self.said).mean())
        with warnings.catch_warnings(action="ignore"):  # a single class, which correlates with nothing
            mcc = float(import_package("sklearn.metrics", "this score").matthews_corrcoef(self.gold, self.said))
        return {"accuracy": right, **_f1_of(self.means), "micro_f1": right, "mcc": mcc}

    def matrix(self) -> Any:
        """How often each gold label (row) was given each answer (column)."""
        with warnings.catch_warnings(action="ignore"):  # of a single class
            counted = import_package("sklearn.metrics", "this score").confusion_matrix
            return counted(self.gold, self.said, labels=range(len(self.names)))

    def relations(self, other: str) -> dict[str, Row]:
        """Both directions of a relation counted together, as SemEval-2010 task 8 does: `Cause(e1,e2)`, `Cause(e2,e1)`.

        The wrong direction is a wrong answer. Relations that the gold labels do not have are not counted, nor `other`.
        """
        counts, owners = self.matrix(), [name.partition("(")[0] for name in self.names]
        found = {}
        for owner in sorted({owners[number] for number in set(self.gold.tolist())} - {other}):
            own = [number for number, name in enumerate(owners) if name == owner]
            right, wanted, given = counts[own, own].sum(), counts[own].sum(), counts[:, own].sum()
            shares = [right / given if given else 0.0, right / wanted, 2 * right / (wanted + given)]
            found[owner] = _row_of([*shares, wanted])
        return found

    def relation_scores(self, other: str) -> dict[str, float]:
        """The `scores`, and `f1` as SemEval-2010 task 8 ranks relations: the mean over those of the gold labels.

        The label `other` is no relation: it has no F1 of its own, but what is said in its place counts as false.
        """
        f1 = [row["f1"] for row in self.relations(other).values()]
        return {"f1": sum(f1) / len(f1) if f1 else 0.0, **self.scores()}


class LabelScores:
    """Several labels for each, one table of yes and no: `names` are all labels."""

    def __init__(
        self, gold: Sequence[Iterable[Hashable]], said: Sequence[Iterable[Hashable]], labels: Iterable[Hashable] = ()
    ) -> None:
        check_pairs(gold, said)
        found = {name for row in [*gold, *said] for name in row}
        self.names: list[Any] = list(dict.fromkeys([*labels, *sorted(found, key=str)]))
        self.gold, self.said = self._hot(gold), self._hot(said)
        self.rows = _rows_of(self.names, self._counted(None))
        self.means = {mean: _row_of(self._counted(mean)) for mean in ("micro", "macro", "weighted", "samples")}

    def scores(self) -> dict[str, float]:
        """F1 in its means, and how often all labels of one are right (`accuracy`)."""
        return {"accuracy": float((self.gold == self.said).all(1).mean()), **_f1_of(self.means)}

    def matrix(self) -> Any:
        """For each label [[rightly not given, wrongly given], [missed, rightly given]]."""
        columns = range(len(self.names))
        return import_package("sklearn.metrics", "this score").multilabel_confusion_matrix(
            self.gold, self.said, labels=columns
        )

    def _hot(self, rows: Sequence[Iterable[Hashable]]) -> np.ndarray:
        numbers = {name: number for number, name in enumerate(self.names)}
        # one column more, which is never set: a table of a single column would be taken for classes 0 and 1
        hot = np.zeros((len(rows), len(self.names) + 1), bool)
        for place, row in enumerate(rows):
            hot[place, [numbers[name] for name in row]] = True
        return hot

    def _counted(self, mean: str | None) -> Sequence[Any]:
        counted = import_package("sklearn.metrics", "this score").precision_recall_fscore_support
        columns = list(counted(self.gold, self.said, labels=range(len(self.names)), average=mean, zero_division=0))
        return columns if mean is None else [*columns[:3], self.gold.sum()]


class SpanScores:
    """Rows of BIOES tags: the numbers of each type of span. The micro mean is over all spans."""

    def __init__(self, gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> None:
        check_pairs(gold, said)
        # well-formed BIOES is read alike in both modes of seqeval, and the other one takes three times as long
        counted = import_package("seqeval.metrics.sequence_labeling", "this score").precision_recall_fscore_support
        one, two = [list(row) for row in gold], [list(row) for row in said]
        columns = counted(one, two, average=None, zero_division=0)
        types = sorted({tag[2:] for row in [*one, *two] for tag in row if tag != "O"})
        self.rows = _rows_of(types, columns)
        self.means = {"micro": _row_of(counted(one, two, average="micro", zero_division=0))}
        if types:
            self.means |= {"macro": _mean_of(columns), "weighted": _mean_of(columns, weights=columns[-1])}

    def scores(self) -> dict[str, float]:
        """F1, precision and recall of whole spans."""
        return {name: self.means["micro"][name] for name in ("f1", "precision", "recall")}


# -- scores without a table
def accuracy(gold: Sequence[Any], said: Sequence[Any]) -> float:
    """The share of predictions that equal what is true, whatever they are.

    >>> accuracy([1, 0, 1], [1, 1, 1])
    0.6666666666666666
    """
    check_pairs(gold, said)
    return sum(bool(one == two) for one, two in zip(gold, said)) / len(gold)


def number_scores(gold: Sequence[float], said: Sequence[float]) -> dict[str, float]:
    """Numbers: mean squared and mean absolute error, and both correlations.

    Without spread there is no correlation, and it counts as 0. A number that is not finite makes all of them NaN.

    >>> number_scores([1.0, 2.0], [2.0, 4.0])["mse"]
    2.5
    """
    check_pairs(gold, said)
    if not all(map(math.isfinite, [*gold, *said])):
        return dict.fromkeys(("mse", "mae", "pearson", "spearman"), math.nan)
    metrics, stats = import_package("sklearn.metrics", "this score"), import_package("scipy.stats", "this score")
    found = {"mse": metrics.mean_squared_error(gold, said), "mae": metrics.mean_absolute_error(gold, said)}
    spread = len(set(gold)) > 1 and len(set(said)) > 1
    with warnings.catch_warnings(action="ignore"):  # numbers that hardly differ
        found["pearson"] = stats.pearsonr(gold, said)[0] if spread else 0.0
        found["spearman"] = stats.spearmanr(gold, said)[0] if spread else 0.0
    return {name: 0.0 if math.isnan(value) else float(value) for name, value in found.items()}


# -- what they share
def check_pairs(gold: Sequence[Any], said: Sequence[Any]) -> None:
    """An error where answers cannot be compared with what is true, one by one."""
    if len(gold) != len(said):
        raise AlchemyError(f"{len(said)} answers cannot be compared with {len(gold)} gold labels")
    if not gold:
        raise AlchemyError("there are no answers to score", hint="is the data set empty?")


def _rows_of(names: Sequence[str], columns: Sequence[Any]) -> dict[str, Row]:
    """The columns of the library as one row for each name."""
    return {name: _row_of(row) for name, *row in zip(names, *columns, strict=True)}


def _row_of(numbers: Sequence[Any]) -> Row:
    *shares, support = numbers
    return dict(zip(("precision", "recall", "f1", "support"), (*map(float, shares), int(support))))


def _mean_of(columns: Sequence[Any], weights: Any = None) -> Row:
    """The mean of each column over the classes; without any weight it is 0."""
    total = int(columns[-1].sum())
    if weights is not None and not total:
        return _row_of([0.0, 0.0, 0.0, 0])
    return _row_of([*(np.average(column, weights=weights) for column in columns[:3]), total])


def _f1_of(means: dict[str, Row]) -> dict[str, float]:
    return {f"{mean}_f1": row["f1"] for mean, row in means.items()}
