"""The layout of states in files, and that `load` of the model reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alchemy.checkpoint.files import read, write
from alchemy.checkpoint.manifest import Manifest
from alchemy.checkpoint.run_state import STATE, collect_state, restore
from alchemy.context import Run
from alchemy.errors import Refused
from alchemy.model import AlchemyModel
from alchemy.nn.losses import Loss
from tests.checkpoint.faults import FaultyDisk
from tests.toy import config


class Margin(Loss):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(2))


class Odd(nn.Module):
    """Two names for one tensor, a view of it, an extra state, an empty one; with `turned`, also a transposed view."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.register_buffer("window", self.one.weight.data[1])
        if turned:
            self.register_buffer("turned", self.one.weight.data.t())
        self.register_buffer("empty", torch.zeros(0, 2))
        self.seen = {"tokens": 3, "mean": torch.rand(2)}

    def get_extra_state(self) -> Any:
        return self.seen

    def set_extra_state(self, state: Any) -> None:
        self.seen = state


class Model(AlchemyModel):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.model = module
        self.criterion = Margin()


@pytest.fixture
def run() -> Iterator[Run]:
    with Run(config()) as run:
        yield run


def saved(parts: dict[str, Any], folder: Path) -> dict[str, Any]:
    write(folder, collect_state(parts).files(), Manifest(update=1, epoch=0, step=1, time=""), FaultyDisk())
    return read(folder)


def test_names_are_those_that_load_expects_and_the_rest_lies_elsewhere(run: Run, tmp_path: Path) -> None:
    files = saved({"model": Model(Odd())}, tmp_path / "u1")
    assert sorted(files) == ["criterion.safetensors", "model.safetensors", "parts.safetensors", "state.json"]
    assert sorted(files["model.safetensors"]) == ["empty", "one.bias", "one.weight", "two.bias"]
    assert sorted(files["parts.safetensors"]) == ["model._extra_state.mean", "model.window"]


@pytest.mark.parametrize("turned", [True, False])
def test_a_model_of_every_oddity_comes_back(run: Run, tmp_path: Path, turned: bool) -> None:
    torch.manual_seed(1)
    model, other = Model(Odd(turned)), Model(Odd(turned))
    restore({"model": other}, saved({"model": model}, tmp_path / "u1"), "u1")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in _tensors(model).items())
    assert other.module.seen["tokens"] == 3
    assert torch.equal(other.module.seen["mean"], model.module.seen["mean"])
    assert other.module.two.weight is other.module.one.weight


def _tensors(model: AlchemyModel) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


@pytest.mark.parametrize("tied", [True, False])
def test_the_folder_is_one_that_load_reads(run: Run, tmp_path: Path, tied: bool) -> None:
    def make() -> Model:
        module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
        if tied:
            module[1].weight = module[0].weight
        return Model(module)

    model, other = make(), make()
    saved({"model": model, "optim": torch.optim.SGD(model.parameters())}, tmp_path / "u1")
    other.load(tmp_path / "u1")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in _tensors(model).items())
    model.save(tmp_path / "own")
    own = {file.name: sorted(read_names(file)) for file in (tmp_path / "own").iterdir()}
    assert {name: sorted(read_names(tmp_path / "u1" / name)) for name in own} == own


def read_names(file: Path) -> list[str]:
    from alchemy.checkpoint.files import read_tensors

    return list(read_tensors(file))


def test_only_the_name_of_a_loss_is_one(run: Run, tmp_path: Path) -> None:
    """A module may be named `user:age`, as a key of a ModuleDict."""

    def make() -> Model:
        return Model(nn.ModuleDict({"user:age": nn.Linear(1, 2), "criterion": nn.Linear(1, 1)}))

    model, restored, loaded = make(), make(), make()
    files = saved({"model": model}, tmp_path / "u1")
    assert sorted(files) == ["criterion.safetensors", "model.safetensors", "state.json"]
    assert list(files["criterion.safetensors"]) == ["gamma"]
    restore({"model": restored}, files, "u1")
    loaded.load(tmp_path / "u1")
    for other in (restored, loaded):
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in _tensors(model).items())


def test_a_model_without_tensors_still_has_its_file(run: Run, tmp_path: Path) -> None:
    model = Model(nn.ReLU())
    saved({"model": model}, tmp_path / "u1")
    model.load(tmp_path / "u1")
    assert read_names(tmp_path / "u1" / "model.safetensors") == []


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad", "Adafactor", "RMSprop", "LBFGS"])
def test_an_optimizer_goes_on_as_if_nothing_had_been(tmp_path: Path, name: str) -> None:
    def go(module: nn.Module, optim: Any, steps: int) -> None:
        for step in range(steps):
            torch.manual_seed(step)

            def loss() -> Tensor:
                optim.zero_grad()
                value = module(torch.randn(4, 3)).square().mean()
                value.backward()
                return value

            optim.step(loss)

    def make() -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        module = nn.Linear(3, 2)
        return module, getattr(torch.optim, name)(module.parameters(), lr=0.1)

    first, optim = make()
    go(first, optim, 3)
    files = saved({"linear": first, "optim": optim}, tmp_path / "u1")
    second, other = make()
    restore({"linear": second, "optim": other}, files, "u1")
    go(first, optim, 2)
    go(second, other, 2)
    assert all(torch.equal(one, two) for one, two in zip(first.parameters(), second.parameters(), strict=True))
    assert [sorted(group) for group in optim.param_groups] == [sorted(group) for group in other.param_groups]


class Shadow:
    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights

    def state_dict(self) -> dict[str, Any]:
        return {"updates": 3, "weights": self.weights}

    def load_state_dict(self, state: Any) -> None:
        self.weights = state["weights"]


def test_the_average_has_a_file_with_the_names_of_the_model(tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    weights = dict(module.state_dict())  # even if it is the same memory
    files = saved({"model": module, "average": Shadow(weights), "nothing": object()}, tmp_path / "u1")
    assert sorted(files["ema.safetensors"]) == sorted(files["model.safetensors"]) == ["bias", "weight"]
    other = Shadow({})
    restore({"model": module, "average": other, "nothing": object()}, files, "u1")
    assert torch.equal(other.weights["weight"], module.weight)


def test_a_state_of_an_older_version_is_refused_with_the_reason() -> None:
    files = collect_state({}).files()
    restore({}, files, "state/u3")
    del files[STATE]["version"]  # the first one had none
    with pytest.raises(Refused, match=r"state/u3 has version 1 of the training state, .*resume it with the version"):
        restore({}, files, "state/u3")
