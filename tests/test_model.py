"""The model wrapper, and the normalization of the loss."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.legacy.adapt import build_updater, get_loss
from alchemy.model import AlchemyModel, BackwardHandler
from alchemy.nn.losses import CrossEntropy, Focal, build_loss
from alchemy.optim import build_optimizer
from alchemy.plain_model import build_model
from alchemy.sched import build_sched
from alchemy.task import DefaultTask
from tests.logs import warned


class Tagger(AlchemyModel):
    """Token tags padded with -100, in float64; `style` is old or new."""

    def __init__(self, *, style: str = "new") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.style = style
        self.model = nn.Sequential(nn.Embedding(9, 6), nn.Tanh(), nn.Linear(6, 4)).double()
        self.criterion = CrossEntropy()

    def forward(self, batch: Tensor, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        logits = self.model(batch % 9).transpose(1, 2)
        if not needs_loss:
            return {"logits": logits}
        total, count = self.criterion(logits, torch.where(batch < 0, -100, batch % 4))
        if self.style == "old":
            return {"loss": self.backward.backward(total / count, requires_grad=requires_grad)}
        loss = self.backward.backward(total, requires_grad=requires_grad, count=count)
        return {"loss_sum": total.detach(), "count": count, "loss": loss}


class Returning(Tagger):
    """The same tags with a model that returns its loss and leaves the update to the loop."""

    def forward(self, batch: Tensor) -> dict[str, Any]:
        return {"logits": self.model(batch % 9).transpose(1, 2)}

    def loss(self, outputs: Any, batch: Tensor) -> Any:
        return self.criterion(outputs["logits"], torch.where(batch < 0, -100, batch % 4))


class Bad(AlchemyModel):
    """A forward pass with the mistake named `how`."""

    def __init__(self, *, how: str) -> None:
        super().__init__()
        self.model, self.how = nn.Linear(1, 2), how

    def forward(self, batch: Tensor, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> Any:
        out = self.model(torch.ones(1))
        wrong = {"vector": out, "detached": out.sum().detach(), "float": 1.0, "zeros": [0, 0], "none": None}
        if self.how in wrong:
            return {"loss": self.backward.backward(wrong[self.how], count=2)} if self.how != "none" else None
        return {"logits": out}


@contextmanager
def training(model: dict[str, Any] | None = None, period: int = 1, **changes: Any) -> Iterator[Any]:
    cfg = {
        "model": {"type": f"{__name__}.Tagger", **(model or {})},
        "backward": {"type": "alchemy.model.DefaultBackwardHandler", "period": period},
        "optim": {"type": "torch.optim.SGD", "lr": 1.0},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 1},
        **changes,
    }
    with Run(cfg) as run:
        run.model = build_model(run)
        run.optim, run.updater = build_optimizer(run), build_updater(run, run.model)
        run.train_sched = build_sched(run)
        yield run


def sentences(lengths: list[int]) -> Tensor:
    rows = torch.full((len(lengths), max(lengths)), -9)
    for i, length in enumerate(lengths):
        rows[i, :length] = torch.arange(length) * 3 + i
    return rows


def weights_after(batches: list[Tensor], period: int, style: str = "new") -> list[Tensor]:
    with training({"style": style}, period) as run:
        for batch in batches:
            run.model.forward(batch, needs_loss=True, requires_grad=True)
        run.model.backward.flush()
        return [param.detach().clone() for param in run.model.parameters()]


def returned(batches: list[Tensor], period: int) -> list[Tensor]:
    """Like `weights_after`, with the steps of the loop."""
    with training({"type": f"{__name__}.Returning"}, period) as run:
        run.task = DefaultTask()
        for batch in batches:
            with run.updater.micro_batch(batch):
                run.task.step(batch)
            if run.updater.is_full:
                run.updater.step()
        run.updater.flush()
        return [param.detach().clone() for param in run.model.parameters()]


# -- normalization of the loss
@given(st.lists(st.integers(1, 7), min_size=8, max_size=8), st.sampled_from([1, 2, 4]))
@settings(max_examples=10, deadline=None)
def test_a_model_that_returns_its_loss_makes_the_same_updates(lengths: list[int], size: int) -> None:
    rows = list(sentences(lengths).split(size))
    for period in (1, 8 // size):
        torch.testing.assert_close(returned(rows, period), weights_after(rows, period), rtol=0, atol=0)


def test_several_losses_of_a_micro_batch_are_one_sum() -> None:
    rows = sentences([5, 1, 2, 3])
    whole = returned([rows], 1)
    with training({"type": f"{__name__}.Returning"}) as run:
        task = DefaultTask()
        with run.updater.micro_batch(rows):
            for part in rows.split(2):
                run.updater.accumulate(task.loss(part))
        assert run.updater.is_full
        assert not run.updater.step().skipped
        torch.testing.assert_close(list(run.model.parameters()), whole, rtol=1e-12, atol=1e-12)


@given(st.lists(st.integers(1, 7), min_size=8, max_size=8), st.sampled_from([1, 2, 4]))
@settings(max_examples=20, deadline=None)
def test_the_update_does_not_depend_on_how_the_batch_was_cut(lengths: list[int], size: int) -> None:
    rows = sentences(lengths)
    whole = weights_after([rows], period=1)
    cut = weights_after(list(rows.split(size)), period=8 // size)
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=1e-12)


def test_the_gradient_is_that_of_the_mean_over_all_targets() -> None:
    rows = sentences([5, 1, 2])
    with training() as run:
        start = [param.detach().clone() for param in run.model.parameters()]
        logits = run.model.forward(rows, False, False)["logits"]
        mean = nn.functional.cross_entropy(logits, torch.where(rows < 0, -100, rows % 4))
        grads = torch.autograd.grad(mean, list(run.model.parameters()))
        out = run.model.forward(rows, True, True)
        torch.testing.assert_close(out["loss"], mean.detach())
        assert (out["loss"].dim(), out["loss"].requires_grad) == (0, False)
        torch.testing.assert_close([*run.model.parameters()], [w - g for w, g in zip(start, grads)])


def test_old_style_means_weigh_the_same_and_it_is_said_once() -> None:
    rows = sentences([4, 4, 4, 4])
    with warned() as lines:
        cut = weights_after(list(rows.split(2)), period=2, style="old")
    torch.testing.assert_close(cut, weights_after([rows], period=1), rtol=1e-12, atol=1e-12)
    assert len(lines) == 1
    assert "micro-batches of different sizes get the same weight in an update" in lines[0]


def test_fault_5_the_last_partial_window_is_stepped_with_its_own_count() -> None:
    with training(period=3) as run:
        handler = run.model.backward
        for i, row in enumerate(sentences([2, 3, 4, 5, 6]).split(1)):
            run.model.forward(row, True, True)
            assert handler.updates == (i + 1) // 3
        before = [param.detach().clone() for param in run.model.parameters()]
        handler.flush()
        handler.flush()  # no residue
        assert (handler.updates, run.train_sched.num_updates) == (2, 2)
        moved = [param.detach().clone() for param in run.model.parameters()]
    rows = sentences([2, 3, 4, 5, 6])
    torch.testing.assert_close(weights_after([rows[:3], rows[3:]], 1), moved, rtol=1e-12, atol=1e-12)
    assert not torch.equal(before[0], moved[0])


@pytest.mark.parametrize("style", ["new", "old"])
def test_fault_5_no_graph_is_kept_alive_over_a_window(style: str) -> None:
    kept: list[Any] = []

    class Spy(nn.Tanh):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            kept.append(weakref.ref(y))
            return y * 1.0

    with training({"style": style}, period=4) as run:
        run.model.model[1] = Spy()
        for row in sentences([3, 3, 3]).split(1):
            run.model.forward(row, True, True)
        gc.collect()
        assert len(kept) == 3
        assert all(ref() is None for ref in kept)


def test_losses_may_be_lists_with_weights_and_zeros() -> None:
    with training() as run:
        x = next(run.model.parameters())
        handler = run.model.backward
        assert handler.backward([x.sum() * 0 + 2, 0], [0.5, 3], True, ["a", "b"]) == 1.0
        assert handler.backward(losses=[x.sum() * 0 + 2, 0, 1], requires_grad=False) == 3.0
        assert handler.backward(torch.tensor(2.5), requires_grad=False) == 2.5
        assert handler.updates == 1
        with pytest.raises(AlchemyError, match="2 losses and 1 weights"):
            handler.backward([x.sum(), x.sum()], [1.0])


def test_a_batch_without_targets_changes_nothing() -> None:
    with training() as run:
        before = [param.detach().clone() for param in run.model.parameters()]
        out = run.model.forward(torch.full((2, 3), -9), True, True)
        assert (out["loss"].item(), out["count"]) == (0.0, 0)
        assert all(torch.equal(a, b) for a, b in zip(before, run.model.parameters()))


def test_debug_names_the_loss_that_is_not_finite() -> None:
    with training() as run:
        run.symbols.set_global("debug", True)
        x = next(run.model.parameters()).sum()
        with pytest.raises(AlchemyError, match="loss 'tags' is nan"):
            run.model.backward.backward([x, x * float("nan")], names=["spans", "tags"])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("vector", r"the loss has shape \(2,\).*reduce it with sum\(\) and return the count"),
        ("detached", r"the loss has no gradient.*without detach"),
        ("float", r"the loss is a float.*before item\(\)"),
        ("zeros", r"the loss is a int"),
        ("none", r"Bad.forward\(needs_loss=True\) returned NoneType; return a dict with 'loss'"),
        ("no loss", r"returned a dict with 'logits'; return a dict with 'loss'"),
    ],
)
def test_a_wrong_forward_is_told_what_was_expected(how: str, message: str) -> None:
    with training({"type": f"{__name__}.Bad", "how": how}) as run, pytest.raises(AlchemyError, match=message):
        get_loss(run.model, run.model.forward(None, True, True))


def test_period_must_be_a_number_of_steps() -> None:
    with (
        pytest.raises(AlchemyError, match=r"\[backward\] .*period must be at least 1, not 0"),
        training(period=0) as run,
    ):
        run.model.backward.flush()


# -- the wrapper
@BackwardHandler.register("Mine")
class OldHandler(BackwardHandler):
    """A model as projects write it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self.type = kwargs["type"]

    def backward(self, losses: Any, weights: Any = None, requires_grad: bool = True, names: Any = None) -> float:
        return 7.0


