"""Optimizers: their parameters, clipping, resets; their contract is in contracts/test_optimizers.py."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import tomlkit
import torch
from torch import nn

import alchemy.runner  # noqa: F401 (lets parts of older projects be built)
from alchemy.accumulation import AccumulationWindow
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.nn.bert_adamw import BertAdamW
from alchemy.nn.losses import Focal
from alchemy.nn.param_groups import as_groups, find_hidden
from alchemy.optim import SGD, AlchemyOptimizer, build_optimizer
from alchemy.update import GradientUpdater
from alchemy.util.optim import prepare_trf_based_model_params
from tests.contracts.nets import Wrapper, all_plain, give_gradients, names_of, net, optimizing
from tests.logs import warned

ADAMW = {"type": "alchemy.optim.AdamW", "lr": 0.1}


def test_fault_2_the_head_of_a_transformer_is_in_the_optimizer() -> None:
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
    """An old-style model that reads a key of [optim] unknown to the optimizer."""

    def optim_params(self, **kwargs: Any) -> Any:
        assert kwargs["type"].endswith("W")
        return [
            {"params": iter([*self.model[0].parameters()]), "lr": kwargs["head_lr"]},
            {"params": self.model[1:].parameters()},
        ]


@pytest.mark.parametrize("kind", ["alchemy.optim.AdamW", "torch.optim.AdamW", "alchemy.optim.HFAdamW"])
def test_the_model_gets_the_whole_table(kind: str) -> None:
    with warned() as lines, optimizing({"type": kind, "lr": 0.1, "head_lr": 0.7}, model=Encoded) as run:
        assert run.optim.get_lr() == [0.7, 0.1]
        run.optim.reset(head_lr=0.2, lr=0.3)
        assert run.optim.get_lr() == [0.2, 0.3]
    assert lines == ["[optim] 'head_lr' is passed only to Encoded.optim_params"]
    with warned() as lines, optimizing({**ADAMW, "trf_lr": 0.1}):
        assert "trf_lr is not used: Wrapper does not define optim_params" in lines[0]


def test_unknown_keys_are_refused() -> None:
    with (
        pytest.raises(AlchemyError, match="RAdam has no option 'learning_rate'"),
        optimizing({"type": "torch.optim.RAdam", "learning_rate": 1}),
    ):
        pass
    with pytest.raises(AlchemyError, match="did you mean 'weight_decay'"), optimizing({**ADAMW, "weigth_decay": 1}):
        pass
    with (
        pytest.raises(AlchemyError, match="no AlchemyOptimizer named 'AdamV'"),
        optimizing({"type": "alchemy.optim.AdamV"}),
    ):
        pass
    with Run({}) as run, pytest.raises(AlchemyError, match=r"needs an \[optim\] table"):
        build_optimizer(run)


# -- frozen parameters
def test_learnable_losses_are_optimized_without_decay() -> None:
    class WithLoss(Wrapper):
        def __init__(self, module: nn.Module) -> None:
            super().__init__(module)
            self.criterion = Focal(learnable=True)

    with warned() as lines, optimizing({**ADAMW, "weight_decay": 0.5}, model=WithLoss) as run:
        group = run.optim.param_groups[-1]
        assert {id(p) for p in group["params"]} == {id(run.model.criterion.alpha), id(run.model.criterion.gamma)}
        assert group["weight_decay"] == 0.0
    assert lines == []


def test_parameters_that_will_not_be_trained_are_reported_once() -> None:
    module: Any = net()
    module.blocks = [nn.Linear(2, 2), {"deep": nn.Linear(2, 2)}]
    assert find_hidden(module) == [("blocks", 4)]
    with warned() as lines, optimizing(ADAMW, module) as run:
        assert "4 parameters in the plain list or dict 'blocks' are not trained" in lines[0]
        module.late = nn.Linear(2, 2)
        run.optim.report_missing()
        run.optim.report_missing()
        assert len(lines) == 2
        assert "not trained: late.weight, late.bias" in lines[1]
        run.optim.reset()
        assert run.optim.missing() == []


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_gradients_are_divided_and_clipped_as_dense_ones() -> None:
    def net_of(sparse: bool) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.EmbeddingBag(10, 4, sparse=sparse), nn.Linear(4, 1))

    weights, norms = [], []
    for sparse in (True, False):
        table = {"type": "torch.optim.Adagrad", "lr": 0.1, "max_grad_norm": 0.01}
        with optimizing(table, net_of(sparse)) as run:
            run.model.model(torch.tensor([[1, 1, 2], [3, 1, 2]])).sum().backward()
            run.optim.multiply_grads(0.5)
            run.optim.step()
            weights.append([param.detach().clone() for param in run.model.model.parameters()])
            norms.append(run.optim.grad_norm)
    torch.testing.assert_close(weights[0], weights[1])
    torch.testing.assert_close(norms[0], norms[1])


@pytest.mark.parametrize(
    ("table", "sparse"),
    [
        ({"type": "alchemy.optim.Adagrad"}, True),
        ({"type": "alchemy.optim.SGD", "momentum": 0.9}, True),
        ({"type": "alchemy.optim.SGD", "weight_decay": 0.1}, False),
        ({"type": "alchemy.optim.Adagrad", "fused": True}, False),
        ({"type": "alchemy.optim.AdamW"}, False),
        ({"type": "torch.optim.RMSprop"}, False),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_an_optimizer_that_takes_no_sparse_gradients_gets_dense_ones(table: dict[str, Any], sparse: bool) -> None:
    module = nn.Sequential(nn.EmbeddingBag(10, 4, sparse=True), nn.Linear(4, 1))
    with optimizing({**table, "lr": 0.1}, module) as run:
        module(torch.tensor([[1, 2]])).sum().backward()
        assert [param.grad.is_sparse for param in run.optim.params] == [sparse, False, False]
        run.optim.step()


def test_multiply_and_zero_gradients() -> None:
    with optimizing(ADAMW, net().double()) as run:
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
    with optimizing({"type": "alchemy.optim.HFAdamW", "lr": 0.1, "correct_bias": correct, "max_grad_norm": 1.0}) as run:
        assert run.optim.optimizer.defaults["correct_bias"] is correct


class OldOptim(AlchemyOptimizer):
    """An optimizer as projects write it: no arguments, torch's optimizer built from the raw table."""

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


