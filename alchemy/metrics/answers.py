"""How good answers are, class by class, as scikit-learn and seqeval count it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from alchemy.errors import AlchemyError

Row = dict[str, float]  # precision, recall, f1, support
NAMES = ("precision", "recall", "f1", "support")


class Classes:
    """One label for each. `names` are the labels that occur, in the order of `labels`; any others stand behind.

    >>> found = Classes(["a", "b", "a"], ["a", "b", "b"], ["b", "a", "never"])
    >>> found.rows["b"]["precision"], found.means["macro"]["recall"], found.matrix().tolist()
    (0.5, 0.75, [[1, 0], [1, 1]])
    """

    def __init__(self, gold: Sequence[str], said: Sequence[str], labels: Iterable[str] = ()) -> None:
        check(gold, said)
        found = {*gold, *said}
        self.names = [label for label in dict.fromkeys(labels) if label in found]
        self.names += sorted(found.difference(self.names))
        numbers = {name: number for number, name in enumerate(self.names)}
        # numbers are counted many times faster than texts
        self.gold, self.said = (np.fromiter(map(numbers.__getitem__, row), int, len(row)) for row in (gold, said))
        counted = library("sklearn.metrics").precision_recall_fscore_support
        columns = counted(self.gold, self.said, labels=range(len(self.names)), average=None, zero_division=0)
        self.rows = rows_of(self.names, columns)
        self.means = {"macro": _mean_of(columns), "weighted": _mean_of(columns, weights=columns[-1])}

    def matrix(self) -> Any:
        """How often each gold label (row) was given each answer (column)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a single class
            return library("sklearn.metrics").confusion_matrix(self.gold, self.said, labels=range(len(self.names)))

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


class Labels:
    """Several labels for each, one table of yes and no: `names` are all labels."""

    def __init__(self, gold: Sequence[Iterable[str]], said: Sequence[Iterable[str]], labels: Iterable[str]) -> None:
        check(gold, said)
        self.names = list(dict.fromkeys([*labels, *sorted({name for row in [*gold, *said] for name in row})]))
        self.gold, self.said = self._hot(gold), self._hot(said)
        self.rows = rows_of(self.names, self._counted(None))
        self.means = {mean: _row_of(self._counted(mean)) for mean in ("micro", "macro", "weighted", "samples")}

    def matrix(self) -> Any:
        """For each label [[rightly not given, wrongly given], [missed, rightly given]]."""
        columns = range(len(self.names))
        return library("sklearn.metrics").multilabel_confusion_matrix(self.gold, self.said, labels=columns)

    def _hot(self, rows: Sequence[Iterable[str]]) -> Any:
        numbers = {name: number for number, name in enumerate(self.names)}
        # one column more, which is never set: a table of a single column would be taken for classes 0 and 1
        hot = np.zeros((len(rows), len(self.names) + 1), bool)
        for place, row in enumerate(rows):
            hot[place, [numbers[name] for name in row]] = True
        return hot

    def _counted(self, mean: str | None) -> Any:
        counted = library("sklearn.metrics").precision_recall_fscore_support
        columns = list(counted(self.gold, self.said, labels=range(len(self.names)), average=mean, zero_division=0))
        return columns if mean is None else [*columns[:3], self.gold.sum()]


def span_rows(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> tuple[dict[str, Row], dict[str, Row]]:
    """Rows of BIOES tags: the numbers of each type of span, and their means."""
    check(gold, said)
    # well-formed BIOES is read alike in both modes of seqeval, and the other one takes three times as long
    counted = library("seqeval.metrics.sequence_labeling").precision_recall_fscore_support
    one, two = [list(row) for row in gold], [list(row) for row in said]
    columns = counted(one, two, average=None, zero_division=0)
    types = sorted({tag[2:] for row in [*one, *two] for tag in row if tag != "O"})
    means = {"micro": _row_of(counted(one, two, average="micro", zero_division=0))}
    if types:
        means |= {"macro": _mean_of(columns), "weighted": _mean_of(columns, weights=columns[-1])}
    return rows_of(types, columns), means


def rows_of(names: Sequence[str], columns: Sequence[Any]) -> dict[str, Row]:
    """The columns of the library as one row for each name."""
    return {name: _row_of(row) for name, *row in zip(names, *columns, strict=True)}


def _row_of(numbers: Sequence[Any]) -> Row:
    *shares, support = numbers
    return dict(zip(NAMES, (*map(float, shares), int(support))))


def _mean_of(columns: Sequence[Any], weights: Any = None) -> Row:
    """The mean of each column over the classes; without any weight it is 0."""
    total = int(columns[-1].sum())
    if weights is not None and not total:
        return _row_of([0.0, 0.0, 0.0, 0])
    return _row_of([*(np.average(column, weights=weights) for column in columns[:3]), total])


def check(gold: Sequence[Any], said: Sequence[Any]) -> None:
    if len(gold) != len(said):
        raise AlchemyError(f"{len(said)} answers cannot be compared with {len(gold)} gold labels")
    if not gold:
        raise AlchemyError("there are no answers to score", hint="is the data set empty?")


def library(name: str, what: str = "scores") -> Any:
    """A module of a library that scores or draws; imported when it is used."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library says of its own imports is nothing to a user
            return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0].replace("sklearn", "scikit-learn")
        hint = "install it with `pip install 'alchemy[score]'`"
        raise AlchemyError(f"{what} need the package {package}", hint=hint) from error