def test_a_model_works_without_the_tables_of_training() -> None:
    with Run({"model": {"type": f"{__name__}.Tagger", "style": "old"}}) as run:
        run.model = build_model(run)
        assert (run.model.criterion_cfg, run.model.backward_cfg, run.model.max_positions()) == (None, None, None)
        assert run.model.model_cfg["style"] == "old"
        with torch.no_grad():
            assert isinstance(run.model(sentences([2]), True, False)["loss"], float)
    with Run({"model": {"type": f"{__name__}.Tagger"}, "backward": {"type": f"{__name__}.Mine"}}) as run:
        assert build_model(run).backward.backward(1.0) == 7.0
    with Run({}) as run, pytest.raises(AlchemyError, match=r"needs a \[model\] table"):
        build_model(run)


def test_training_mode_is_set_everywhere_also_after_a_swap() -> None:
    with training() as run:
        model = run.model
        for break_it in (
            model.eval,
            model.model[1].eval,
            lambda: setattr(model, "model", nn.Sequential(nn.Dropout()).eval()),
        ):
            break_it()
            model.train()
            assert all(module.training for module in model.model.modules())
        model.eval()
        assert not any(module.training for module in model.model.modules())


def test_modules_are_unwrapped() -> None:
    with training() as run:
        inner = run.model.model
        run.model.model = nn.DataParallel(inner)
        assert run.model.module is inner
        assert [name for name, _ in run.model.named_parameters()] == ["0.weight", "2.weight", "2.bias"]


