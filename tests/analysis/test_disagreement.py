"""Examples on which models disagree."""

from __future__ import annotations

import numpy as np
import pytest

from alchemy.analysis.disagreement import Row, find_disagreements
from alchemy.errors import AlchemyError


def test_confident_disagreements_come_first() -> None:
    rows = [
        [{"text": text, "label": "x", "pred": pred, "prob": prob} for text, pred, prob in model]
        for model in (
            [("a", "x", 0.9), ("b", "x", 0.6), ("c", "x", 0.9), ("d", "y", 0.9)],
            [("a", "x", 0.9), ("b", "y", 0.9), ("c", "y", 0.8), ("d", "x", 0.7)],
        )
    ]
    found = find_disagreements(rows, ["A", "B"])
    assert [row.text for row in found.found] == ["c", "d", "b"] and found.examples == 4
    assert found.only_right == [2, 1] and found.found[0].predictions == ["x", "y"]


@pytest.mark.parametrize(
    ("one", "two", "difference"),
    [
        (1.5, 1.0, [0.5]),
        (1.0, 1.0, []),
        (["a", "b"], ["a", "c"], [1.0]),
        (np.zeros((2, 2)), np.eye(2), [0.5]),
        (float("nan"), 1.0, [1.0]),
        (float("nan"), float("nan"), []),
    ],
)
def test_predictions_of_every_kind(one: object, two: object, difference: list[float]) -> None:
    found = find_disagreements([[{"pred": one}], [{"pred": two}]], ["A", "B"])
    assert [row.difference for row in found.found] == difference


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ([{"text": "a", "pred": 1}], [], "A has 1 examples, but B has 0"),
        ([{"text": "a", "pred": 1}], [{"text": "b", "pred": 1}], "its text is 'a' in A, but 'b' in B"),
        ([{"score": 1}], [{"score": 2}], "no field 'pred'"),
    ],
)
def test_different_examples_are_an_error(one: list[Row], two: list[Row], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        find_disagreements([one, two], ["A", "B"])
