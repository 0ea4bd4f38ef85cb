"""How good answers are, as scikit-learn, scipy and seqeval count it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from alchemy.metrics.answers import Classes, Labels, check, library, span_rows


def class_scores(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """One label for each: accuracy, F1 in its three means, and Matthews' correlation.

    Labels that are neither gold nor said have no F1, and no part in the mean. Where each has one label, the micro mean
    is the accuracy.

    >>> class_scores(["a", "b", "a"], ["a", "b", "b"], ["a", "b"])["accuracy"]
    0.6666666666666666
    """
    return _class_scores(Classes(gold, said, labels))


def _class_scores(found: Classes) -> dict[str, float]:
    metrics = library("sklearn.metrics")
    right = float(metrics.accuracy_score(found.gold, found.said))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a single class, which correlates with nothing
        mcc = float(metrics.matthews_corrcoef(found.gold, found.said))
    f1 = {f"{mean}_f1": row["f1"] for mean, row in found.means.items()}
    return {"accuracy": right, **f1, "micro_f1": right, "mcc": mcc}


def label_scores(
    gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Several labels for each: F1 in its means, and how often all labels of a text are right (`accuracy`)."""
    found = Labels(gold, said, labels)
    right = float(library("sklearn.metrics").accuracy_score(found.gold, found.said))
    return {"accuracy": right, **{f"{mean}_f1": row["f1"] for mean, row in found.means.items()}}


def number_scores(gold: Sequence[float], said: Sequence[float]) -> dict[str, float]:
    """Numbers: mean squared and mean absolute error, and both correlations.

    Without spread there is no correlation, and it counts as 0. A number that is not finite makes all of them NaN.

    >>> number_scores([1.0, 2.0], [2.0, 4.0])["mse"]
    2.5
    """
    check(gold, said)
    if not all(map(math.isfinite, [*gold, *said])):
        return dict.fromkeys(("mse", "mae", "pearson", "spearman"), math.nan)
    metrics, stats = library("sklearn.metrics"), library("scipy.stats")
    errors = {
        "mse": float(metrics.mean_squared_error(gold, said)),
        "mae": float(metrics.mean_absolute_error(gold, said)),
    }
    if len(set(gold)) < 2 or len(set(said)) < 2:
        return {**errors, "pearson": 0.0, "spearman": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that hardly differ
        found = {"pearson": float(stats.pearsonr(gold, said)[0]), "spearman": float(stats.spearmanr(gold, said)[0])}
    return errors | {name: 0.0 if math.isnan(value) else value for name, value in found.items()}


def relation_scores(gold: Sequence[str], said: Sequence[str], labels: Sequence[str], other: str) -> dict[str, float]:
    """Relations as SemEval-2010 task 8 ranks them: `f1` is the mean over relations, both directions of one together.

    `Cause-Effect(e2,e1)` said for `Cause-Effect(e1,e2)` is wrong. The label `other` is no relation: it has no F1 of its
    own, but what is said in its place counts as false. As in the official scorer, the mean is over the relations of
    the gold labels.

    >>> labels = ["Other", "Cause(e1,e2)", "Cause(e2,e1)"]
    >>> found = relation_scores(["Cause(e1,e2)", "Cause(e2,e1)", "Other"], ["Cause(e1,e2)"] * 3, labels, "Other")
    >>> round(found["f1"], 4)
    0.4
    """
    found = Classes(gold, said, labels)
    f1 = [row["f1"] for row in found.relations(other).values()]
    return {"f1": sum(f1) / len(f1) if f1 else 0.0, **_class_scores(found)}


def span_scores(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> dict[str, float]:
    """Rows of BIOES tags: precision, recall and F1 of whole spans."""
    micro = span_rows(gold, said)[1]["micro"]
    return {name: micro[name] for name in ("f1", "precision", "recall")}


def tag_accuracy(gold: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> float:
    """The share of tags that are right; without a word there is none.

    >>> tag_accuracy([["B-A", "I-A", "I-A", "O"]], [["B-A", "I-A", "O", "O"]])
    0.75
    """
    if not any(gold):
        return 0.0
    return float(library("seqeval.metrics").accuracy_score([list(row) for row in gold], [list(row) for row in said]))


def text_scores(gold: Sequence[str], said: Sequence[str]) -> dict[str, float]:
    """Texts: BLEU and chrF as sacrebleu counts them, and BLEU over words as they stand, as papers on tokenised text do.

    >>> text_scores(["a small dog runs here"], ["a small dog runs here"])["bleu"] > 99.9
    True
    """
    check(gold, said)
    sacrebleu = library("sacrebleu")
    return {
        "bleu": float(sacrebleu.corpus_bleu(said, [gold]).score),
        "bleu_words": float(sacrebleu.corpus_bleu(said, [gold], tokenize="none", force=True).score),
        "chrf": float(sacrebleu.corpus_chrf(said, [gold]).score),
    }
