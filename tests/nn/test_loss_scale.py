"""The loss scale rejects a factor with which every update would be lost."""

import pytest

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.precision import Precision
from alchemy.registry import construct


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), -float("inf")])
def test_a_scale_that_leaves_nothing_of_the_gradients_is_refused(value: float) -> None:
    with Run({}), pytest.raises(AlchemyError, match="scale must be"):
        construct(Precision, {"dtype": "fp16", "scale": value}, section="precision")


def test_a_period_below_one_is_refused() -> None:
    with Run({}), pytest.raises(AlchemyError, match="scale_every must be at least 1, not 0"):
        construct(Precision, {"dtype": "fp16", "scale_every": 0}, section="precision")
