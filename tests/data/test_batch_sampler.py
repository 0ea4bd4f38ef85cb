"""The order of an epoch: the same samples for any number of processes and workers, starting at any batch."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler

from alchemy.data.batch_sampler import (
    WHOLE,
    EpochPosition,
    EqualBatches,
    Ids,
    ShardedBatchSampler,
    StepSamples,
    cut_evenly,
)
from alchemy.data.epoch_batches import EpochBatches
from alchemy.data.loader import Loader, get_dataloader
from alchemy.null_objects import SingleProcess
from alchemy.pipeline.itr import SplitByWorker
from alchemy.pipeline.lst import SequenceWrapper
from alchemy.seeds import sample_rng

ORDERS = st.fixed_dictionaries(
    {
        "samples": st.integers(1, 40),
        "size": st.integers(1, 9),
        "shuffle": st.booleans(),
        "drop_last": st.booleans(),
        "seed": st.integers(0, 2**62),
    }
)
RANKS = st.integers(1, 4)


def cut(order: dict[str, Any]) -> EqualBatches:
    return EqualBatches(order["samples"], order["size"], shuffle=order["shuffle"], drop_last=order["drop_last"])


def steps(order: dict[str, Any], rank: int = 0, ranks: int = 1, per_device: bool = False, start: int = 0) -> list[Any]:
    """Return the plan of one process: `(note, indices it reads)` of each step."""
    deal = ShardedBatchSampler(cut(order), EpochPosition(start, rank, ranks, per_device), order["seed"])
    read = [list.copy(ids) for ids in deal]
    assert len(deal) == len(read)
    return list(zip(deal.issued, read, strict=True))


@given(ORDERS)
def test_every_sample_comes_once_but_for_those_that_fill_no_batch(order: dict[str, Any]) -> None:
    whole = cut(order)
    batches = list(whole.from_batch(0, order["seed"]))
    seen = [index for batch in batches for index in batch]
    assert sorted(seen + (whole.left_out(order["seed"]) if order["drop_last"] else [])) == list(range(order["samples"]))
    assert len(batches) == len(whole)
    assert whole.samples == len(seen)
    assert all(len(batch) == order["size"] for batch in batches[: None if order["drop_last"] else -1])
    if not order["shuffle"]:
        assert seen == sorted(seen)


@given(ORDERS, st.integers(0, 60))
def test_an_epoch_from_a_batch_on_is_the_tail_of_the_whole(order: dict[str, Any], start: int) -> None:
    whole = cut(order)
    assert list(whole.from_batch(start, order["seed"])) == list(whole.from_batch(0, order["seed"]))[start:]


@given(ORDERS, RANKS, st.integers(0, 20))
def test_pieces_of_a_batch_are_the_batch_for_any_number_of_processes(
    order: dict[str, Any], ranks: int, start: int
) -> None:
    alone = [note.own for note, _ in steps(order, start=start)]
    shares = [steps(order, rank, ranks, start=start) for rank in range(ranks)]
    assert {len(share) for share in shares} == {len(alone)}
    for whole, notes in zip(alone, zip(*shares)):
        assert [index for note, _ in notes for index in note.own] == whole
        assert all(note.everyone == whole for note, _ in notes)
        sizes = [len(note.own) for note, _ in notes]
        assert max(sizes) - min(sizes) <= 1


@given(ORDERS, RANKS, st.integers(0, 10))
def test_whole_batches_are_dealt_in_turn(order: dict[str, Any], ranks: int, first: int) -> None:
    batches = list(cut(order).from_batch(first * ranks, order["seed"]))
    shares = [steps(order, rank, ranks, per_device=True, start=first * ranks) for rank in range(ranks)]
    assert {len(share) for share in shares} == {-(-len(batches) // ranks)}
    dealt = [note.own for notes in zip(*shares) for note, _ in notes if note.real]
    assert dealt == batches
    seen = Counter(index for batch in dealt for index in batch)
    assert set(seen.values()) <= {1}


@given(ORDERS, RANKS, st.booleans())
def test_only_a_process_without_samples_is_marked_and_reads_what_another_does(
    order: dict[str, Any], ranks: int, per_device: bool
) -> None:
    shares = [steps(order, rank, ranks, per_device) for rank in range(ranks)]
    for notes in zip(*shares):
        for note, read in notes:
            assert note.real is bool(note.own)
            assert read == (note.own if note.real else notes[0][0].own)
            assert read
    assert all(note.real for note, _ in shares[0])


@given(st.lists(st.integers(), max_size=30), st.integers(1, 9))
def test_cutting_evenly(items: list[int], parts: int) -> None:
    pieces = cut_evenly(items, parts)
    assert [item for piece in pieces for item in piece] == items
    assert len(pieces) == parts
    sizes = list(map(len, pieces))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(ORDERS, st.integers(0, 2**62))
def test_another_seed_is_another_order_of_the_same_samples(order: dict[str, Any], other: int) -> None:
    again = list(cut(order).from_batch(0, order["seed"]))
    assert list(cut(order).from_batch(0, order["seed"])) == again
    if not order["shuffle"]:
        assert list(cut(order).from_batch(0, other)) == again


def test_ids_travel_to_a_worker_with_their_seed() -> None:
    import pickle

    ids = pickle.loads(pickle.dumps(Ids([3, 1], seed=7)))
    assert isinstance(ids, Ids)
    assert (list.copy(ids), ids.seed) == ([3, 1], 7)


class Drawing(list[int]):
    """Samples drawn from `sample_rng` and from the global generators."""

    def __getitem__(self, index: Any) -> Any:
        own = [float(number) for number in sample_rng().random(2)]
        return index, own, (random.random(), float(np.random.rand()), float(torch.rand(())))


def batches(loader: Loader) -> list[Any]:
    return list(loader)


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 7), st.integers(1, 7), RANKS, st.booleans(), st.integers(0, 2**62))
def test_the_numbers_of_a_sample_are_its_own(
    samples: int, size: int, other: int, ranks: int, per_device: bool, seed: int
) -> None:
    def drawn(size: int, rank: int = 0, ranks: int = 1) -> dict[int, Any]:
        place = EpochPosition(rank=rank, ranks=ranks)
        options = {"batch_size": size, "shuffle": True, "collate_fn": list, "per_device": per_device}
        loader = get_dataloader(Drawing(range(samples)), seed, place=place, **options)
        return {index: own for batch in loader for index, own, _ in batch}

    whole = drawn(size)
    assert drawn(other) == whole
    shares = [drawn(size, rank, ranks) for rank in range(ranks)]
    assert all(whole[index] == own for share in shares for index, own in share.items())
    assert len({str(own) for own in whole.values()}) == samples


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("start", [0, 2])
def test_draws_do_not_depend_on_the_number_of_workers(shuffle: bool, start: int) -> None:
    def drawn(workers: int) -> list[Any]:
        options = {"batch_size": 3, "shuffle": shuffle, "collate_fn": list, "num_workers": workers}
        return batches(get_dataloader(Drawing(range(11)), 5, place=EpochPosition(start), **options))

    assert drawn(0) == drawn(1) == drawn(2)
    assert len(drawn(0)) == 4 - start


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_is_a_batch_draws_the_same_with_and_without_workers(workers: int) -> None:
    whole = batches(get_dataloader(Drawing(range(6)), 5, shuffle=True))
    assert batches(get_dataloader(Drawing(range(6)), 5, shuffle=True, num_workers=workers)) == whole
    assert (
        batches(get_dataloader(Drawing(range(6)), 5, place=EpochPosition(2), shuffle=True, num_workers=workers))
        == whole[2:]
    )


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 2, "sampler": {"type": "torch.utils.data.RandomSampler"}},
        {
            "batch_size": 2,
            "sampler": {"type": "torch.utils.data.WeightedRandomSampler", "weights": [1] * 7, "num_samples": 7},
        },
        {"batch_size": 2, "sampler": {"type": "tests.resume.parts.LazySampler"}},
        {"sampler": {"type": "torch.utils.data.RandomSampler"}},
    ],
    ids=["random", "weighted", "lazy", "single"],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_of_the_projects_own_goes_on_where_it_was(start: int, options: dict[str, Any], workers: int) -> None:
    """Draw random numbers between two batches, as a model does."""

    def indices(start: int, workers: int) -> list[Any]:
        loader = get_dataloader(list(range(7)), 5, place=EpochPosition(start), num_workers=workers, **options)
        found = []
        for _ in loader:
            found.append(loader.own)
            random.seed(start + workers)
            torch.rand(3)
        return found

    assert indices(start, workers) == indices(0, 0)[start:]


def test_a_list_of_batches_goes_on_where_it_was() -> None:
    sampler = BatchSampler(RandomSampler(range(7), generator=torch.Generator().manual_seed(3)), 3, drop_last=False)
    fixed = list(sampler)
    loader = get_dataloader(list(range(7)), 5, place=EpochPosition(1), batch_sampler=fixed)
    assert [batch.tolist() for batch in loader] == fixed[1:]
    assert len(loader) == 2


@pytest.mark.parametrize("keys", [["a", "7", "c"], [(0, 1), (2, 3), (4, 5)], [0.5, 1.5, 2.5]], ids=str)
@pytest.mark.parametrize("size", [None, 2])
def test_a_sampler_may_give_keys_that_are_no_numbers(keys: list[Any], size: int | None) -> None:
    data = {key: number for number, key in enumerate(keys)}
    options: dict[str, Any] = {"sampler": keys, "batch_size": size, "collate_fn": list if size else int}
    loader = get_dataloader(data, 5, **options)
    found: list[Any] = []
    noted: list[Any] = []
    for batch in loader:
        found += batch if size else [batch]
        noted.append((loader.ids, loader.own, loader.digest(batch) is None))
    assert found == [0, 1, 2]
    assert set(noted) == {(None, None, False)}


@pytest.mark.parametrize("rank", [0, 1])
def test_keys_are_cut_for_several_processes(rank: int) -> None:
    deal = ShardedBatchSampler([["a", 1, "c"], ["d"]], EpochPosition(0, rank, 2), 0)
    assert [list.copy(ids) for ids in deal] == [[["a", 1], ["d"]], [["c"], ["d"]]][rank]
    # its length is unknown, but it is known to be empty
    assert list(deal.issued) == [StepSamples(None, None, True), StepSamples(None, None if rank == 0 else [], rank == 0)]


@pytest.mark.parametrize("kind", [torch.tensor, np.array, lambda numbers: tuple(map(np.int64, numbers))])
def test_numbers_of_any_kind_are_numbers(kind: Any) -> None:
    deal = ShardedBatchSampler([kind([3, 1])], WHOLE, 0)
    assert [list.copy(ids) for ids in deal] == [[3, 1]]
    assert list(deal.issued) == [StepSamples([3, 1], [3, 1], True)]


def test_a_second_pass_has_another_order() -> None:
    loader = get_dataloader(list(range(20)), 5, batch_size=4, shuffle=True)
    first, second = [batch.tolist() for batch in loader], [batch.tolist() for batch in loader]
    assert first != second
    assert all(sorted(i for batch in order for i in batch) == list(range(20)) for order in (first, second))


@given(ORDERS, st.integers(0, 12), st.integers(0, 6))
def test_a_feed_counts_the_steps_of_the_whole_epoch(order: dict[str, Any], start: int, limit: int) -> None:
    options = {"batch_size": order["size"], "drop_last": order["drop_last"], "shuffle": order["shuffle"]}
    total = len(cut(order))
    if not total:
        return
    start = min(start, total)
    loader = get_dataloader(list(range(order["samples"])), order["seed"], place=EpochPosition(start), **options)
    feed = EpochBatches(loader, SingleProcess(), limit=limit)
    lasts = [feed.last for _ in feed]
    wanted = min(total, limit) if limit else total
    assert feed.total == wanted
    assert feed.done == max(start, wanted)
    assert lasts == [False] * (len(lasts) - 1) + [True] * (len(lasts) > 0)
    assert len(lasts) == max(0, wanted - start)


def test_what_is_handed_over_names_all_and_own() -> None:
    deal = ShardedBatchSampler(EqualBatches(5, 4, shuffle=False, drop_last=False), EpochPosition(0, 1, 2), 0)
    assert [list.copy(ids) for ids in deal] == [[2, 3], [4]]
    assert list(deal.issued) == [StepSamples([0, 1, 2, 3], [2, 3], True), StepSamples([4], [], False)]
    assert deal.coverage() == (5, [])


class Second(SingleProcess):
    """The group of the second of two processes; the first has `steps` batches left."""

    rank, size, is_main = 1, 2, False

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def any(self, flag: bool) -> bool:
        self.steps -= 1
        return flag or self.steps >= 0


@pytest.mark.parametrize("start", range(4))
def test_a_stream_goes_on_in_a_process_whose_share_is_used_up(start: int) -> None:
    """With five samples the second process has two; it joins the third step of the first, wherever it starts."""
    stream = SplitByWorker(SequenceWrapper(range(5)))
    loader = get_dataloader(stream, 0, place=EpochPosition(start, 1, 2), batch_size=1)
    feed = EpochBatches(loader, Second(3 - start))
    assert [(batch.tolist(), feed.real) for batch in feed] == [([1], True), ([3], True), ([3], False)][start:]
