"""Optimisers: every parameter in exactly one group, clipped as torch clips, plain numbers in the state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import tomlkit
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger
from torch import nn

import alchemy.runner  # noqa: F401 (lets parts of older projects be built)
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.nn.adamw import BertAdamW
from alchemy.nn.groups import as_groups, hidden, split_decay, trf_groups, undecayed
from alchemy.nn.losses import Focal
from alchemy.optim import SGD, AlchemyOptimizer, build_optimizer
from alchemy.update import GradientUpdater
from alchemy.util.optim import prepare_trf_based_model_params
from alchemy.window import Window

ADAMW = {"type": "alchemy.optim.AdamW", "lr": 0.1}


class Wrapper(AlchemyModel):
    """Any module as a model."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.model = module


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))


@contextmanager
def optimising(table: dict[str, Any], module: nn.Module | None = None, model: type[Wrapper] = Wrapper) -> Iterator[Run]:
    with Run({"optim": table}) as run:
        run.model = model(net() if module is None else module)
        run.optim = build_optimizer(run)
        yield run


@contextmanager
def warned() -> Iterator[list[str]]:
    lines: list[str] = []
    number = logger.add(lines.append, level="WARNING", format="{message}")
    yield lines
    logger.remove(number)


def give_gradients(module: nn.Module, scale: float = 1.0) -> None:
    torch.manual_seed(1)
    for param in module.parameters():
        param.grad = torch.randn_like(param) * scale


def names_of(module: nn.Module, params: list[nn.Parameter]) -> set[str]:
    known = {id(param): name for name, param in module.named_parameters()}
    return {known[id(param)] for param in params}


# -- groups
class Zoo(nn.Module):
    """Layers drawn by hypothesis; the first and last may share a weight, some are frozen."""

    def __init__(self, kinds: list[str], tied: bool, frozen: bool) -> None:
        super().__init__()
        make = {
            "linear": lambda: nn.Linear(4, 4),
            "norm": lambda: nn.LayerNorm(4),
            "batch": lambda: nn.BatchNorm1d(4),
            "rms": lambda: nn.RMSNorm(4),
            "lstm": lambda: nn.LSTM(4, 4),
            "attention": lambda: nn.MultiheadAttention(4, 2),
            "embedding": lambda: nn.Embedding(4, 4),
            "bare": lambda: nn.ParameterList([torch.zeros(2), torch.zeros(())]),
        }
        self.encoder = nn.Linear(4, 4)
        self.layers = nn.ModuleList(make[kind]() for kind in kinds)
        self.head = nn.Linear(4, 4)
        if tied:
            self.head.weight = self.encoder.weight
        if frozen:
            self.layers.requires_grad_(False)


KINDS = st.lists(
    st.sampled_from(["linear", "norm", "batch", "rms", "lstm", "attention", "embedding", "bare"]), max_size=5
)


@given(
    KINDS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([False, True, ["bias", "layers.0"]]),
    st.sampled_from([None, 1e-4]),
)
@settings(max_examples=60, deadline=None)
def test_every_parameter_is_in_exactly_one_group(kinds: Any, tied: bool, frozen: bool, rule: Any, trf_lr: Any) -> None:
    model = Zoo(kinds, tied, frozen)
    whole = [{"params": model.parameters(), "weight_decay": 0.1}]
    for groups in (
        split_decay(as_groups(whole), undecayed(model, rule)),
        trf_groups(model, model.encoder, 0.1, trf_lr),
    ):
        listed = [id(param) for group in groups for param in group["params"]]
        assert sorted(listed) == sorted(id(param) for param in model.parameters())
        torch.optim.AdamW(groups)  # torch refuses a parameter that is there twice


def test_biases_and_normalisation_are_spared_from_decay() -> None:
    with optimising({**ADAMW, "weight_decay": 0.3, "no_decay": True}) as run:
        decay, free = run.optim.param_groups
        assert (decay["weight_decay"], free["weight_decay"]) == (0.3, 0.0)
        assert names_of(run.model.model, decay["params"]) == {"0.weight", "2.weight"}
    with optimising({**ADAMW, "no_decay": ["0.*"]}) as run:
        assert names_of(run.model.model, run.optim.param_groups[1]["params"]) == {"0.weight", "0.bias"}
    with optimising(ADAMW) as run:
        assert len(run.optim.param_groups) == 1


