"""The contract of optimizers: each parameter in one group, the updates of torch, a plain state."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from alchemy.context import Run
from alchemy.nn.bert_adamw import BertAdamW
from alchemy.nn.param_groups import as_groups, find_undecayed, split_decay, trf_groups
from tests.contracts.nets import all_plain, give_gradients, names_of, net, optimizing
from tests.contracts.parts import each

TABLES: dict[str, dict[str, Any]] = {
    "AdamW": {"type": "alchemy.optim.AdamW", "betas": [0.8, 0.9], "weight_decay": 0.1, "amsgrad": True},
    "Adam": {"type": "alchemy.optim.Adam", "eps": 1e-6},
    "SGD": {"type": "alchemy.optim.SGD", "momentum": 0.9, "nesterov": True},
    "Adagrad": {"type": "alchemy.optim.Adagrad", "initial_accumulator_value": 0.1},
    "Adafactor": {"type": "alchemy.optim.Adafactor", "beta2_decay": -0.7},
    "HFAdamW": {"type": "alchemy.optim.HFAdamW", "weight_decay": 0.1},
    "RAdam": {"type": "torch.optim.RAdam", "betas": [0.8, 0.9]},
}


def reference(table: dict[str, Any], params: Any, **changes: Any) -> torch.optim.Optimizer:
    """Return the torch optimizer with the same options."""
    name = table["type"].rpartition(".")[2]
    kind: Any = BertAdamW if name == "HFAdamW" else getattr(torch.optim, name)
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items() if key != "type"}
    made: torch.optim.Optimizer = kind(params, **options, **changes)
    return made


@each("optim", TABLES)
@pytest.mark.parametrize("max_norm", [None, 0.5, 100.0])
def test_updates_are_those_of_torch(table: dict[str, Any], max_norm: float | None) -> None:
    module = net()
    twin = copy.deepcopy(module)
    theirs = reference(table, twin.parameters(), lr=0.1)
    clip = {} if max_norm is None else {"max_grad_norm": max_norm}
    with optimizing({**table, "lr": 0.1, **clip}, module) as run:
        for scale in (1.0, 2.0):
            give_gradients(module, scale)
            give_gradients(twin, scale)
            norm = None if max_norm is None else nn.utils.clip_grad_norm_(twin.parameters(), max_norm)
            run.optim.step()
            theirs.step()
            torch.testing.assert_close([*module.parameters()], [*twin.parameters()])
            torch.testing.assert_close(run.optim.grad_norm, norm)


@each("optim", TABLES)
def test_steps_lower_a_loss(table: dict[str, Any]) -> None:
    with optimizing({**table, "lr": 0.01}) as run:
        losses = []
        for _ in range(20):
            loss = (run.model.module(torch.ones(8, 4)) - 1).square().sum()
            run.optim.zero_grad()
            loss.backward()
            run.optim.step()
            losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


@each("optim", TABLES)
def test_a_state_goes_on_to_the_bit(table: dict[str, Any]) -> None:
    def steps(run: Run, *scales: float) -> None:
        for scale in scales:
            give_gradients(run.model.module, scale)
            run.optim.step()

    with optimizing({**table, "lr": 0.1}) as first:
        steps(first, 1.0, 2.0, 0.5)
        weights, state = copy.deepcopy((first.model.state_dict(), first.optim.state_dict()))
        steps(first, 3.0, 0.1)
        after = first.model.state_dict(), first.optim.state_dict()
    assert all_plain(state)
    with optimizing({**table, "lr": 0.7}) as second:
        second.model.load_state_dict(weights)
        second.optim.load_state_dict(state)
        steps(second, 3.0, 0.1)
        torch.testing.assert_close((second.model.state_dict(), second.optim.state_dict()), after, rtol=0, atol=0)


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
        split_decay(as_groups(whole), find_undecayed(model, rule)),
        trf_groups(model, model.encoder, 0.1, trf_lr),
    ):
        listed = [id(param) for group in groups for param in group["params"]]
        assert sorted(listed) == sorted(id(param) for param in model.parameters())
        torch.optim.AdamW(groups)  # torch rejects duplicate parameters


@each("optim", TABLES)
def test_biases_and_normalisation_are_spared_from_decay(table: dict[str, Any]) -> None:
    with optimizing({**table, "weight_decay": 0.3, "no_decay": True}) as run:
        decay, free = run.optim.param_groups
        assert (decay["weight_decay"], free["weight_decay"]) == (0.3, 0.0)
        assert names_of(run.model.model, decay["params"]) == {"0.weight", "2.weight"}
        assert names_of(run.model.model, decay["params"] + free["params"]) == {
            *dict(run.model.model.named_parameters())
        }
    with optimizing({**table, "no_decay": ["0.*"]}) as run:
        assert names_of(run.model.model, run.optim.param_groups[1]["params"]) == {"0.weight", "0.bias"}
    with optimizing(table) as run:
        assert len(run.optim.param_groups) == 1
