"""Every argument of the DataLoader can be set in a config file, and takes effect."""

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.config.toml_writer import format_inline
from alchemy.context import Run
from alchemy.data.loader import Loader, get_dataloader
from alchemy.data.loader_arguments import ARGUMENTS
from alchemy.errors import AlchemyError
from alchemy.pipeline import LstDataPipeline
from alchemy.task import build_task, load_datasets

HERE = __name__
CASES: dict[str, Any] = {}


class Probe(LstDataPipeline):
    """Numbers with the worker that read them; the first one waits for the number `after`, if given."""

    tag = "untouched"

    def __init__(self, *, folder: str, after: int = 0) -> None:
        super().__init__()
        self.folder, self.after = Path(folder), after

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = int(index)
        if index == 0 and self.after:
            wait_for(lambda: self.read(self.after))
        elif index == self.after:
            time.sleep(0.1)  # earlier samples are on their way
        (self.folder / f"read{index}").touch()
        how = type(multiprocessing.current_process()).__name__
        return {"number": index, "pid": os.getpid(), "how": how, "tag": self.tag}

    def read(self, index: int) -> bool:
        return (self.folder / f"read{index}").exists()


def wait_for(holds: Any) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def tag_worker(worker: int) -> None:
    dataset: Any = torch.utils.data.get_worker_info().dataset
    dataset.tag = f"worker {worker}"


def widened(batch: Any, *, width: int) -> dict[str, Any]:
    return {"number": [sample["number"] for sample in batch], "width": width}


def numbers_of(batch: Any) -> list[int]:
    return torch.as_tensor(batch["number"]).reshape(-1).tolist()


@pytest.fixture
def loader_of(tmp_path):
    """Return the loader of a split with these keys in a config file, for the seed of its run."""

    def make(*, after: int = 0, **keys: Any) -> Loader:
        pipes = [{"type": f"{HERE}.Probe", "folder": str(tmp_path), "after": after}]
        lines = [f"{key} = {format_inline(value)}" for key, value in {**keys, "pipes": pipes}.items()]
        text = ['tag = "arguments"', "seed = 1", "[task]", 'type = "alchemy.task.DefaultTask"', "[task.datasets.train]"]
        (tmp_path / "train.toml").write_text("\n".join([*text, *lines]) + "\n")
        with Run(tmp_path / "train.toml") as run:
            run.task = build_task(run)
            load_datasets(run)
            dataset, options = run.task.dataset("train")
            return get_dataloader(dataset, seed=run.seed, **options)

    return make


def case(function: Any) -> Any:
    CASES[function.__name__] = function
    return function


@case
def batch_size(loader_of):
    assert [len(numbers_of(batch)) for batch in loader_of(batch_size=4)] == [4, 4, 2]


@case
def shuffle(loader_of):
    order = [numbers_of(sample)[0] for sample in loader_of(shuffle=True)]
    assert order != sorted(order) == list(range(10))


@case
def sampler(loader_of):
    table = {"type": "torch.utils.data.SubsetRandomSampler", "indices": [2, 5, 7]}
    assert sorted(numbers_of(sample)[0] for sample in loader_of(sampler=table)) == [2, 5, 7]


@case
def batch_sampler(loader_of):
    inner = {"type": "torch.utils.data.SequentialSampler"}
    table = {"type": "torch.utils.data.BatchSampler", "sampler": inner, "batch_size": 6, "drop_last": True}
    assert [numbers_of(batch) for batch in loader_of(batch_sampler=table)] == [[0, 1, 2, 3, 4, 5]]


@case
def num_workers(loader_of):
    pids = {sample["pid"] for sample in loader_of(num_workers=2)}
    assert len(pids) == 2
    assert os.getpid() not in pids


@case
def collate_fn(loader_of):
    table = {"type": "alchemy.data.collate.Pad", "fields": {"number": {"type": "alchemy.data.columns.Kept"}}}
    (batch,) = loader_of(batch_size=10, collate_fn=table)
    assert batch["number"] == list(range(10))


@case
def pin_memory(loader_of):
    if torch.cuda.is_available():
        assert next(iter(loader_of(batch_size=2, pin_memory=True)))["number"].is_pinned()
    else:  # torch tries, and reports what is missing
        with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator is found"):
            next(iter(loader_of(batch_size=2, pin_memory=True)))


@case
def pin_memory_device(loader_of):
    assert loader_of().pin_memory_device == ""
    assert loader_of(pin_memory_device="cuda").pin_memory_device == "cuda"


@case
def drop_last(loader_of):
    assert [len(numbers_of(batch)) for batch in loader_of(batch_size=4, drop_last=True)] == [4, 4]


@case
def timeout(loader_of):
    # sample 9 is never read before sample 0 has arrived
    loader = loader_of(num_workers=1, timeout=0.2, after=9)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        next(iter(loader))
    (loader.dataset.folder / "read9").touch()  # no need to wait for its worker


@case
def worker_init_fn(loader_of):
    loader = loader_of(num_workers=2, worker_init_fn=f"{HERE}.tag_worker")
    assert {sample["tag"] for sample in loader} == {"worker 0", "worker 1"}


@case
def multiprocessing_context(loader_of):
    started = {
        name: {sample["how"] for sample in loader_of(num_workers=1, multiprocessing_context=name)}
        for name in ("fork", "spawn")
    }
    assert started == {"fork": {"ForkProcess"}, "spawn": {"SpawnProcess"}}


@case
def generator(loader_of):
    orders = [[numbers_of(s)[0] for s in loader_of(shuffle=True, generator=seed)] for seed in (7, 7, 8)]
    assert orders[0] == orders[1] != orders[2]


@case
def prefetch_factor(loader_of):
    loader = loader_of(num_workers=1, prefetch_factor=5)
    batches = iter(loader)
    next(batches)
    wait_for(lambda: loader.dataset.read(5))  # by default it is one of the first three
    assert not loader.dataset.read(6)


@case
def persistent_workers(loader_of):
    def passes(**keys):
        loader = loader_of(num_workers=1, **keys)
        return [{sample["pid"] for sample in loader} for _ in range(2)]

    first, second = passes(persistent_workers=True)
    assert first == second
    first, second = passes()
    assert first != second


@case
def in_order(loader_of):
    # the other worker has read 1 and 3 before 0 arrives
    order = [numbers_of(sample)[0] for sample in loader_of(num_workers=2, in_order=False, after=3)]
    assert order.index(1) < order.index(0)
    assert sorted(order) == list(range(10))


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_an_argument_in_a_config_takes_effect(argument, loader_of):
    assert argument in CASES, f"no case tries {argument}"
    CASES[argument](loader_of)


def test_a_function_gets_its_keywords_from_the_config(loader_of):
    table = {"type": f"{HERE}.widened"}
    assert next(iter(loader_of(batch_size=2, collate_fn={**table, "width": 3}))) == {"number": [0, 1], "width": 3}
    with pytest.raises(AlchemyError, match="collate_fn: widened requires 'width'; set 'width' in the config"):
        loader_of(batch_size=2, collate_fn=table)
    with pytest.raises(AlchemyError, match="got an unexpected keyword argument 'widht'; accepted: batch, width"):
        loader_of(batch_size=2, collate_fn={**table, "widht": 3})
