"""Every configurable metric equals that of its library, on collected rows or on rows passed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from scipy import stats
from seqeval import metrics as seqeval
from sklearn import metrics as sklearn

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.pipeline import EvalPipeline
from alchemy.pipeline.eval import BLEU, F1, MCC, Accuracy, Pearson, SpanF1
from alchemy.pipeline.output import Collect
from alchemy.registry import build
from alchemy.runner import run_task
from tests.tasks.texts import config

CLASSES = [("体育", "体育"), ("b", "c"), ("b", "b"), ("c", "c"), ("c", "体育"), ("c", "b")]
NUMBERS = [(1.0, 1.5), (2.0, 1.0), (3.5, 3.0), (-1.0, 0.0)]
TEXTS = [("the small dog runs in the park", "the dog runs in the park"), ("it is raining today", "it is raining")]
TAGS = [(["B-A", "I-A", "O", "B-B"], ["B-A", "I-A", "O", "O"]), (["O", "B-B"], ["B-B", "I-B"]), (["B-A"], ["B-A"])]
SEVERAL = [(["a"], ["b", "a"]), (["b", "c"], ["c"]), ([], ["a"]), (["c"], ["c"])]


def f1(average: str) -> Callable[[Any, Any], float]:
    return lambda gold, said: sklearn.f1_score(gold, said, average=average, zero_division=0)


def hot(score: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """A score of multi-label tables, for lists of labels."""
    return lambda gold, said: score(*([[name in row for name in "abc"] for row in side] for side in (gold, said)))


SCORES: list[tuple[str, dict[str, Any], list[tuple[Any, Any]], str, Callable[[Any, Any], float]]] = [
    ("Accuracy", {}, CLASSES, "accuracy", sklearn.accuracy_score),
    ("F1", {}, CLASSES, "macro_f1", f1("macro")),
    ("F1", {"average": "micro"}, CLASSES, "micro_f1", f1("micro")),
    ("F1", {"average": "weighted"}, CLASSES, "weighted_f1", f1("weighted")),
    ("F1", {}, SEVERAL, "macro_f1", hot(f1("macro"))),
    ("F1", {"average": "micro"}, SEVERAL, "micro_f1", hot(f1("micro"))),
    ("MCC", {}, CLASSES, "mcc", sklearn.matthews_corrcoef),
    ("MSE", {}, NUMBERS, "mse", sklearn.mean_squared_error),
    ("MAE", {}, NUMBERS, "mae", sklearn.mean_absolute_error),
    ("Pearson", {}, NUMBERS, "pearson", lambda gold, said: stats.pearsonr(gold, said)[0]),
    ("Spearman", {}, NUMBERS, "spearman", lambda gold, said: stats.spearmanr(gold, said)[0]),
    ("BLEU", {}, TEXTS, "bleu", lambda gold, said: sacrebleu.corpus_bleu(said, [gold]).score),
    (
        "BLEU",
        {"tokenize": "char"},
        TEXTS,
        "bleu",
        lambda gold, said: sacrebleu.corpus_bleu(said, [gold], tokenize="char").score,
    ),
    ("ChrF", {}, TEXTS, "chrf", lambda gold, said: sacrebleu.corpus_chrf(said, [gold]).score),
    ("SpanF1", {"label": "label"}, TAGS, "span_f1", seqeval.f1_score),
]


@pytest.mark.parametrize(("part", "options", "pairs", "name", "library"), SCORES)
def test_a_score_is_that_of_its_library(
    run: Run, part: str, options: dict[str, Any], pairs: list[tuple[Any, Any]], name: str, library: Any
) -> None:
    rows = [{"label": gold, "pred": said, "id": number} for number, (gold, said) in enumerate(pairs)]
    expected = pytest.approx(library([gold for gold, _ in pairs], [said for _, said in pairs]))
    pipe = build(EvalPipeline, {"type": f"alchemy.pipeline.eval.{part}", **options})
    Collect("preds")(rows[:2], {})
    Collect("preds")(rows[2:], {})
    more = {"bleu_tokenizer": options.get("tokenize", "13a")} if part == "BLEU" else {}
    assert pipe("dev", loss=1.0) == {"loss": 1.0, name: expected, "preds": rows, **more}
    found = pipe("dev", preds=rows)  # as a task passes them on
    assert type(found[name]) is float and found[name] == expected
    renamed = build(
        EvalPipeline,
        {"type": f"alchemy.pipeline.eval.{part}", **options, "pred": "a", "label": "b", "varname": "own", "name": "c"},
    )
    own = [{"a": said, "b": gold} for gold, said in pairs]
    assert renamed("dev", own=own)["c"] == expected


def test_several_scores_share_the_rows_that_were_collected(run: Run) -> None:
    rows = [{"pred": 1, "label": 1}, {"pred": 0, "label": 1}, {"pred": 0, "label": 0}]
    Collect("mine")(rows, {})
    pipes = [Accuracy("mine"), F1("mine"), MCC("mine")]
    found: dict[str, Any] = {}
    for pipe in pipes:
        pipe.begin_eval("test")
    Collect("mine")(rows, {})
    for pipe in pipes:
        found = pipe("dev", **found)
    assert found["preds"] is found["mine"] and len(found["preds"]) == 3
    assert found["accuracy"] == found["macro_f1"] == pytest.approx(2 / 3) and found["mcc"] == 0.5
    assert not run.symbols.contains_global("mine")


@pytest.mark.parametrize(
    ("kind", "table", "own"),
    [
        ("classes", {"type": "alchemy.pipeline.eval.MCC"}, "mcc"),
        ("relation", {"type": "alchemy.pipeline.eval.F1", "average": "weighted"}, "weighted_f1"),
        ("tagging", {"type": "alchemy.pipeline.eval.SpanF1", "scheme": "BMES"}, "f1"),
    ],
)
def test_rows_of_a_task_on_texts_are_scored_as_the_task_does(
    kind: str, table: dict[str, Any], own: str, tmp_path: Path
) -> None:
    cfg = config(tmp_path, kind, evalpipes=[{**table, "name": "same"}])
    cfg["sched"]["epochs"] = 1
    scores = run_task(cfg, raise_errors=True).ret
    assert scores["same"] == pytest.approx(scores[own])


@pytest.mark.parametrize(
    ("pipe", "row", "message"),
    [
        (
            MCC(),
            {"pred": [1], "label": 0},
            r"MCC cannot compare 'pred' with 'label', for example \[1\] with 0: unhashable",
        ),
        (BLEU(), {"pred": 1, "label": "a"}, "BLEU cannot compare 'pred' with 'label', for example 1 with 'a': "),
        (
            Pearson(),
            {"pred": "a", "label": 0.0},
            "Pearson cannot compare 'pred' with 'label', for example 'a' with 0.0",
        ),
        (SpanF1(), {"pred": ["X-A"], "tags": ["O"]}, "the tag 'X-A' is not a BIO"),
        (F1(), {"pred": 1}, r"F1: the rows in 'preds' have no 'label'; they have \['pred'\]"),
    ],
)
def test_rows_that_cannot_be_scored_are_told(run: Run, pipe: Any, row: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        pipe("dev", preds=[row])


def test_an_average_that_there_is_none_of_is_told() -> None:
    with pytest.raises(AlchemyError, match=r"average must be one of .*; did you mean 'macro'"):
        F1(average="makro")  # type: ignore[arg-type]
