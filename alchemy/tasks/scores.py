"""How good answers are, as scikit-learn, scipy and seqeval count it."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Sequence
from typing import Any

from alchemy.errors import AlchemyError


def class_scores(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """One label for each: accuracy, F1 in its three means, and Matthews' correlation.

    >>> class_scores(["a", "b", "a"], ["a", "b", "b"], ["a", "b"])["accuracy"]
    0.6666666666666666
    """
    metrics = library("sklearn.metrics")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that nobody has, or nobody said, counts as 0
        f1 = {
            f"{mean}_f1": float(metrics.f1_score(gold, said, labels=labels, average=mean, zero_division=0))
            for mean in ("macro", "micro", "weighted")
        }
        return {
            "accuracy": float(metrics.accuracy_score(gold, said)),
            **f1,
            "mcc": float(metrics.matthews_corrcoef(gold, said)),
        }


def label_scores(
    gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Several labels for each: F1 in its means, and how often all labels of a text are right (`accuracy`)."""
    metrics = library("sklearn.metrics")
    hot = [[[label in row for label in labels] for row in rows] for rows in (gold, said)]
    f1 = {
        f"{mean}_f1": float(metrics.f1_score(*hot, average=mean, zero_division=0))
        for mean in ("macro", "micro", "weighted", "samples")
    }
    return {"accuracy": float(metrics.accuracy_score(*hot)), **f1}


def number_scores(gold: Sequence[float], said: Sequence[float]) -> dict[str, float]:
    """Numbers: mean squared error, and both correlations; without spread there is no correlation, and it counts as 0.

    >>> number_scores([1.0, 2.0], [2.0, 4.0])["mse"]
    2.5
    """
    stats = library("scipy.stats")
    mse = sum((one - other) ** 2 for one, other in zip(gold, said, strict=True)) / len(gold)
    flat = len(set(gold)) < 2 or len(set(said)) < 2
    found = [0.0, 0.0] if flat else [float(stats.pearsonr(gold, said)[0]), float(stats.spearmanr(gold, said)[0])]
    pearson, spearman = (0.0 if math.isnan(value) else value for value in found)
    return {"mse": mse, "pearson": pearson, "spearman": spearman}


def relation_scores(gold: Sequence[str], said: Sequence[str], labels: Sequence[str], other: str) -> dict[str, float]:
    """Relations as SemEval-2010 task 8 ranks them: `f1` is the mean over relations, both directions of one together.

    `Cause-Effect(e2,e1)` said for `Cause-Effect(e1,e2)` is wrong. The label `other` is no relation: it has no F1 of its
    own, but what is said in its place counts as false.

    >>> labels = ["Other", "Cause(e1,e2)", "Cause(e2,e1)"]
    >>> found = relation_scores(["Cause(e1,e2)", "Cause(e2,e1)", "Other"], ["Cause(e1,e2)"] * 3, labels, "Other")
    >>> round(found["f1"], 4)
    0.4
    """
    names = sorted({label.partition("(")[0] for label in labels if label != other})
    f1 = []
    for name in names:
        right = sum(one == two and one.partition("(")[0] == name for one, two in zip(gold, said, strict=True))
        wanted = sum(label.partition("(")[0] == name for label in gold)
        given = sum(label.partition("(")[0] == name for label in said)
        f1.append(2 * right / (wanted + given) if wanted + given else 0.0)
    return {"f1": sum(f1) / len(f1), **class_scores(gold, said, labels)}


def span_scores(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> dict[str, float]:
    """Rows of BIOES tags: precision, recall and F1 of whole spans, and the share of right tags."""
    metrics, scheme = library("seqeval.metrics"), library("seqeval.scheme").IOBES
    one, two = [list(row) for row in gold], [list(row) for row in said]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # texts without spans
        strict = {"mode": "strict", "scheme": scheme, "zero_division": 0}
        return {
            "f1": float(metrics.f1_score(one, two, **strict)),
            "precision": float(metrics.precision_score(one, two, **strict)),
            "recall": float(metrics.recall_score(one, two, **strict)),
            "accuracy": float(metrics.accuracy_score(one, two)),
        }


def library(name: str) -> Any:
    """A module of a library that scores; imported when it is used."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AlchemyError(
            f"scores need the package {name.partition('.')[0]}", hint="install it with `pip install 'alchemy[score]'`"
        ) from error
