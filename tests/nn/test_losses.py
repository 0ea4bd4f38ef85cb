"""Losses are sums with counts, and sum / count is the mean of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from alchemy.errors import AlchemyError
from alchemy.nn.losses import BCE, MSE, CrossEntropy, Focal, build_loss

WEIGHT = [0.5, 2.0, 1.0, 0.0, 3.0]


def logits_and_target(*dims: int, ignore: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits [7, 5, *dims] in float64 and class indices [7, *dims], some of them ignored."""
    torch.manual_seed(seed)
    target = torch.randint(0, 5, (7, *dims))
    if ignore is not None:
        target[torch.rand(7, *dims) < 0.4] = ignore
        target[(0,) * target.dim()] = 1
    return torch.randn(7, 5, *dims, dtype=torch.float64, requires_grad=True), target


@pytest.mark.parametrize("dims", [(), (3,), (2, 4)])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignore", [None, -100, 2])
def test_cross_entropy_equals_torch(dims: Any, weight: Any, smoothing: float, ignore: int | None) -> None:
    logits, target = logits_and_target(*dims, ignore=ignore)
    loss = CrossEntropy(
        label_smoothing=smoothing, weight=weight, **({} if ignore is None else {"ignore_index": ignore})
    )
    total, count = loss(logits, target)
    tensor = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    options: dict[str, Any] = {
        "weight": tensor,
        "label_smoothing": smoothing,
        "ignore_index": -100 if ignore is None else ignore,
    }
    torch.testing.assert_close(total, F.cross_entropy(logits, target, reduction="sum", **options))
    torch.testing.assert_close(total / count, F.cross_entropy(logits, target, reduction="mean", **options))


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("dims", [(), (3,)])
def test_cross_entropy_of_probabilities_equals_torch(weight: Any, dims: Any) -> None:
    logits, _ = logits_and_target(*dims)
    target = torch.rand(7, 5, *dims, dtype=torch.float64).softmax(1)
    total, count = CrossEntropy(weight=weight)(logits, target)
    tensor = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    torch.testing.assert_close(total / count, F.cross_entropy(logits, target, weight=tensor))


def test_bce_and_mse_equal_torch() -> None:
    logits, target = torch.randn(6, 3), torch.randint(0, 2, (6, 3))
    total, count = BCE(pos_weight=[1.0, 2.0, 3.0], weight=[0.5, 1.0, 2.0])(logits, target)
    options: dict[str, Any] = {"pos_weight": torch.tensor([1.0, 2.0, 3.0]), "weight": torch.tensor([0.5, 1.0, 2.0])}
    torch.testing.assert_close(total / count, F.binary_cross_entropy_with_logits(logits, target.float(), **options))
    total, count = MSE()(logits, target)
    torch.testing.assert_close(total, F.mse_loss(logits, target.float(), reduction="sum"))
    torch.testing.assert_close(total / count, F.mse_loss(logits, target.float()))


@given(st.floats(0, 5), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_focal_is_weighted_cross_entropy(gamma: float, seed: int) -> None:
    logits, target = logits_and_target(2, ignore=-100, seed=seed)
    total, count = Focal(gamma=gamma, alpha=WEIGHT)(logits, target)
    losses = F.cross_entropy(logits, target, reduction="none", weight=torch.tensor(WEIGHT, dtype=torch.float64))
    p = torch.exp(-F.cross_entropy(logits, target, reduction="none"))
    torch.testing.assert_close(total, ((1 - p) ** gamma * losses).sum())
    assert count == int((target != -100).sum())


def test_focal_of_logits_one_by_one() -> None:
    logits, target = torch.randn(8, 3, dtype=torch.float64), torch.randint(0, 2, (8, 3))
    total, count = Focal(gamma=0.0, alpha=0.5)(logits, target)
    torch.testing.assert_close(2 * total / count, F.binary_cross_entropy_with_logits(logits, target.double()))
    p = torch.where(target == 1, logits.sigmoid(), 1 - logits.sigmoid())
    expected = -torch.where(target == 1, 0.25, 0.75) * (1 - p) ** 2 * p.log()
    torch.testing.assert_close(Focal(alpha=0.25)(logits, target)[0], expected.sum())


def test_a_learnable_focal_loss_has_finite_gradients_even_where_the_model_is_sure() -> None:
    loss = Focal(learnable=True, gamma=0.5)
    assert {name for name, _ in loss.named_parameters()} == {"alpha", "gamma"}
    logits = torch.tensor([[100.0, -100.0], [0.0, 0.0]], requires_grad=True)
    loss(logits, torch.tensor([0, 1]))[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in [logits, *loss.parameters()])


FOREIGN = [
    ({"type": "torch.nn.CrossEntropyLoss", "weight": WEIGHT, "ignore_index": 2, "reduction": "mean"}, "classes"),
    ({"type": "torch.nn.functional.cross_entropy", "label_smoothing": 0.1}, "classes"),
    ({"type": "torch.nn.MultiMarginLoss"}, "classes"),
    ({"type": "torch.nn.SmoothL1Loss", "beta": 0.5}, "numbers"),
    ({"type": "torch.nn.functional.l1_loss"}, "numbers"),
    ({"type": "torch.nn.BCEWithLogitsLoss", "pos_weight": WEIGHT}, "numbers"),
]


@pytest.mark.parametrize(("table", "kind"), FOREIGN)
def test_losses_of_torch_by_dotted_path(table: dict[str, Any], kind: str) -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, 5)
    target = torch.randint(0, 5, (7,)) if kind == "classes" else torch.rand(7, 5)
    total, count = build_loss(table)(logits, target)
    options = {
        k: torch.tensor(v) if isinstance(v, list) else v for k, v in table.items() if k not in ("type", "reduction")
    }
    name = table["type"].rpartition(".")[2]
    mean = (
        getattr(F, name)(logits, target, **options) if name.islower() else getattr(nn, name)(**options)(logits, target)
    )
    torch.testing.assert_close(total / count, mean)


def test_build_loss_makes_parts_and_says_what_is_wrong() -> None:
    loss = build_loss({"type": "alchemy.nn.losses.CrossEntropy", "label_smoothing": 0.2})
    assert isinstance(loss, CrossEntropy)
    assert loss.label_smoothing == 0.2
    with pytest.raises(AlchemyError, match="CrossEntropy has no option 'smoothing'"):
        build_loss({"type": "alchemy.nn.losses.CrossEntropy", "smoothing": 0.2})
    with pytest.raises(AlchemyError, match="did you mean 'CrossEntropy'"):
        build_loss({"type": "alchemy.nn.losses.CrosEntropy"})
    with pytest.raises(AlchemyError, match="cross_entropy has no option 'weigth'; did you mean 'weight'"):
        build_loss({"type": "torch.nn.functional.cross_entropy", "weigth": [1.0]})
    with pytest.raises(AlchemyError, match="needs a 'type'"):
        build_loss({})


def test_without_a_criterion_only_asking_for_a_loss_is_an_error() -> None:
    loss = build_loss(None)
    with pytest.raises(AlchemyError, match=r"\[criterion\] a loss is needed, but the config has no \[criterion\]"):
        loss(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))


def test_shapes_that_torch_would_broadcast_are_refused() -> None:
    with pytest.raises(AlchemyError, match=r"targets of shape \(4,\) do not match predictions of shape \(4, 1\)"):
        MSE()(torch.zeros(4, 1), torch.zeros(4))
    with pytest.raises(AlchemyError, match=r"pass class indices of shape \(4,\)"):
        CrossEntropy()(torch.zeros(4, 3), torch.zeros(4))
