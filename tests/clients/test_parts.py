"""Parts and methods that real projects of alchemy 0.x use, found missing by running them."""

import collections
import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel, BertPreTrainedModel

from alchemy.context import Run
from alchemy.data.loader import get_dataloader
from alchemy.errors import AlchemyError
from alchemy.legacy.pretrained import complete_pretrained
from alchemy.pipeline import ItrDataPipeline, build_datapipes
from alchemy.pipeline.itr import RepeatIter, Shuffle
from alchemy.runner import run, seed_worker
from alchemy.util.collate_fn import DefaultCollateFn
from alchemy.util.device import alloc, alloc1, check_installed
from alchemy.util.extention.rich import ProgressWOTotal
from tests import toy

SAMPLE = "alchemy.pipeline.itr.Sample"


def sampled(**table):
    return build_datapipes([{"type": SAMPLE, "epoch_items": 300, **table}])


def test_sample_draws_from_its_sources_by_their_ratios():
    pipe = sampled(datapipe={"a": ["a1", "a2"], "b": ["b1", "b2", "b3"]}, ratios={"b": 2.0, "a": 1.0})
    first, second = list(pipe), list(pipe)
    assert len(first) == len(pipe) == 300
    assert first != second  # another epoch draws others
    counts = collections.Counter(text[0] for text in first)
    assert 160 < counts["b"] < 240
    assert [text for text in first if text[0] == "b"][:4] == ["b1", "b2", "b3", "b1"]  # a source starts again


def test_sample_is_a_function_of_the_seed_and_shared_among_workers():
    split = {"type": "alchemy.pipeline.itr.SplitByWorker"}
    source = [{"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": list(range(10))}]
    pipe = build_datapipes([{"type": SAMPLE, "datapipe": [source, source], "ratios": [1, 3], "epoch_items": 9}, split])
    drawn = [sorted(map(int, get_dataloader(pipe, seed=5, num_workers=workers))) for workers in (0, 2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 9


@pytest.mark.parametrize("table", [
    {"datapipe": [[1], [2]], "ratios": [1]},
    {"datapipe": {"a": [1]}, "ratios": {"b": 1}},
    {"datapipe": [[1]], "ratios": {"a": 1}},
    {"datapipe": [[1]], "ratios": [-1]},
    {"datapipe": [], "ratios": []},
])  # fmt: skip
def test_sample_refuses_ratios_that_do_not_fit(table):
    with pytest.raises(AlchemyError, match="Sample: 'ratios'"):
        sampled(**table)


def test_repeat_iter_starts_again():
    items = RepeatIter([1, 2])
    assert [next(items) for _ in range(5)] == [1, 2, 1, 2, 1]
    assert list(RepeatIter([])) == []


class Reader(ItrDataPipeline):
    def __init__(self, datapipe, **kwargs):
        super().__init__(datapipe)
        self.require_single_source()


def test_a_pipe_may_require_a_single_source():
    inner = Shuffle([1])
    assert Reader(inner).datapipe is Reader([inner]).datapipe is Reader({"a": inner}).datapipe is inner
    assert Reader(["a.txt", "b.txt"]).datapipe == ["a.txt", "b.txt"]  # a list of files is one source
    with pytest.raises(AlchemyError, match="Reader reads from one pipe, got 2"):
        Reader({"a": inner, "b": inner})


def test_tensors_are_padded_and_stacked():
    rows = DefaultCollateFn.padded_stack_tensor([torch.ones(1, 2), torch.zeros(2, 1)], padding=-1)
    assert rows.tolist() == [[[1, 1], [-1, -1]], [[0, -1], [0, -1]]]
    assert DefaultCollateFn.extend_tensor(torch.tensor([1, 2]), [3], fill=7).tolist() == [1, 2, 7]


def draw(index):
    return random.random(), np.random.rand()


class Draws(list):
    def __getitem__(self, index):
        return draw(index)


def test_seed_worker_gives_each_worker_of_torch_its_own_numbers():
    data: Any = Draws(range(2))
    epochs = [
        [tuple(map(float, row)) for row in DataLoader(data, num_workers=2, worker_init_fn=seed_worker, generator=seed)]
        for seed in (torch.Generator().manual_seed(1), torch.Generator().manual_seed(1))
    ]
    assert epochs[0] == epochs[1]
    assert len({number for row in epochs[0] for number in row}) == 4


def test_devices_of_several_runs():
    cpu = {"device": "cpu"}
    assert list(alloc(preferred_devices=[[-1], -1], wait_time=1.0)) == [cpu, cpu]
    assert alloc1(preferred_devices=[-1]) == cpu
    if not torch.cuda.is_available():
        assert alloc1([]) == cpu
        with pytest.raises(AlchemyError, match="no device 0"):
            alloc1([0, 1])
    assert check_installed("torch")
    assert not check_installed("no_such_package")


def test_progress_without_a_total():
    console = Console(record=True, width=80, force_terminal=True)
    with ProgressWOTotal(console=console) as bar:
        bar.advance(bar.add_task("reading"), 41)
    assert "reading 41" in console.export_text()


class KeepsTheFirst(toy.OldLine):
    def save(self, path, model=None):
        super().save(path, model)


def test_a_model_saves_the_module_that_it_is_given(tmp_path):
    with Run({"tag": "x", "model": {}}):
        model = KeepsTheFirst()
        other = copy.deepcopy(model.module)
        nn.init.constant_(other[0].weight, 7.0)
        model.save(tmp_path / "a", other)
        model.save(tmp_path / "b")
        model.load(tmp_path / "a")
        assert model.module[0].weight.item() == 7.0


class NoPostInit(BertPreTrainedModel):
    """As models were written for transformers 3: the constructor ends without `post_init()`."""

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.head = nn.Linear(config.hidden_size, 3)
        self.init_weights()


class OldBert(toy.OldLine):
    def __init__(self):
        super().__init__()
        path = self.model_cfg["bert"]
        self.bert = NoPostInit.from_pretrained(path)


def test_a_pretrained_model_without_post_init(tmp_path):
    sizes = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    saved = BertModel(BertConfig(**sizes, intermediate_size=8))
    saved.save_pretrained(tmp_path)
    cfg = toy.config(model={"type": f"{__name__}.OldBert", "bert": str(tmp_path)}, sched__epochs=1)
    run([cfg], device=[-1], raise_errors=True)
    complete_pretrained()
    loaded = NoPostInit.from_pretrained(tmp_path)
    assert torch.equal(loaded.bert.embeddings.word_embeddings.weight, saved.embeddings.word_embeddings.weight)
    assert loaded.all_tied_weights_keys == {}
