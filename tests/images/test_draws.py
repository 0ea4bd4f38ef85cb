"""Random numbers per sample: a function of the seed, the index and the call."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.images.draws import Draws

SEEDS = st.integers(-(2**63), 2**64)
INDICES = st.lists(st.integers(0, 2**62), min_size=1, max_size=9)


def draw(draws):
    return np.stack([draws.uniform(-2, 3), draws.integers(3, 90), *draws.uniform(shape=(2, 3)).T[0]])


@given(SEEDS, INDICES, st.randoms())
def test_a_draw_does_not_depend_on_the_other_samples_or_their_order(seed, indices, random):
    together = dict(zip(indices, draw(Draws(seed, indices)).T.tolist()))
    random.shuffle(indices)
    for index, column in zip(indices, draw(Draws(seed, np.array(indices))).T.tolist()):
        assert column == together[index] == draw(Draws(seed, [index])).T[0].tolist()


@given(SEEDS, st.integers(0, 2**40))
def test_seeds_indices_and_calls_give_different_numbers(seed, index):
    here = Draws(seed, [index, index + 1])
    values = [*here.uniform(), *here.uniform(), *Draws(seed + 1, [index]).uniform()]
    assert len(set(values)) == 5
    # a table of numbers is the same as one number after another
    table = Draws(seed, [index]).uniform(shape=(2,))[0]
    again = Draws(seed, [index])
    assert table.tolist() == [again.uniform()[0], again.uniform()[0]]


def test_the_numbers_are_uniform_and_independent():
    first, second = (values := Draws(5, range(200_000)).uniform(shape=(2,))).T
    assert values.min() >= 0 and values.max() < 1
    counts = np.histogram2d(first, second, bins=10)[0]
    assert abs(counts - 2000).max() < 5 * 2000**0.5
    # neighbors are not correlated, nor are the epochs of a sample
    epochs = np.array([Draws(seed, [3]).uniform()[0] for seed in range(20_000)])
    for numbers in (first, epochs):
        assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 4 / len(numbers) ** 0.5
    assert np.bincount(Draws(1, range(70_000)).integers(0, 7)).min() > 9600


def test_an_empty_range_is_refused():
    with pytest.raises(ValueError, match="no integers from 2 up to but excluding 2"):
        Draws(1, [0]).integers(2, 2)
