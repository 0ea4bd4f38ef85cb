"""The order of batches depends only on the seed, and every argument of the DataLoader can be set."""

import multiprocessing
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from alchemy.data.loader import Loader, get_dataloader
from alchemy.errors import AlchemyError
from alchemy.pipeline.itr import Batch, Shuffle, SplitByWorker, WithLength
from alchemy.pipeline.lst import SequenceWrapper


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index * index


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(10))


class Strange:
    pass


def tag_worker(worker):
    dataset: Any = torch.utils.data.get_worker_info().dataset
    dataset.tag = f"worker {worker}"


class Tagged(Dataset):
    tag = "none"

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.tag


class Unpicklable(Dataset):
    def __init__(self):
        self.parse = lambda text: text

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return index


def order(seed, dataset=None, **kwargs):
    return [int(sample) for sample in get_dataloader(dataset or list(range(20)), seed=seed, **kwargs)]


def stream(*pipes):
    source = SequenceWrapper(list(range(20)))
    for pipe in pipes:
        source = pipe(source)
    return source


@pytest.mark.parametrize("workers", [0, 2])
def test_the_shuffled_order_is_a_function_of_the_seed_for_any_number_of_workers(workers):
    torch.manual_seed(7)
    first = order(1, shuffle=True, num_workers=workers)
    torch.manual_seed(8)
    assert order(1, shuffle=True, num_workers=workers) == first == order(1, shuffle=True)
    assert order(2, shuffle=True) != first != list(range(20))
    assert sorted(first) == list(range(20))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_pass_over_one_loader_has_another_order(workers):
    kwargs: Any
    for dataset, kwargs in ((list(range(20)), {"shuffle": True}), (stream(SplitByWorker, Shuffle), {})):
        loader = get_dataloader(dataset, seed=3, num_workers=workers, **kwargs)
        first, second = list(map(int, loader)), list(map(int, loader))
        assert first != second
        assert sorted(first) == sorted(second) == list(range(20))


@pytest.mark.parametrize("pipes", [(Shuffle, SplitByWorker), (SplitByWorker, Shuffle)], ids=["before", "after"])
def test_shuffling_before_or_after_the_split_loses_and_repeats_nothing(pipes):
    for seed in range(3):
        assert sorted(order(seed, stream(*pipes), num_workers=2)) == list(range(20))


def test_the_shuffle_pipe_follows_the_seed_and_the_epoch():
    orders = [order(seed, stream(Shuffle)) for seed in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]
    assert orders[0] != list(range(20))


def test_persistent_workers_shuffle_anew_as_fresh_ones_do():
    loader = get_dataloader(stream(SplitByWorker, Shuffle), seed=5, num_workers=2, persistent_workers=True)
    again = get_dataloader(stream(SplitByWorker, Shuffle), seed=5, num_workers=2)
    assert [list(map(int, loader)) for _ in range(3)] == [list(map(int, again)) for _ in range(3)]


def test_spawned_workers_read_each_sample_once():
    kwargs: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "spawn"}
    loader = get_dataloader(stream(Shuffle, SplitByWorker, lambda pipe: Batch(pipe, 3)), seed=1, **kwargs)
    assert sorted(int(number) for batch in loader for number in batch) == list(range(20))


@pytest.mark.parametrize(
    "dataset", [Squares(), Endless(), list(range(10)), stream(Shuffle)], ids=lambda d: type(d).__name__
)
def test_any_data_set_will_do_and_a_sample_is_a_batch_unless_told(dataset):
    assert all(torch.as_tensor(sample).dim() == 0 for sample in get_dataloader(dataset))
    assert len(next(iter(get_dataloader(dataset, batch_size=4)))) == 4


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")
def test_the_length_counts_the_last_batch_of_every_worker():
    pipe = stream(SplitByWorker, lambda pipe: Batch(pipe, 8))
    for workers in (0, 1, 2, 3):
        loader = get_dataloader(pipe, num_workers=workers)
        assert len(loader) == len(list(loader))
    loader = get_dataloader(stream(SplitByWorker, lambda pipe: WithLength(pipe, 20)), num_workers=2, batch_size=6)
    assert len(loader) == len(list(loader)) == 4


