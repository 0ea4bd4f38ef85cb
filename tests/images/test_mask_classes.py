"""Class ids of masks: values, colors, ignored pixels, and values that belong to no class."""

import numpy as np
import pytest

from alchemy.errors import AlchemyError
from alchemy.images.mask_classes import MaskClasses

GRAY = np.array([[0, 1], [2, 255]], np.uint8)
COLORS = np.array([[[0, 0, 0], [128, 0, 0]], [[224, 224, 192], [0, 0, 0]]], np.uint8)


@pytest.mark.parametrize(
    ("classes", "pixels", "ids"),
    [
        (MaskClasses(3), GRAY, [[0, 1], [2, 255]]),
        (MaskClasses(4, [0, 255, 2, 1]), GRAY, [[0, 3], [2, 1]]),
        (MaskClasses(3, ignored=0, values=[1, 2, 255]), GRAY, [[255, 0], [1, 2]]),
        (MaskClasses(3), GRAY.astype(np.int32), [[0, 1], [2, 255]]),
        (MaskClasses(2, [700, 5]), np.array([[5, 700, 255]], np.uint16), [[1, 0, 255]]),
        (MaskClasses(3), np.repeat(GRAY[..., None], 3, 2), [[0, 1], [2, 255]]),
        (MaskClasses(2, [[128, 0, 0], [0, 0, 0]], [224, 224, 192]), COLORS, [[1, 0], [255, 1]]),
    ],
)
def test_pixel_values_become_class_ids(classes, pixels, ids):
    found = classes.to_ids(pixels, "m.png")
    assert found.tolist() == ids and found.dtype == np.uint8


@pytest.mark.parametrize(
    ("classes", "pixels", "message"),
    [
        (MaskClasses(2), GRAY, r"'m.png' has 1 pixels that belong to no class: 2, the first in row 1, column 0; the"),
        (MaskClasses(3, ignored=None), GRAY, r"no class: 255, the first in row 1, column 1; .* 0, 1, 2; list all"),
        (MaskClasses(3), GRAY.astype(np.int32) + 1, r"2 pixels that belong to no class: 3, 256"),
        (MaskClasses(1, [[0, 0, 0]]), COLORS, r"2 pixels that belong to no class: \[128, 0, 0\], \[224, 224, 192\]"),
        (MaskClasses(2), COLORS, r"has colors; set values to one color \[red, green, blue\] per class"),
        (MaskClasses(1, [[0, 0, 0]]), GRAY, "has gray values or palette indices; set values to numbers"),
        (MaskClasses(2), GRAY.astype(np.float32), "has gray values"),
    ],
)
def test_values_that_are_no_class_are_named(classes, pixels, message):
    with pytest.raises(AlchemyError, match=message):
        classes.to_ids(pixels, "m.png")


@pytest.mark.parametrize(
    ("count", "values", "message"),
    [
        (2, [1], "values has 1 pixel values for 2 classes"),
        (2, [1, 1], "values has a duplicate"),
        (256, None, "masks can have 1 to 255 classes, not 256"),
        (2, [[0, 0], [1, 1]], r"values: \[0, 0\] is neither a number nor a color"),
    ],
)
def test_wrong_values_are_refused(count, values, message):
    with pytest.raises(AlchemyError, match=message):
        MaskClasses(count, values)
