"""Batches within a token budget: every sample once, none too large, the same order for any number of processes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.batch_sampler import EpochPosition, ShardedBatchSampler
from alchemy.data.loader import get_dataloader
from alchemy.data.sample_lengths import lengths_of
from alchemy.data.token_budget import Budget, cut
from alchemy.errors import AlchemyError

BUDGET = 24
PAIRS = st.lists(st.tuples(st.integers(0, BUDGET), st.integers(0, BUDGET)), min_size=1, max_size=120)
LIMITS = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(BUDGET, 3 * BUDGET) | st.none(),
        "max_sentences": st.integers(1, 9),
        "required_batch_size_multiple": st.integers(1, 5),
    }
)


def columns(pairs: list[tuple[int, int]]) -> dict[str, np.ndarray]:
    source, target = np.array(pairs).T
    return {"source": source, "target": target}


def one_by_one(sizes: list[int], max_tokens: int, max_sentences: int, multiple: int) -> list[int]:
    """The same, written as a loop over samples."""
    ends, begin = [0], 0
    while begin < len(sizes):
        end = begin + 1
        while end < len(sizes) and end - begin < max_sentences:
            if max(sizes[begin : end + 1]) * (end + 1 - begin) > max_tokens:
                break
            end += 1
        if end < len(sizes) and end - begin > multiple:
            end -= (end - begin) % multiple
        ends.append(end)
        begin = end
    return ends


@given(
    sizes=st.lists(st.integers(0, BUDGET), min_size=1, max_size=100),
    max_tokens=st.integers(BUDGET, 4 * BUDGET),
    max_sentences=st.integers(1, 20),
    multiple=st.integers(1, 8),
)
def test_the_cuts_are_those_of_a_loop(sizes: list[int], max_tokens: int, max_sentences: int, multiple: int) -> None:
    ends = cut(np.array(sizes), max_tokens=max_tokens, max_sentences=max_sentences, multiple=multiple)
    assert ends.tolist() == one_by_one(sizes, max_tokens, max_sentences, multiple)


@given(pairs=PAIRS, limits=LIMITS, seed=st.integers(0, 2**63), shuffle=st.booleans())
def test_every_sample_is_in_one_batch_and_no_batch_is_over_budget(
    pairs: list[tuple[int, int]], limits: dict[str, Any], seed: int, shuffle: bool
) -> None:
    order = Budget(columns(pairs), shuffle=shuffle, **limits)
    batches = list(order.from_batch(0, seed))
    assert len(batches) == len(order)
    assert sorted(itertools.chain(*batches)) == list(range(len(pairs)))
    for batch in batches:
        widest = max(max(pairs[index]) for index in batch)
        assert limits["max_tokens"] is None or widest * len(batch) <= limits["max_tokens"]
        assert len(batch) <= limits["max_sentences"]


@given(pairs=PAIRS, limits=LIMITS, seed=st.integers(0, 2**63), ranks=st.integers(1, 4), data=st.data())
def test_the_order_is_the_same_for_any_number_of_processes_and_from_any_place(
    pairs: list[tuple[int, int]], limits: dict[str, Any], seed: int, ranks: int, data: st.DataObject
) -> None:
    order = Budget(columns(pairs), shuffle=True, **limits)
    whole = list(order.from_batch(0, seed))
    start = data.draw(st.integers(0, len(whole)))
    deals = [
        ShardedBatchSampler(order, EpochPosition(start, rank, ranks, per_device=True), seed) for rank in range(ranks)
    ]
    shares = [[list.copy(ids) for ids in deal] for deal in deals]
    assert len({len(share) for share in shares}) == 1  # the same number of updates in each
    real = [[note.own for note in deal.issued if note.real] for deal in deals]
    dealt = [batch for step in itertools.zip_longest(*real) for batch in step if batch is not None]
    assert dealt == whole[start:]


def test_the_source_leads_and_like_samples_are_shuffled() -> None:
    lengths = {"source": np.repeat([5, 3, 3, 9], 50), "target": np.repeat([1, 8, 2, 4], 50)}
    order = Budget(lengths, max_sentences=50, shuffle=True)
    one, two = (sorted(order.from_batch(0, seed), key=min) for seed in (1, 2))
    assert [sorted(batch) for batch in one] == [sorted(batch) for batch in two]
    assert one != two
    quiet = [index for batch in Budget(lengths, max_sentences=50).from_batch(0, 0) for index in batch]
    assert quiet == [*range(100, 150), *range(50, 100), *range(50), *range(150, 200)]


def test_the_order_of_batches_is_that_of_the_seed() -> None:
    order = Budget({"x": np.arange(100)}, max_sentences=1, shuffle=True)
    assert list(order.from_batch(0, 1)) == list(order.from_batch(0, 1))
    assert list(order.from_batch(0, 1)) != list(order.from_batch(0, 2))


def test_tokens_may_be_those_of_the_target_alone() -> None:
    lengths = {"source": np.full(8, 6), "target": np.full(8, 3)}
    assert [len(batch) for batch in Budget(lengths, max_tokens=12).from_batch(0, 0)] == [2, 2, 2, 2]
    assert [len(batch) for batch in Budget(lengths, max_tokens=12, tokens_of="target").from_batch(0, 0)] == [4, 4]
    assert len(Budget({"source": np.full(8, 60), "target": np.full(8, 3)}, max_tokens=12, tokens_of="target")) == 2
    with pytest.raises(AlchemyError, match="sample 0 has 6 tokens, more than the limit of 5"):
        Budget(lengths, max_tokens=12, max_length=5, tokens_of="target")
    with pytest.raises(
        AlchemyError, match="tokens_of = 'traget' is not a field of the samples; available fields: source, target"
    ):
        Budget(lengths, max_tokens=12, tokens_of="traget")


def test_lengths_above_65535_are_sorted_too() -> None:
    order = Budget({"x": np.array([70_000, 3, 65_536])}, max_tokens=80_000)
    assert list(order.from_batch(0, 0)) == [[1], [2], [0]]


def test_a_sample_that_is_too_long_is_an_error_with_its_place() -> None:
    lengths = {"source": np.array([1, 9, 2]), "target": np.array([1, 1, 8])}
    told = r"sample 1 has 9 tokens, more than the limit of 5 \(2 samples are too long\)"
    with pytest.raises(AlchemyError, match=told):
        Budget(lengths, max_tokens=5)
    with pytest.raises(AlchemyError, match=r"b\.txt:2 has 9 tokens, more than the limit of 8; raise max_tokens"):
        Budget(lengths, max_tokens=100, max_length=8, where=lambda index: f"b.txt:{index + 1}")


def test_samples_that_are_too_long_are_left_out_and_counted(warnings: list[str]) -> None:
    order = Budget({"x": np.array([1, 9, 2, 7])}, max_tokens=5, too_long="skip")
    assert list(order.from_batch(0, 0)) == [[0, 2]]
    assert order.left_out(0) == [1, 3]
    assert order.total == 4
    assert any("2 of 4 samples have more than 5 tokens and are skipped" in line for line in warnings)
    with pytest.raises(AlchemyError, match="all 1 samples have more than 5 tokens"):
        Budget({"x": np.array([9])}, max_tokens=5, too_long="skip")


def test_a_limit_may_be_larger_than_any_length() -> None:
    lengths = {"x": np.array([3, 2], np.uint16)}
    assert list(Budget(lengths, max_tokens=100_000, too_long="truncate").from_batch(0, 0)) == [[1, 0]]


def test_the_loader_takes_a_budget_for_any_list() -> None:
    samples = [{"tokens": list(range(length))} for length in (4, 1, 3, 2, 4, 1)]
    shapes = [tuple(batch["tokens"].shape) for batch in get_dataloader(samples, max_tokens=8, length_of="tokens")]
    assert shapes == [(3, 2), (2, 4), (1, 4)]  # padded, unless a collate_fn does otherwise
    loader = get_dataloader(samples, max_tokens=8, length_of="tokens", collate_fn=lambda batch: batch)
    assert [[len(sample["tokens"]) for sample in batch] for batch in loader] == [[1, 1, 2], [3, 4], [4]]
    assert len(loader) == 3
    assert loader.ids == [4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"max_tokens": True}, "max_tokens must be an integer or none, not true"),
        ({"max_tokens": 8, "batch_size": 4}, "max_tokens cannot be combined with batch_size"),
        (
            {"max_tokens": 8, "too_long": "cut"},
            "too_long must be one of 'error', 'skip', 'truncate' or none, not",
        ),
        ({"too_long": "skip"}, "too_long needs a batch budget; set max_tokens or max_sentences"),
        ({"max_tokens": 8}, "max_tokens requires the lengths of the samples; set the field"),
        ({"max_sentences": 8}, "max_sentences requires the lengths of the samples; set the field"),
        ({"max_sentences": 8, "batch_size": 4}, "max_sentences cannot be combined with batch_size"),
        ({"max_tokens": 8, "length_of": "x", "too_long": "truncate"}, "is only supported for memory-mapped corpora"),
        ({"max_tokens": 8, "length_of": "y"}, "length_of = 'y': sample 0 has x; set it to a field with a length"),
        ({"max_sentences": 8, "length_of": "x", "too_long": "truncate"}, "needs a maximum length"),
        ({"max_token": 8}, "unknown loader option 'max_token'; did you mean 'max_tokens'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        get_dataloader([{"x": [1]}], **options)


def test_lengths_of_a_field_are_those_of_its_values() -> None:
    found = lengths_of([{"x": "ab"}, {"x": ""}], "x")
    assert {name: column.tolist() for name, column in found.items()} == {"x": [2, 0]}


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=40), most=st.integers(9, 30))
def test_without_sorting_samples_stay_in_order(lengths: list[int], most: int) -> None:
    order = Budget({"x": np.array(lengths)}, max_tokens=most, sort_by_length=False)
    batches = list(order.from_batch(0, 0))
    assert [index for batch in batches for index in batch] == list(range(len(lengths)))
    assert all(max(lengths[index] for index in batch) * len(batch) <= most for batch in batches)


def test_the_order_of_the_data_is_not_shuffled() -> None:
    with pytest.raises(AlchemyError, match="sort_by_length = false keeps the order"):
        Budget({"x": np.arange(3)}, max_sentences=2, sort_by_length=False, shuffle=True)


class Own(list[Any]):
    """Attributes of a project with the same names as ours, but other meanings."""

    limit, where = 3, "here"


def test_attributes_of_a_project_stay_what_they_are() -> None:
    data = Own([{"x": [1] * length} for length in (1, 2, 9)])
    assert len(get_dataloader(data, max_tokens=9, length_of="x")) == 2
    assert data.limit == 3
    with pytest.raises(AlchemyError, match="sample 2 has 9 tokens, more than the limit of 8"):
        get_dataloader(data, max_tokens=8, length_of="x")
