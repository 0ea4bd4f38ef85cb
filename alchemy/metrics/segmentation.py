"""Scores of segmentation masks, computed from counts of pixels per image."""

# N images, K classes

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alchemy.errors import AlchemyError


def count_pixels(gold: np.ndarray, predicted: np.ndarray, classes: int, ignored: int = 255) -> np.ndarray:
    """Return the confusion counts [K, K] of a mask: gold classes in rows, predicted classes in columns.

    Pixels whose gold class is `ignored` are not counted.

    >>> count_pixels(np.array([[0, 1], [1, 255]]), np.array([[0, 1], [0, 1]]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    if gold.shape != predicted.shape:
        text = f"cannot compare a predicted mask of size {_size(predicted)} with a mask of size {_size(gold)}"
        raise AlchemyError(text, hint="the network must return logits of the size of its input")
    known = gold != ignored
    pairs = gold[known].astype(np.int64) * classes + predicted[known]
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


class MaskScores:
    """Scores of masks, from the confusion counts of each image.

    `iou` and `dice` are means over images: of each image, the mean over the classes that occur in its mask or its
    prediction. `pooled_iou` and the `iou` of each class are computed over the pixels of all images. `background` is
    the position of a class that these means leave out, or None. An image without any other class scores 1 if none is
    predicted. All scores are functions of integer counts, so they do not depend on the batches.

    >>> found = MaskScores([np.array([[6, 1], [1, 2]]), np.array([[10, 0], [0, 0]])], ["background", "cell"], 0)
    >>> found.scores()
    {'iou': 0.75, 'pooled_iou': 0.5, 'dice': 0.8333333333333333, 'pixel_accuracy': 0.9, 'iou_background': 0.8888888888888888, 'iou_cell': 0.5}
    """  # noqa: E501

    def __init__(self, counts: Sequence[np.ndarray], names: Sequence[str], background: int | None = None) -> None:
        if not len(counts):
            raise AlchemyError("there are no predictions to score", hint="is the dataset empty?")
        self.names = list(names)
        self.averaged = [number for number in range(len(names)) if number != background]
        counts_NKK = np.asarray(counts, np.int64)
        self.total = counts_NKK.sum(0)
        iou_NK, dice_NK = _overlaps(counts_NKK)
        self.image_iou = self._average(iou_NK)
        self.image_dice = self._average(dice_NK)
        self.class_iou, self.class_dice = _overlaps(self.total)

    def scores(self) -> dict[str, float]:
        """Return the scores by name; a class that occurs nowhere has an IoU of NaN and is left out of the mean."""
        pixels = self.total.sum()
        return {
            "iou": float(self.image_iou.mean()),
            "pooled_iou": float(self._average(self.class_iou[None])[0]),
            "dice": float(self.image_dice.mean()),
            "pixel_accuracy": float(np.trace(self.total) / pixels) if pixels else 1.0,
            **{f"iou_{name}": float(iou) for name, iou in zip(self.names, self.class_iou)},
        }

    def rows(self) -> dict[str, dict[str, float]]:
        """Return IoU, Dice, precision, recall and the number of pixels of each class."""
        hits = np.diag(self.total)
        with np.errstate(invalid="ignore"):
            precision, recall = hits / self.total.sum(0), hits / self.total.sum(1)
        columns = (self.class_iou, self.class_dice, precision, recall)
        names = ("iou", "dice", "precision", "recall")
        pixels = self.total.sum(1)
        return {
            name: {**{key: float(column[k]) for key, column in zip(names, columns)}, "pixels": int(pixels[k])}
            for k, name in enumerate(self.names)
        }

    def _average(self, values_NK: np.ndarray) -> np.ndarray:
        """Return the mean over the averaged classes that occur; 1 if none occurs."""
        values_NK = values_NK[:, self.averaged]
        occurs_NK = ~np.isnan(values_NK)
        sums, number = np.where(occurs_NK, values_NK, 0.0).sum(1), occurs_NK.sum(1)
        return np.where(number > 0, sums / np.maximum(number, 1), 1.0)


def _overlaps(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return IoU and Dice of each class from confusion counts [.., K, K]; NaN for a class that does not occur."""
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    both = counts.sum(-1) + counts.sum(-2)
    with np.errstate(invalid="ignore"):
        return hits / (both - hits), 2 * hits / both


def _size(mask: np.ndarray) -> str:
    return " x ".join(map(str, mask.shape))
