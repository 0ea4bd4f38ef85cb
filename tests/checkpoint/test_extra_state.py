"""The extra state of a module is saved with its weights, and restored from there and from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from alchemy.checkpoint.files import write
from alchemy.checkpoint.manifest import Manifest
from alchemy.checkpoint.run_state import collect_state
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.nn.losses import Loss
from alchemy.runner import run
from tests.toy import Line, config


class Counting(nn.Linear):
    """A module with counts, as numbers and tensors."""

    def __init__(self, state: Any) -> None:
        super().__init__(1, 1)
        self.seen = state

    def get_extra_state(self) -> Any:
        return self.seen

    def set_extra_state(self, state: Any) -> None:
        self.seen = state


class Margin(Loss):
    """A loss with such counts."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.inner = Counting(state)


class Model(AlchemyModel):
    def __init__(self, state: Any = None) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(1, 1), Counting(state))
        self.criterion = Margin(state)


class CountingLine(Line):
    """The line of the other tests, with a count of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(Counting({"calls": 0}), nn.Identity())

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        self.module[0].seen["calls"] += 1
        return super().forward(batch, needs_loss, requires_grad, **kwargs)


@pytest.fixture(autouse=True)
def opened() -> Iterator[Run]:
    with Run(config()) as opened:
        yield opened


def as_weights(model: AlchemyModel, folder: Path) -> None:
    model.save(folder)


def as_checkpoint(model: AlchemyModel, folder: Path) -> None:
    write(folder, collect_state({"model": model}).files(), Manifest(update=1, epoch=0, step=1, time=""))


STATES: list[Any] = [
    {"tokens": 3, "mean": torch.tensor([1.0, 2.0])},
    None,
    (1, "two", float("inf")),
    torch.tensor([3.0]),
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("save", [as_weights, as_checkpoint])
@pytest.mark.parametrize("state", STATES[:3], ids=["dict", "none", "tuple"])
def test_it_comes_back(
    tmp_path: Path, warnings: list[str], save: Callable[[AlchemyModel, Path], None], state: Any, strict: bool
) -> None:
    model, other = Model(state), Model("before")
    save(model, tmp_path / "saved")
    other.load(tmp_path / "saved", strict=strict)
    assert repr(other.module[1].seen) == repr(other.criterion.inner.seen) == repr(state)
    assert torch.equal(other.module[0].weight, model.module[0].weight)
    assert warnings == []


def test_a_tensor_is_one_of_the_weights(tmp_path: Path) -> None:
    model, other = Model(STATES[3]), Model(torch.zeros(1))
    model.save(tmp_path / "saved")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "criterion.safetensors",
        "model.safetensors",
    ]
    other.load(tmp_path / "saved")
    assert torch.equal(other.module[1].seen, STATES[3])


def test_what_cannot_be_saved_is_told_once_and_stays_as_it_is(tmp_path: Path, warnings: list[str]) -> None:
    model, other = Model(object()), Model("before")
    for _ in range(2):
        model.save(tmp_path / "saved")
    (told,) = warnings
    assert told == "1._extra_state (object) is neither a JSON value nor a tensor and is not saved with the weights"
    other.load(tmp_path / "saved")
    assert other.module[1].seen == "before"
    assert warnings[1].endswith("saved has no 1._extra_state for model: keeping the current value")


def test_other_programs_find_the_weights_alone_and_theirs_are_taken(tmp_path: Path, warnings: list[str]) -> None:
    model = Model({"tokens": 3})
    model.save(tmp_path / "saved")
    assert sorted(load_file(tmp_path / "saved/model.safetensors")) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    for file in (tmp_path / "saved").glob("*.extra.*"):
        file.unlink()
    model.load(tmp_path / "saved")
    assert model.module[1].seen == {"tokens": 3} and len(warnings) == 2


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    model = Model({"tokens": 3})
    model.save(tmp_path / "saved")
    (tmp_path / "saved/model.extra.safetensors").write_bytes(b"nothing")
    with pytest.raises(AlchemyError, match=r"cannot read .*model\.extra\.safetensors'"):
        model.load(tmp_path / "saved")


def test_the_best_model_of_a_run_is_saved(tmp_path: Path) -> None:
    best = {"type": "alchemy.pipeline.eval.SaveBest", "monitor": "loss", "mode": "min"}
    cfg = config(tmp_path, model={"type": f"{__name__}.CountingLine"}, sched__epochs=1, task__evalpipes=[best])
    cfg["sched"]["pipes"] = [{"type": "alchemy.pipeline.sched.EvalEEPipeline"}]
    (result,) = run([cfg], device=[-1], raise_errors=True)
    assert result.record_dir is not None
    for folder in ("checkpt/best", "state/last"):
        with Run(cfg):
            model = CountingLine()
            model.load(result.record_dir / folder)
            assert model.module[0].seen == {"calls": 8}  # four training steps and four evaluation steps
