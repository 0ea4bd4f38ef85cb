"""Scores of masks equal their definitions, whatever the batches."""

from __future__ import annotations

import numpy as np
import pytest

from alchemy.errors import AlchemyError
from alchemy.metrics.segmentation import MaskScores, count_pixels

NAMES = ["background", "a", "b"]


def draw(seed: int, count: int = 7) -> tuple[list[np.ndarray], list[np.ndarray]]:
    numbers = np.random.default_rng(seed)
    gold = [numbers.choice([0, 1, 2, 255], (9, 7), p=[0.5, 0.3, 0.1, 0.1]) for _ in range(count)]
    return gold, [np.where(numbers.random((9, 7)) < 0.7, mask % 255, numbers.integers(0, 3, (9, 7))) for mask in gold]


def iou(gold: np.ndarray, said: np.ndarray, number: int) -> float:
    here, there = (gold == number) & (gold != 255), (said == number) & (gold != 255)
    union = (here | there).sum()
    return (here & there).sum() / union if union else float("nan")


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_definition(seed: int) -> None:
    gold, said = draw(seed)
    scores = MaskScores([count_pixels(*pair, 3) for pair in zip(gold, said)], NAMES, 0).scores()
    per_image = [np.nanmean([iou(one, two, number) for number in (1, 2)]) for one, two in zip(gold, said)]
    every, all_said = np.concatenate(gold), np.concatenate(said)
    pooled = [iou(every, all_said, number) for number in range(3)]
    assert scores["iou"] == pytest.approx(np.mean(per_image))
    assert scores["pooled_iou"] == pytest.approx(np.mean(pooled[1:]))
    assert [scores[f"iou_{name}"] for name in NAMES] == pytest.approx(pooled)
    assert scores["pixel_accuracy"] == pytest.approx((every == all_said)[every != 255].mean())
    dice = [np.nanmean([2 * i / (1 + i) for i in (iou(one, two, n) for n in (1, 2))]) for one, two in zip(gold, said)]
    assert scores["dice"] == pytest.approx(np.mean(dice))


def test_an_image_without_classes_scores_one_if_none_is_predicted() -> None:
    empty, full = np.zeros((4, 4), int), np.ones((4, 4), int)
    found = MaskScores([count_pixels(empty, empty, 2), count_pixels(empty, full, 2)], ["background", "a"], 0)
    assert found.image_iou.tolist() == [1.0, 0.0]
    nothing = MaskScores([count_pixels(np.full((2, 2), 255), empty[:2, :2], 2)], ["background", "a"], 0).scores()
    assert nothing["iou"] == nothing["pixel_accuracy"] == 1.0 and np.isnan(nothing["iou_a"])


def test_masks_of_different_sizes_are_refused() -> None:
    with pytest.raises(AlchemyError, match=r"of size 2 x 3 with a mask of size 3 x 3"):
        count_pixels(np.zeros((3, 3), int), np.zeros((2, 3), int), 2)
    with pytest.raises(AlchemyError, match="no predictions to score"):
        MaskScores([], ["a"])