def test_drop_last_and_batch_size_reach_torch():
    loader = get_dataloader(list(range(10)), batch_size=4, drop_last=True)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_sampler_is_built_from_its_table_and_gets_the_generator():
    table = {"type": "torch.utils.data.WeightedRandomSampler", "weights": [1.0] * 10, "num_samples": 6}
    first, again, other = (list(get_dataloader(list(range(10)), seed=s, sampler=table)) for s in (1, 1, 2))
    assert first == again != other
    assert len(first) == 6


def test_a_sampler_named_by_its_path_gets_the_data():
    loader = get_dataloader(list("abc"), sampler="torch.utils.data.SequentialSampler")
    assert list(loader) == ["a", "b", "c"]


def test_a_batch_sampler_is_built_with_the_sampler_inside():
    inner = {"type": "torch.utils.data.RandomSampler"}
    table = {"type": "torch.utils.data.BatchSampler", "sampler": inner, "batch_size": 3, "drop_last": False}
    loader = get_dataloader(list(range(7)), seed=1, batch_sampler=table)
    batches = [batch.tolist() for batch in loader]
    assert list(map(len, batches)) == [3, 3, 1]
    order = [index for batch in batches for index in batch]
    assert order != sorted(order) == list(range(7))


def test_a_collate_fn_may_be_a_path_a_table_or_an_object():
    samples = [{"ids": [1, 2]}, {"ids": [3]}]
    pad = {"type": "alchemy.data.collate.Pad", "values": {"ids": -1}}
    assert next(iter(get_dataloader(samples, batch_size=2, collate_fn=pad)))["ids"].tolist() == [[1, 2], [3, -1]]
    assert next(iter(get_dataloader(samples, batch_size=2, collate_fn="builtins.len"))) == 2
    assert next(iter(get_dataloader(samples, batch_size=2, collate_fn=lambda batch: "mine"))) == "mine"


def test_a_worker_init_fn_runs_in_every_worker():
    loader = get_dataloader(Tagged(), num_workers=2, worker_init_fn=f"{__name__}.tag_worker")
    assert set(loader) == {"worker 0", "worker 1"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("timeout", 9.0), ("prefetch_factor", 4), ("persistent_workers", True), ("in_order", False), ("num_workers", 1)],
)
def test_arguments_for_workers_reach_torch(key, value):
    loader = get_dataloader(list(range(4)), **{"num_workers": 2, key: value})
    assert getattr(loader, key) == value
    assert sorted(map(int, loader)) == [0, 1, 2, 3]


def test_memory_is_pinned_by_default_only_with_a_gpu_and_enough_memory(monkeypatch):
    assert get_dataloader([1, 2]).pin_memory is False
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert get_dataloader([1, 2]).pin_memory is True
    monkeypatch.setattr("alchemy.data.loader.memory_available", lambda: 2**30)
    assert get_dataloader([1, 2]).pin_memory is False
    assert get_dataloader([1, 2], pin_memory=True).pin_memory is True


def test_a_context_and_a_generator_of_ones_own_are_kept():
    spawn = multiprocessing.get_context("spawn")
    generator = torch.Generator()
    loader = get_dataloader([1, 2], num_workers=1, multiprocessing_context=spawn, generator=generator)
    assert loader.multiprocessing_context is spawn
    assert loader.generator is generator


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": {"type": "torch.utils.data.RandomSampler"}}])
@pytest.mark.parametrize("made", [int, lambda seed: torch.Generator().manual_seed(seed)], ids=["number", "generator"])
def test_a_generator_of_ones_own_decides_the_order_of_each_epoch(options, made):
    first, again, other = (order(3, generator=made(seed), **options) for seed in (1, 1, 2))
    assert first == again
    assert sorted(first) == sorted(other) == list(range(20))
    assert first != other
    assert first != order(3, **options)
    if "shuffle" in options or made is int:
        assert first != order(4, generator=made(1), **options)  # the loop sets a seed for each epoch


@pytest.mark.parametrize("wrong", ["seven", 1.5, True, [1]])
def test_a_generator_is_a_whole_number(wrong):
    with pytest.raises(AlchemyError, match=r"generator must be an integer or a torch\.Generator, got"):
        get_dataloader([1, 2], generator=wrong)


def test_workers_draw_other_random_numbers_from_another_seed():
    draws = [get_dataloader(Noise(), seed=seed, num_workers=2) for seed in (1, 1, 2)]
    first, again, other = ([float(number) for number in loader] for loader in draws)
    assert first == again != other
    assert len(set(first)) == len(first)