def test_set_requires_grad_freezes_by_name() -> None:
    with training() as run:
        run.model.set_requires_grad(False, "2")
        assert [param.requires_grad for param in run.model.parameters()] == [True, False, False]
        run.model.set_requires_grad(True, "all")
        run.model.set_requires_grad(False, "*.bias")
        assert [param.requires_grad for param in run.model.parameters()] == [True, True, False]
        with pytest.raises(AlchemyError, match="no parameter matches 'encoder'; available: 0, 2"):
            run.model.set_requires_grad(False, "encoder")


class Tied(AlchemyModel):
    """Tied weights, a buffer, and a loss with parameters."""

    def __init__(self, *, seed: int = 0, width: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width), nn.BatchNorm1d(width))
        self.model[1].weight = self.model[0].weight
        self.criterion = build_loss({"type": "alchemy.nn.losses.Focal", "learnable": True, "gamma": float(seed)})


def test_weights_are_saved_and_loaded_with_those_of_the_loss(tmp_path: Path) -> None:
    with Run({}):
        first, second, wide = Tied(seed=1), Tied(seed=2), Tied(width=4)
        first.save(tmp_path / "checkpt")
        assert sorted(path.name for path in (tmp_path / "checkpt").iterdir()) == [
            "criterion.safetensors",
            "model.safetensors",
        ]
        second.load(tmp_path / "checkpt")
        torch.testing.assert_close(second.state_dict(), first.state_dict(), rtol=0, atol=0)
        assert second.model[1].weight is second.model[0].weight
        assert isinstance(second.criterion, Focal)
        assert second.criterion.gamma.item() == 1.0
        with pytest.raises(AlchemyError, match=r"does not fit Sequential: .*\s+size mismatch"):
            wide.load(tmp_path / "checkpt")
        with pytest.raises(AlchemyError, match=r"model.safetensors not found in .*elsewhere"):
            first.load(tmp_path / "elsewhere")


def test_state_round_trip_in_memory() -> None:
    with Run({}):
        first, second = Tied(seed=1), Tied(seed=2)
        second.load_state_dict(first.state_dict())
        assert {"criterion:alpha", "criterion:gamma"} <= set(first.state_dict())
        torch.testing.assert_close(second.state_dict(), first.state_dict(), rtol=0, atol=0)
        with pytest.raises(AlchemyError, match="do not match Sequential"):
            second.load_state_dict({"nothing": torch.zeros(1)})
        with pytest.raises(
            AlchemyError, match=r'do not match Sequential.*\s+Unexpected key\(s\) in state_dict: "other:gamma"'
        ):
            second.load_state_dict({**first.state_dict(), "other:gamma": torch.zeros(1)})