def test_old_optimizers_are_filled_from_their_table_and_reset() -> None:
    table = {"type": f"{__name__}.OldOptim", "max_grad_norm": 0.5, "mine": 3}
    with optimizing(table) as run:
        assert isinstance(run.optim, OldOptim)
        assert run.optim.max_grad_norm == 0.5
        run.model.model = nn.Linear(2, 2)
        run.optim.reset(lr=0.125, max_grad_norm=2.0)
        assert (run.optim.get_lr(), run.optim.max_grad_norm, len(run.optim.params)) == ([0.125], 2.0, 2)
        assert run.optim.optimizer.defaults["amsgrad"] is True
        with pytest.raises(AlchemyError, match="AdamW has no option 'beta'; did you mean 'betas'"):
            run.optim.reset(beta=1)


@pytest.mark.parametrize("kind", ["alchemy.optim.SGD", "torch.optim.SGD"])
def test_clips_values_as_torch_does(kind: str) -> None:
    with optimizing({"type": kind, "lr": 0.1, "clip_value": 0.5}) as run:
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
    """Custom clipping, as old projects do it; sees the gradients of every update."""

    def clip(self, max_norm: float) -> None:
        self.clipped = max_norm
        for param in self.params:
            param.grad = torch.full_like(param, max_norm)


def test_a_clip_of_ones_own_is_used() -> None:
    with optimizing({"type": f"{__name__}.Capped", "lr": 1.0, "max_grad_norm": 0.5}) as run:
        before = copy.deepcopy(run.model.module)
        give_gradients(run.model.module, 0.01)
        run.optim.step()
        assert run.optim.clipped == 0.5
        for param, other in zip(before.parameters(), run.model.module.parameters(), strict=True):
            assert torch.equal(param - 0.5, other)


def test_a_clip_of_ones_own_is_not_asked_without_need() -> None:
    with optimizing({"type": f"{__name__}.Capped", "lr": 1.0, "max_grad_norm": 0.5}) as run:
        give_gradients(run.model.module, float("nan"))
        run.updater = GradientUpdater(nonfinite="skip")
        run.train_sched = SimpleNamespace(num_updates=0, cur_epoch=0, epochs=None, step_lr=int)
        assert run.updater.step().skipped
        run.optim.max_grad_norm = None
        run.optim.step()
        assert not hasattr(run.optim, "clipped")


def test_an_update_that_is_not_finite_is_masked_on_the_device_and_known_an_update_later() -> None:
    with optimizing({"type": "torch.optim.SGD", "lr": 0.1, "fused": True}) as run:
        updater, window = GradientUpdater(nonfinite="skip"), AccumulationWindow(run)
        weight = run.optim.params[0]
        before = weight.detach().clone()
        for grad, skipped in ((float("nan"), False), (1.0, True), (1.0, False)):
            for param in run.optim.params:
                param.grad = torch.full_like(param, grad)
            norm = run.optim.measure()
            assert norm is not None
            result = updater._step_on_device(window, norm, 0.0)  # as on a GPU: no synchronization
            assert (result.skipped, updater.late) == (skipped, skipped)
        torch.testing.assert_close(weight.detach(), before - 0.2)