class Noise(Squares):
    def __getitem__(self, index):
        return torch.rand(())


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"batch_sise": 2}, "unknown loader option 'batch_sise'; did you mean 'batch_size'"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"batch_size": "8"}, "batch_size must be an integer or none, not the string '8'"),
        ({"num_workers": -1}, "num_workers must be at least 0, not -1"),
        ({"num_workers": None}, "num_workers must be an integer, not None"),
        ({"timeout": -1}, "timeout must be at least 0, not -1"),
        ({"shuffle": "yes"}, "shuffle must be true or false or none, not the string 'yes'"),
        ({"persistent_workers": True}, "persistent_workers needs workers; set num_workers"),
        ({"prefetch_factor": 2}, "prefetch_factor needs workers"),
        (
            {"num_workers": 1, "multiprocessing_context": "spwan"},
            "unknown multiprocessing_context 'spwan'; did you mean 'spawn'",
        ),
        ({"drop_last": True}, "drop_last needs batch_size"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler cannot be combined with batch_size"),
        ({"sampler": [0], "shuffle": True}, "sampler cannot be combined with shuffle"),
        ({"sampler": "torch.utils.data.NoSuchSampler"}, "sampler: module 'torch.utils.data' has no 'NoSuchSampler'"),
        ({"sampler": {"num_samples": 3}}, "sampler needs a 'type'"),
        ({"sampler": {"type": "torch.utils.data.RandomSampler", "nums": 1}}, "RandomSampler has no option 'nums'"),
        (
            {"sampler": {"type": "torch.utils.data.RandomSampler", "num_samples": -1}},
            r"sampler\] RandomSampler could not",
        ),
        ({"collate_fn": "no_module.fn"}, "collate_fn: .*there is no module 'no_module'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_argument_is_named(kwargs, message):
    with pytest.raises(AlchemyError, match=message):
        get_dataloader(list(range(4)), **kwargs)


@pytest.mark.parametrize("key", ["shuffle", "sampler", "batch_sampler"])
def test_iterable_data_has_no_order_for_a_sampler_to_choose(key):
    with pytest.raises(AlchemyError, match=f"{key} cannot be used with iterable data.*Shuffle"):
        get_dataloader(Endless(), 0, **{key: True})  # type: ignore[arg-type]


def test_what_is_no_data_set_is_refused():
    with pytest.raises(AlchemyError, match="Strange is not a dataset"):
        get_dataloader(Strange())


def test_workers_without_a_split_are_refused():
    with pytest.raises(AlchemyError, match=r"each of 2 workers would read all.*SplitByWorker"):
        get_dataloader(stream(Shuffle), num_workers=2)
    assert isinstance(get_dataloader(stream(Shuffle), num_workers=1), Loader)


def test_splitting_twice_is_refused_where_it_would_lose_samples():
    with pytest.raises(AlchemyError, match="the data is split 2 times, which loses samples"):
        get_dataloader(stream(SplitByWorker, Shuffle, SplitByWorker), num_workers=2)
    assert len(list(get_dataloader(stream(SplitByWorker, SplitByWorker)))) == 20


@pytest.mark.parametrize("workers", [0, 2])
def test_data_that_yields_nothing_is_an_error_that_names_the_pipe(workers):
    pipes = (SplitByWorker, lambda pipe: Batch(pipe, 30, drop_last=True))
    with pytest.raises(
        AlchemyError, match=r"the data is empty: alchemy\.pipeline\.itr\.Batch yields nothing; there are fewer samples"
    ):
        list(get_dataloader(stream(*pipes), num_workers=workers))


def test_an_empty_list_is_an_error_too():
    with pytest.raises(AlchemyError, match=r"the data is empty: builtins\.list"):
        list(get_dataloader([]))


@pytest.mark.parametrize("sampler", [{}, {"sampler": "torch.utils.data.SequentialSampler"}])
def test_a_batch_that_drop_last_drops_is_named(sampler):
    with pytest.raises(
        AlchemyError, match="list yields nothing; there are fewer samples than batch_size, and drop_last drops"
    ):
        list(get_dataloader([1, 2], batch_size=3, drop_last=True, **sampler))


def test_what_cannot_be_sent_to_a_worker_is_named():
    loader = get_dataloader(Unpicklable(), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(AlchemyError, match=r"Unpicklable\.parse cannot be sent to a worker"):
        next(iter(loader))