def test_fault_2_the_head_of_a_transformer_is_in_the_optimiser() -> None:
    model = nn.ModuleDict({"encoder": net(), "head": nn.Linear(2, 2), "norm": nn.LayerNorm(2)})
    encoder, decay, free = prepare_trf_based_model_params(model, model["encoder"], weight_decay=0.2, trf_lr=3e-5)
    assert encoder["lr"] == 3e-5
    assert {name.split(".")[0] for name in names_of(model, encoder["params"])} == {"encoder"}
    assert (names_of(model, decay["params"]), decay["weight_decay"]) == ({"head.weight"}, 0.2)
    assert (names_of(model, free["params"]), free["weight_decay"]) == ({"head.bias", "norm.weight", "norm.bias"}, 0.0)


def test_optim_params_may_be_anything_that_makes_sense() -> None:
    module = net()
    for given_params in (
        module.parameters(),
        module.named_parameters(),
        {"params": module.parameters()},
        [*module.parameters()],
    ):
        (group,) = as_groups(given_params)
        assert len(group["params"]) == 6
    weight = module[0].weight
    with pytest.raises(AlchemyError, match=r"shape \(3, 4\) is in group 0 and in group 1"):
        as_groups([{"params": [weight]}, {"params": [weight]}])
    with pytest.raises(AlchemyError, match="group 0 of optim_params has no 'params', only 'param'"):
        as_groups([{"param": [weight]}])
    with pytest.raises(AlchemyError, match="optim_params returned a str"):
        as_groups(["weight"])


class Encoded(Wrapper):
    """An old-style model: reads a key of [optim] that no optimiser knows."""

    def optim_params(self, **kwargs: Any) -> Any:
        assert kwargs["type"].endswith("W")
        return [
            {"params": iter([*self.model[0].parameters()]), "lr": kwargs["head_lr"]},
            {"params": self.model[1:].parameters()},
        ]


@pytest.mark.parametrize("kind", ["alchemy.optim.AdamW", "torch.optim.AdamW", "alchemy.optim.HFAdamW"])
def test_the_model_gets_the_whole_table(kind: str) -> None:
    with warned() as lines, optimising({"type": kind, "lr": 0.1, "head_lr": 0.7}, model=Encoded) as run:
        assert run.optim.get_lr() == [0.7, 0.1]
        run.optim.reset(head_lr=0.2, lr=0.3)
        assert run.optim.get_lr() == [0.2, 0.3]
    assert lines == ["[optim] 'head_lr' is left to Encoded.optim_params\n"]
    with warned() as lines, optimising({**ADAMW, "trf_lr": 0.1}):
        assert "trf_lr is not used: Wrapper has no optim_params" in lines[0]


def test_unknown_keys_are_refused() -> None:
    with (
        pytest.raises(AlchemyError, match="RAdam takes no 'learning_rate'"),
        optimising({"type": "torch.optim.RAdam", "learning_rate": 1}),
    ):
        pass
    with pytest.raises(AlchemyError, match="did you mean 'weight_decay'"), optimising({**ADAMW, "weigth_decay": 1}):
        pass
    with (
        pytest.raises(AlchemyError, match="no AlchemyOptimizer named 'AdamV'"),
        optimising({"type": "alchemy.optim.AdamV"}),
    ):
        pass
    with Run({}) as run, pytest.raises(AlchemyError, match=r"needs a table \[optim\]"):
        build_optimizer(run)


# -- what is not trained
def test_learnable_losses_are_optimised_without_decay() -> None:
    class WithLoss(Wrapper):
        def __init__(self, module: nn.Module) -> None:
            super().__init__(module)
            self.criterion = Focal(learnable=True)

    with warned() as lines, optimising({**ADAMW, "weight_decay": 0.5}, model=WithLoss) as run:
        group = run.optim.param_groups[-1]
        assert {id(p) for p in group["params"]} == {id(run.model.criterion.alpha), id(run.model.criterion.gamma)}
        assert group["weight_decay"] == 0.0
    assert lines == []


def test_parameters_that_will_not_be_trained_are_reported_once() -> None:
    module = net()
    module.blocks = [nn.Linear(2, 2), {"deep": nn.Linear(2, 2)}]
    assert hidden(module) == [("blocks", 4)]
    with warned() as lines, optimising(ADAMW, module) as run:
        assert "4 parameters in the plain list or dict 'blocks' are not trained" in lines[0]
        module.late = nn.Linear(2, 2)
        run.optim.report_missing()
        run.optim.report_missing()
        assert len(lines) == 2
        assert "not trained: late.weight, late.bias" in lines[1]
        run.optim.reset()
        assert run.optim.missing() == []


