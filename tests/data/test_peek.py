"""Inspecting samples between pipes."""

from typing import Any

import numpy as np
import pytest
import torch

from alchemy.data.collate import Pad
from alchemy.data.peek import describe, peek, render
from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.itr import Batch, Filter, Map, Shuffle
from alchemy.pipeline.lst import Map as Noisy
from alchemy.pipeline.lst import SequenceWrapper
from alchemy.seeds import sample_rng


def ids(text):
    return {"text": text, "ids": np.array([ord(letter) for letter in text], dtype=np.int64)}


def chain():
    return Batch(Map(Shuffle(SequenceWrapper(["ab", "c", "d"])), ids), 2)


def test_each_stage_shows_its_settings_its_length_and_its_first_samples():
    stages = peek(chain(), 2)
    assert [stage.name.rpartition(".")[2] for stage in stages] == ["SequenceWrapper", "Shuffle", "Map", "Batch"]
    assert stages[0].params == {"datapipe": ["ab", "c", "d"]}
    assert stages[1].params == {"buffer_size": 1000}
    assert [stage.length for stage in stages] == [3, 3, 3, 2]
    assert all(len(stage.items) == 2 for stage in stages)


def test_the_samples_of_a_stage_are_those_of_the_stage_before_it():
    stages = peek(chain(), 3, seed=4)
    shuffled, mapped, batched = (stage.items for stage in stages[1:])
    assert [sample["text"] for sample in mapped] == shuffled
    assert [sample["text"] for batch in batched for sample in batch] == shuffled


def test_the_text_tells_shapes_and_dtypes():
    text = render(peek(chain(), 1, collate_fn=Pad()))
    assert "3. alchemy.pipeline.itr.Map(" in text
    assert "{text: str, ids: int64[" in text
    assert "5. collate_fn Pad" in text
    assert "ids: tensor int64[2, " in text


def test_a_pipe_that_fails_ends_the_list_and_says_why():
    stages = peek(Batch(Map(SequenceWrapper(["7", "x"]), "builtins.int")), 2)
    assert stages[-1].items == [7]
    assert "Map failed: ValueError: invalid literal for int() with base 10: 'x'; sample = 'x'" in render(stages)


def test_a_pipe_that_yields_nothing_is_marked():
    assert "! yields nothing" in render(peek(Filter(SequenceWrapper([1]), "operator.not_")))


def test_any_data_set_can_be_looked_at():
    data = torch.utils.data.TensorDataset(torch.arange(4), torch.ones(4))
    assert peek([7, 8, 9], 2)[0].items == [7, 8]
    assert peek(data, 2)[0].shapes == ["tuple[2] of tensor int64[] | tensor float32[]"] * 2


def test_declared_fields_are_shown():
    class Declared(Map):
        gives = {"ids": "int64"}

    assert "gives ids: int64" in render(peek(Declared(SequenceWrapper(["a"]), ids)))


@pytest.mark.parametrize(
    ("value", "kind"),
    [({"a": [1, 2]}, "{a: list[2] of int}"), ((), "tuple[0]"), (np.zeros((2, 3)), "float64[2, 3]"), ("x", "str")],
)
def test_values_are_described_by_kind_and_shape(value, kind):
    assert describe(value) == kind


def test_the_number_of_samples_must_be_positive():
    with pytest.raises(AlchemyError, match="at least 1, got 0"):
        peek([1], 0)


def test_a_chain_of_a_config_can_be_looked_at(tmp_path):
    (tmp_path / "a.txt").write_text("x\ny\n", "utf-8")
    pipes: list[Any] = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": [str(tmp_path / "a.txt")]},
        {"type": "alchemy.pipeline.itr.LineOpener"},
    ]
    assert peek(build_datapipes(pipes), 5)[-1].items == ["x", "y"]


def test_a_value_that_cannot_be_shown_is_no_end():
    text = render(peek(SequenceWrapper([{"x": 10**5000}]), 1))
    assert "a dict that cannot be displayed: Exceeds the limit" in text
    assert "{x: int}" in text


def noisy(value: float) -> float:
    return value + sample_rng().random()


def test_a_sample_may_ask_for_its_random_numbers():
    data = Noisy(SequenceWrapper([1.0, 2.0, 3.0]), noisy)
    first, again, other = (peek(data, 3, seed=seed)[-1] for seed in (1, 1, 2))
    assert not first.error and first.items == again.items != other.items
    assert len({item % 1 for item in first.items}) == 3  # each has its own
