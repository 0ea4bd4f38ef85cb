"""Layers that are faster on the CPU than those of torch, with the same results."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from alchemy.nn.dropout import Dropout
from alchemy.nn.linear import LARGE, Linear


# -- dropout
@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_dropout_drops_its_share_and_leaves_the_mean(p):
    torch.manual_seed(0)
    count = 2**20
    made = Dropout(p)(torch.ones(count))
    share = float((made == 0).double().mean())
    assert share == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / count) + 2**-17)
    assert made.unique().tolist() == [0.0, pytest.approx(1 / (1 - p), rel=1e-2 if p > 0.99 else 1e-3)]
    assert float(made.double().mean()) == pytest.approx(1, abs=6 * math.sqrt(p / (1 - p) / count))


@given(shape=st.lists(st.integers(0, 7), max_size=4), seed=st.integers(0, 2**32))
def test_dropout_takes_any_shape_and_is_a_function_of_the_seed(shape, seed):
    states, layer = torch.randn(shape), Dropout(0.4)
    torch.manual_seed(seed)
    made = layer(states)
    torch.manual_seed(seed)
    assert torch.equal(made, layer(states))
    kept = made != 0
    assert made.shape == states.shape
    assert torch.allclose(made[kept], states[kept] / 0.6, rtol=1e-4)


def test_what_dropout_draws_for_neighbors_has_nothing_in_common():
    torch.manual_seed(0)
    dropped = (Dropout(0.5)(torch.ones(2**20)) == 0).double() - 0.5
    for apart in (*range(1, 9), 16, 64, 128):
        assert abs(float((dropped[apart:] * dropped[:-apart]).mean())) < 5 * 0.25 / 2**10


def test_the_gradient_of_dropout_goes_where_the_numbers_went():
    states = torch.randn(8, 5, 3, dtype=torch.float64, requires_grad=True)
    made = Dropout(0.3)(states)
    made.sum().backward()
    assert torch.allclose(states.grad, torch.where(made == 0, 0.0, made.detach() / states.detach()))


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0), (1e-9, 1.0)])
def test_dropout_of_none_or_all(p, expected):
    assert torch.allclose(Dropout(p)(torch.ones(64)), torch.full((64,), expected))


def test_dropout_is_torchs_for_those_who_look_for_it():
    layer = Dropout(0.5)
    assert isinstance(layer, nn.Dropout)
    assert torch.equal(layer.eval()(torch.ones(9)), torch.ones(9))
    with pytest.raises(ValueError, match="between 0 and 1"):
        Dropout(1.5)


# -- linear layers
def large(bias: bool = True) -> Linear:
    torch.manual_seed(0)
    return Linear(256, LARGE // 256, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(256,), (1, 256), (5, 256), (320, 256), (64, 5, 256), (2, 3, 4, 256), (0, 256)])
def test_a_large_layer_is_that_of_torch(shape, bias):
    layer, states = large(bias), torch.randn(shape)
    with torch.no_grad():
        made = layer(states)
    assert torch.allclose(made, F.linear(states, layer.weight, layer.bias), atol=1e-5)


def test_a_large_layer_takes_what_does_not_lie_in_a_row():
    layer = large()
    states = torch.randn(256, 6, 5).transpose(0, 2)[::2]
    with torch.no_grad():
        assert torch.allclose(layer(states), F.linear(states, layer.weight, layer.bias), atol=1e-5)


@pytest.mark.filterwarnings("ignore:TF32")  # the flags of torch itself warn
def test_a_large_layer_is_left_to_onednn_in_a_search_only(monkeypatch):
    layer, states = large(), torch.randn(3, 256)
    calls = []
    monkeypatch.setattr(F, "linear", lambda *args: calls.append(args) or torch.zeros(1))
    with torch.no_grad():
        layer(states)
        assert calls == [] or not torch.backends.mkldnn.is_available()
        with torch.backends.mkldnn.flags(enabled=False):
            layer(states)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(states)
        layer.double()(states.double())
        Linear(8, 8)(torch.randn(2, 8))
    layer.float()(states)
    assert len(calls) >= 5


def test_a_large_layer_learns():
    layer, states = large(), torch.randn(3, 256, requires_grad=True)
    layer(states).sum().backward()
    assert torch.allclose(states.grad, layer.weight.detach().sum(0).expand(3, -1), atol=1e-4)


def test_a_layer_of_another_precision_is_refused_as_by_torch():
    with torch.no_grad(), pytest.raises(RuntimeError, match="dtype"):
        large().double()(torch.randn(3, 256))


@pytest.mark.parametrize(
    "bias",
    [
        torch.arange(2 * LARGE // 256).float()[::2],
        torch.ones(1).expand(LARGE // 256),
        torch.ones(LARGE // 256, 2)[:, 0],
    ],
    ids=["every second", "one for all", "a column"],
)
def test_a_bias_that_does_not_lie_in_a_row_is_read_as_it_is(bias):
    layer, states = large(), torch.randn(3, 256)
    layer.bias = nn.Parameter(bias)
    with torch.no_grad():
        assert torch.allclose(layer(states), F.linear(states, layer.weight, bias), atol=1e-5)


def test_too_few_features_are_told_as_by_torch():
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        large()(torch.randn(3, 255))


# -- both
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("layer", [Dropout(0.3), Linear(256, LARGE // 256)], ids=["dropout", "linear"])
def test_a_compiler_sees_the_layers_of_torch(layer, grad):
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with torch.set_grad_enabled(grad):
        assert compiled(torch.ones(3, 256)).shape == layer(torch.ones(3, 256)).shape


@pytest.mark.parametrize("layer", [Dropout(0.3), Linear(256, LARGE // 256)], ids=["dropout", "linear"])
def test_layers_go_by_the_device_of_what_they_are_given(layer):
    states = torch.ones(3, 256)
    with torch.device("meta"), torch.no_grad():
        assert layer(input=states).device.type == "cpu"
