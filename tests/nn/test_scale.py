"""The loss scale refuses a factor by which every update would be lost."""

import pytest

from alchemy.errors import AlchemyError
from alchemy.nn.scale import LossScale


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), -float("inf")])
def test_a_scale_that_leaves_nothing_of_the_gradients_is_refused(value: float) -> None:
    with pytest.raises(AlchemyError, match=f"scale is {value} and scale_every 1; give a finite scale above 0"):
        LossScale(value, 1)


def test_a_period_below_one_is_refused() -> None:
    with pytest.raises(AlchemyError, match=r"scale_every 0; .* 1 or more updates"):
        LossScale(1.0, 0)