# -- updates
OPTIMIZERS = [
    ("alchemy.optim.AdamW", torch.optim.AdamW, {"betas": [0.8, 0.9], "weight_decay": 0.1, "amsgrad": True}),
    ("alchemy.optim.Adam", torch.optim.Adam, {"eps": 1e-6}),
    ("alchemy.optim.SGD", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    ("alchemy.optim.Adafactor", torch.optim.Adafactor, {"beta2_decay": -0.7}),
    ("torch.optim.RAdam", torch.optim.RAdam, {"betas": [0.8, 0.9]}),
]


@pytest.mark.parametrize(("name", "kind", "options"), OPTIMIZERS)
@pytest.mark.parametrize("max_norm", [None, 0.5, 100.0])
def test_updates_are_those_of_torch(name: str, kind: Any, options: dict[str, Any], max_norm: float | None) -> None:
    module = net()
    twin = copy.deepcopy(module)
    reference = kind(
        twin.parameters(), lr=0.1, **{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    )
    clip = {} if max_norm is None else {"max_grad_norm": max_norm}
    with optimising({"type": name, "lr": 0.1, **options, **clip}, module) as run:
        for scale in (1.0, 2.0):
            give_gradients(module, scale)
            give_gradients(twin, scale)
            norm = None if max_norm is None else nn.utils.clip_grad_norm_(twin.parameters(), max_norm)
            run.optim.step()
            reference.step()
            torch.testing.assert_close([*module.parameters()], [*twin.parameters()])
            torch.testing.assert_close(run.optim.grad_norm, norm)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_gradients_are_divided_and_clipped_as_dense_ones() -> None:
    def net_of(sparse: bool) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.EmbeddingBag(10, 4, sparse=sparse), nn.Linear(4, 1))

    weights, norms = [], []
    for sparse in (True, False):
        table = {"type": "torch.optim.Adagrad", "lr": 0.1, "max_grad_norm": 0.01}
        with optimising(table, net_of(sparse)) as run:
            run.model.model(torch.tensor([[1, 1, 2], [3, 1, 2]])).sum().backward()
            run.optim.multiply_grads(0.5)
            run.optim.step()
            weights.append([param.detach().clone() for param in run.model.model.parameters()])
            norms.append(run.optim.grad_norm)
    torch.testing.assert_close(weights[0], weights[1])
    torch.testing.assert_close(norms[0], norms[1])


def test_multiply_and_zero_gradients() -> None:
    with optimising(ADAMW, net().double()) as run:
        give_gradients(run.model.model)
        before = [param.grad.clone() for param in run.optim.params]
        run.optim.multiply_grads(1 / 3)
        run.optim.multiply_grads(torch.tensor(3.0, dtype=torch.float64))
        torch.testing.assert_close([param.grad for param in run.optim.params], before, rtol=1e-15, atol=0)
        run.optim.zero_grad()
        assert all(param.grad is None for param in run.optim.params)
        run.optim.multiply_grads(2.0)
        run.optim.step()


def reference_bert_adamw(w: float, grads: list[float], lr: float, decay: float, correct: bool) -> float:
    m = v = 0.0
    for t, g in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        rate = lr * ((1 - 0.999**t) ** 0.5 / (1 - 0.9**t) if correct else 1)
        w -= rate * m / (v**0.5 + 1e-6)
        w -= lr * decay * w
    return w


@pytest.mark.parametrize("correct", [True, False])
def test_fault_11_hf_adamw_works_without_transformers(correct: bool) -> None:
    param = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = BertAdamW([param], lr=0.1, weight_decay=0.2, correct_bias=correct)
    grads = [0.3, -0.2, 0.5]
    for grad in grads:
        param.grad = torch.tensor([grad], dtype=torch.float64)
        optimizer.step()
    assert param.item() == pytest.approx(reference_bert_adamw(1.0, grads, 0.1, 0.2, correct), rel=1e-12)
    with optimising({"type": "alchemy.optim.HFAdamW", "lr": 0.1, "correct_bias": correct, "max_grad_norm": 1.0}) as run:
        assert run.optim.optimizer.defaults["correct_bias"] is correct


def all_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(all_plain(item) for item in value.values())
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(all_plain(item) for item in value)
    return type(value) in (int, float, bool, str, type(None), torch.Tensor)


class OldOptim(AlchemyOptimizer):
    """As projects write it: no arguments, torch's optimiser made from the raw table."""

    def __init__(self) -> None:
        super().__init__()
        table = tomlkit.parse("lr = 0.25\nbetas = [0.5, 0.75]\namsgrad = true")
        self.optimizer = torch.optim.AdamW(self.run.model.optim_params(**self.cfg), **table)


def test_fault_9_no_tomlkit_in_the_saved_state() -> None:
    table = tomlkit.parse('[optim]\ntype = "alchemy.optim.AdamW"\nlr = 0.25\nbetas = [0.5, 0.75]\neps = 1e-5')
    with Run(table) as run:
        run.model = Wrapper(net())
        for optim in (build_optimizer(run), OldOptim()):
            give_gradients(run.model.model)
            optim.step()
            assert optim.get_lr() == [0.25]
            assert all_plain(optim.state_dict())
            assert all_plain(optim.optimizer.defaults)


def test_old_optimisers_are_filled_from_their_table_and_reset() -> None:
    table = {"type": f"{__name__}.OldOptim", "max_grad_norm": 0.5, "mine": 3}
    with optimising(table) as run:
        assert isinstance(run.optim, OldOptim)
        assert run.optim.max_grad_norm == 0.5
        run.model.model = nn.Linear(2, 2)
        run.optim.reset(lr=0.125, max_grad_norm=2.0)
        assert (run.optim.get_lr(), run.optim.max_grad_norm, len(run.optim.params)) == ([0.125], 2.0, 2)
        assert run.optim.optimizer.defaults["amsgrad"] is True
        with pytest.raises(AlchemyError, match="AdamW takes no 'beta'; did you mean 'betas'"):
            run.optim.reset(beta=1)


@pytest.mark.parametrize("kind", ["alchemy.optim.SGD", "torch.optim.SGD"])
def test_clips_values_as_torch_does(kind: str) -> None:
    with optimising({"type": kind, "lr": 0.1, "clip_value": 0.5}) as run:
        give_gradients(run.model.module, 3.0)
        expected = copy.deepcopy(run.model.module)
        for param, other in zip(expected.parameters(), run.model.module.parameters(), strict=True):
            param.grad = other.grad.clone()
        nn.utils.clip_grad_value_(expected.parameters(), 0.5)
        torch.optim.SGD(expected.parameters(), lr=0.1).step()
        run.optim.step()
        for param, other in zip(expected.parameters(), run.model.module.parameters(), strict=True):
            assert torch.equal(param, other)


class Capped(SGD):
    """Clips in a way of its own, as projects could always do; sees the gradients of every update."""

    def clip(self, max_norm: float) -> None:
        self.clipped = max_norm
        for param in self.params:
            param.grad = torch.full_like(param, max_norm)


def test_a_clip_of_ones_own_is_used() -> None:
    with optimising({"type": f"{__name__}.Capped", "lr": 1.0, "max_grad_norm": 0.5}) as run:
        before = copy.deepcopy(run.model.module)
        give_gradients(run.model.module, 0.01)
        run.optim.step()
        assert run.optim.clipped == 0.5
        for param, other in zip(before.parameters(), run.model.module.parameters(), strict=True):
            assert torch.equal(param - 0.5, other)


def test_a_clip_of_ones_own_is_not_asked_without_need() -> None:
    with optimising({"type": f"{__name__}.Capped", "lr": 1.0, "max_grad_norm": 0.5}) as run:
        give_gradients(run.model.module, float("nan"))
        run.updater, run.train_sched = GradientUpdater(nonfinite="skip"), SimpleNamespace(num_updates=0, step_lr=int)
        assert run.updater.step().skipped
        run.optim.max_grad_norm = None
        run.optim.step()
        assert not hasattr(run.optim, "clipped")


def test_an_update_that_is_not_finite_is_masked_on_the_device_and_known_an_update_later() -> None:
    with optimising({"type": "torch.optim.SGD", "lr": 0.1, "fused": True}) as run:
        updater, window = GradientUpdater(nonfinite="skip"), Window(run)
        weight = run.optim.params[0]
        before = weight.detach().clone()
        for grad, skipped in ((float("nan"), False), (1.0, True), (1.0, False)):
            for param in run.optim.params:
                param.grad = torch.full_like(param, grad)
            norm = run.optim.measure()
            assert norm is not None
            result = updater._step_on_device(window, norm, 0.0)  # as on a GPU: nothing is waited for
            assert (result.skipped, updater.late) == (skipped, skipped)
        torch.testing.assert_close(weight.detach(), before - 0.2)
