"""Metrics equal those of the libraries for any predictions; edge cases are defined."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from seqeval import metrics as seqeval
from seqeval.scheme import IOBES
from sklearn import metrics as sklearn

from alchemy.data.tag_schemes import Scheme
from alchemy.errors import AlchemyError
from alchemy.metrics.bleu_chrf import text_scores
from alchemy.metrics.scores import (
    ClassScores,
    LabelScores,
    SpanScores,
    import_package,
    number_scores,
)
from alchemy.tasks import Tagging

LABELS = ["体育", "b", "c", "never"]
MEANS = ("macro", "micro", "weighted")
close = pytest.approx
few = settings(max_examples=40, deadline=None)
pairs = st.lists(st.tuples(st.sampled_from(LABELS[:3]), st.sampled_from(LABELS[:3])), min_size=1, max_size=30)
several = st.lists(st.sampled_from(LABELS), unique=True)


def columns(rows: list[Any]) -> tuple[list[Any], list[Any]]:
    return [one for one, _ in rows], [two for _, two in rows]


@few
@given(pairs)
def test_classes_are_counted_as_scikit_learn_does(rows: list[tuple[str, str]]) -> None:
    gold, said = columns(rows)
    table = ClassScores(gold, said, LABELS)
    found = table.scores()
    assert found["accuracy"] == close(sklearn.accuracy_score(gold, said))
    for mean in MEANS:
        assert found[f"{mean}_f1"] == close(sklearn.f1_score(gold, said, average=mean, zero_division=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["mcc"] == close(sklearn.matthews_corrcoef(gold, said))
        report = sklearn.classification_report(gold, said, output_dict=True, zero_division=0)
        matrix = sklearn.confusion_matrix(gold, said, labels=table.names)
    for name, row in table.rows.items():
        assert list(row.values()) == close(list(report[name].values()))
    for mean, row in table.means.items():
        assert list(row.values()) == close(list(report[f"{mean} avg"].values()))
    assert table.matrix().tolist() == matrix.tolist()


@few
@given(st.lists(st.tuples(several, several), min_size=1, max_size=20), st.sampled_from([LABELS, [*LABELS, "more"]]))
def test_several_labels_are_counted_as_scikit_learn_does(rows: list[Any], labels: list[str]) -> None:
    gold, said = columns(rows)
    hot = [[[label in row for label in labels] for row in side] for side in (gold, said)]
    table = LabelScores(gold, said, labels)
    found = table.scores()
    assert found["accuracy"] == close(sklearn.accuracy_score(*hot))
    for mean in (*MEANS, "samples"):
        assert found[f"{mean}_f1"] == close(sklearn.f1_score(*hot, average=mean, zero_division=0))
    expected = sklearn.precision_recall_fscore_support(*hot, average=None, zero_division=0)
    for number, row in enumerate(table.rows.values()):
        assert list(row.values()) == close([column[number] for column in expected])


def test_a_single_label_of_several_is_still_one_label() -> None:
    found = LabelScores([["a"], [], ["a"]], [["a"], ["a"], []], ["a"]).scores()
    assert found["macro_f1"] == found["micro_f1"] == 0.5
    assert found["accuracy"] == close(1 / 3)


tags = st.lists(st.sampled_from(["B-人", "I-人", "B-B", "I-B", "O"]), min_size=1, max_size=8)


@few
@given(st.lists(st.tuples(tags, tags), min_size=1, max_size=10))
def test_spans_are_counted_as_strict_seqeval_does(rows: list[Any]) -> None:
    own, ended = Scheme("BIO", begins=True), Scheme("BIOES")
    size = max(len(row) for pair in rows for row in pair)
    gold, said = columns([[ended.tags(own.spans(row), size) for row in pair] for pair in rows])
    strict = {"mode": "strict", "scheme": IOBES, "zero_division": 0}
    table = SpanScores(gold, said)
    found, types, means = table.scores(), table.rows, table.means
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [score(gold, said, **strict) for score in (seqeval.precision_score, seqeval.recall_score)]
        report = seqeval.classification_report(gold, said, output_dict=True, **strict) if types else {}
    assert [found["precision"], found["recall"]] == close(expected)
    for name, row in [*types.items(), *((f"{mean} avg", row) for mean, row in means.items() if types)]:
        assert list(row.values()) == close(list(report[name].values()))


@few
@given(st.lists(st.tuples(tags, tags), min_size=1, max_size=10))
def test_tags_are_counted_one_by_one(rows: list[Any]) -> None:
    task = object.__new__(Tagging)
    task.scheme = Scheme("BIO", begins=True)
    rows = [(gold[: len(said)], said[: len(gold)]) for gold, said in rows]
    found = task.scores([{"tags": gold, "pred": said} for gold, said in rows])
    assert found["accuracy"] == close(seqeval.accuracy_score(*columns(rows)))
    assert task.scores([{"tags": ["O"], "pred": ["O"]}, {"tags": [], "pred": []}])["accuracy"] == 1.0
    assert task.scores([{"tags": [], "pred": []}])["accuracy"] == 0.0


numbers = st.floats(-100, 100).map(lambda value: round(value, 3))


@few
@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=20))
def test_numbers_are_compared_as_the_libraries_do(rows: list[tuple[float, float]]) -> None:
    gold, said = columns(rows)
    found = number_scores(gold, said)
    assert found["mse"] == close(sklearn.mean_squared_error(gold, said))
    assert found["mae"] == close(sklearn.mean_absolute_error(gold, said))
    if len(set(gold)) > 1 and len(set(said)) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert found["pearson"] == close(stats.pearsonr(gold, said)[0])
            assert found["spearman"] == close(stats.spearmanr(gold, said)[0])


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_numbers_that_are_not_finite_give_no_score(wrong: float) -> None:
    assert all(map(math.isnan, number_scores([1.0, 2.0], [1.0, wrong]).values()))
    assert number_scores([1.0, 2.0], [3.0, 3.0]) == {"mse": 2.5, "mae": 1.5, "pearson": 0.0, "spearman": 0.0}


def relation(name: str, direction: int) -> str:
    return name if not direction else f"{name}({'e1,e2' if direction == 1 else 'e2,e1'})"


def test_relations_are_ranked_as_semeval_does() -> None:
    """Computed by hand, following the definition of the official scorer.

    A: 4 gold, 5 predicted (one for Other), 2 right, one in the wrong direction: P 2/5, R 2/4, F1 4/9.
    B: 2 gold, 1 predicted and right: P 1, R 1/2, F1 2/3. C: 1 gold, never predicted: 0. D: predicted once, but not a
    gold label: the official scorer does not count it. The mean of three is (4/9 + 2/3 + 0) / 3.
    """
    rows = [("A1", "A1"), ("A2", "A2"), ("A1", "A2"), ("A2", "O0"), ("O0", "A1"), ("B1", "B1"), ("B2", "D1")]
    rows += [("C1", "A1"), ("O0", "O0")]
    gold, said = columns([[relation(name[0], int(name[1])) for name in row] for row in rows])
    table = ClassScores(gold, said)
    found = table.relations("O")
    assert {name: row["f1"] for name, row in found.items()} == close({"A": 4 / 9, "B": 2 / 3, "C": 0.0})
    assert found["A"] == close({"precision": 2 / 5, "recall": 2 / 4, "f1": 4 / 9, "support": 4})
    scores = table.relation_scores("O")
    assert scores["f1"] == close((4 / 9 + 2 / 3) / 3)
    assert scores["accuracy"] == close(4 / 9)
    assert ClassScores(["O"], ["A(e1,e2)"]).relation_scores("O")["f1"] == 0.0


def test_one_class_and_labels_that_nobody_said() -> None:
    assert ClassScores(["a", "a"], ["a", "a"], ["a", "b"]).scores() == {
        "accuracy": 1.0, "macro_f1": 1.0, "weighted_f1": 1.0, "micro_f1": 1.0, "mcc": 0.0,
    }  # fmt: skip
    assert ClassScores(["a", "b"], ["a", "a"], ["a", "b"]).scores()["macro_f1"] == close(1 / 3)
    assert SpanScores([["S-A", "O"]], [["O", "O"]]).scores() == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
    assert LabelScores([[], []], [[], []], ["a", "b"]).scores()["macro_f1"] == 0.0


@pytest.mark.parametrize("score", [number_scores, text_scores, SpanScores, ClassScores, LabelScores])
def test_no_answers_and_too_few_are_told(score: Any) -> None:
    with pytest.raises(AlchemyError, match="there are no predictions to score"):
        score([], [])
    with pytest.raises(AlchemyError, match="cannot compare 1 predictions with 0 gold labels"):
        score([], ["a"])


def test_classes_are_counted_once_for_all_means(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    real = sklearn.precision_recall_fscore_support
    monkeypatch.setattr(sklearn, "precision_recall_fscore_support", lambda *a, **k: counted.append(a) or real(*a, **k))
    assert ClassScores(["a", "b"] * 1000, ["a", "a"] * 1000, ["a", "b"]).scores()["accuracy"] == 0.5
    assert len(counted) == 1
    assert counted[0][0].dtype == int  # text is many times slower


def test_a_missing_library_is_named() -> None:
    with pytest.raises(AlchemyError, match="a score needs the package nosuch; pip install nosuch"):
        import_package("nosuch.metrics", "a score")
