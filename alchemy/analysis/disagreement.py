"""Find the examples on which several models disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alchemy.errors import AlchemyError

TEXTS = ("text", "source", "tokens", "file")  # fields of a prediction row that describe the example
GOLD = ("label", "labels", "tags", "target")
INPUTS = (*TEXTS, "pair", "id", *GOLD)  # fields that must be the same for all models

Row = Mapping[str, Any]


@dataclass
class Disagreement:
    """An example with the predictions of several models, and how much they differ: 1 for different classes."""

    index: int
    text: str
    gold: Any
    predictions: list[Any]
    probabilities: list[float | None]
    difference: float


@dataclass
class Comparison:
    """The examples on which models disagree, and for each model on how many of all examples it alone is right."""

    examples: int
    found: list[Disagreement] = field(default_factory=list)
    only_right: list[int] = field(default_factory=list)


def find_disagreements(rows: Sequence[Sequence[Row]], names: Sequence[str]) -> Comparison:
    """Compare the prediction rows of several models on the same examples, which are in the same order.

    The largest differences come first; among equal ones, those in which all models are confident.
    """
    for name, other in zip(names[1:], rows[1:]):
        if len(other) != len(rows[0]):
            text = f"{names[0]} has {len(rows[0])} examples, but {name} has {len(other)}"
            raise AlchemyError(text, hint="compare runs with the same data, or choose another split")
    result = Comparison(len(rows[0]), only_right=[0] * len(rows))
    for index, answers in enumerate(zip(*rows, strict=True)):
        _check_same(index, answers, names)
        found = _compare(index, answers)
        if found.difference > 0:
            result.found.append(found)
        right = [found.gold is not None and measure_difference(answer, found.gold) == 0 for answer in found.predictions]
        if sum(right) == 1:
            result.only_right[right.index(True)] += 1
    result.found.sort(key=lambda row: (-row.difference, -min((p or 0.0) for p in row.probabilities), row.index))
    return result


def _compare(index: int, answers: Sequence[Row]) -> Disagreement:
    first, predictions = answers[0], [_prediction(answer) for answer in answers]
    texts = [first[name] for name in TEXTS if name in first]
    text = "" if not texts else texts[0] if isinstance(texts[0], str) else " ".join(map(str, texts[0]))
    gold = next((first[name] for name in GOLD if name in first), None)
    difference = max(measure_difference(predictions[0], other) for other in predictions[1:])
    return Disagreement(index, text, gold, predictions, [answer.get("prob") for answer in answers], difference)


def _prediction(answer: Row) -> Any:
    if "pred" not in answer:
        hint = f"they have {', '.join(map(str, answer))}"
        raise AlchemyError("the predictions have no field 'pred'", hint=hint)
    return answer["pred"]


def _check_same(index: int, answers: Sequence[Row], names: Sequence[str]) -> None:
    """Raise an error if the models were given different examples."""
    first = answers[0]
    for name, other in zip(names[1:], answers[1:]):
        for key in (key for key in INPUTS if key in first and key in other):
            if measure_difference(first[key], other[key]):
                values = [repr(answer[key])[:60] for answer in (first, other)]
                text = f"example {index} differs: its {key} is {values[0]} in {names[0]}, but {values[1]} in {name}"
                raise AlchemyError(text, hint="compare runs with the same data, or choose another split")


def measure_difference(one: Any, two: Any) -> float:
    """Return how much two predictions differ: by value for numbers, by share for masks, otherwise 0 or 1.

    >>> measure_difference("a", "b"), measure_difference(1.5, 1.0), measure_difference(["a"], ["a"])
    (1.0, 0.5, 0.0)
    """
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and one.shape == two.shape:
        return float(np.mean(one != two))
    if isinstance(one, float) and isinstance(two, float):
        return abs(one - two) if one == one and two == two else float((one == one) != (two == two))
    return float(not np.array_equal(one, two) if isinstance(one, np.ndarray) else one != two)
