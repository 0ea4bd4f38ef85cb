"""Out of memory: recognized errors, splitting a batch, and backward passes that add all gradients or none."""

from __future__ import annotations

from collections import UserDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from alchemy.nn.oom import explain_oom, gradients_kept, halves, is_oom


class Pair(NamedTuple):
    x: Any
    y: Any


X, Y = torch.arange(10).reshape(5, 2), torch.arange(5)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (torch.cuda.OutOfMemoryError("CUDA out of memory."), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (MemoryError(), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("DefaultCPUAllocator: can't allocate memory"), False),
    ],
)
def test_errors_that_say_it(error: Exception, answer: bool) -> None:
    assert is_oom(error) is answer


def test_a_real_one_on_the_cpu() -> None:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_oom(caught.value)


def test_the_explanation_has_shapes_and_remedies() -> None:
    text = str(explain_oom(torch.OutOfMemoryError("CUDA: no\nmore"), "{x: float32[8, 3]}", "not halved: why"))
    assert text.startswith(
        "out of memory on a batch of {x: float32[8, 3]}: CUDA: no (not halved: why); lower batch_size"
    )


def as_lists(value: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, dict | UserDict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(
    "batch",
    [
        {"x": X, "y": Y},
        UserDict({"x": X}),
        {"x": X.numpy(), "texts": ["a", "b", "c", "d", "e"], "name": "train", "rate": 0.5, "flag": True, "no": None},
        {"inputs": {"x": X, "mask": Y > 2}, "labels": (Y, Y + 1)},
        Pair(X, Y),
        [X, Y],
        [{"x": 1}, {"x": 2}, {"x": 3}],
        ["a", "b", "c", "d"],
    ],
)
def test_halves_have_every_sample_once_and_the_form_of_the_batch(batch: Any) -> None:
    cut = halves(batch)
    assert cut is not None
    assert type(cut[0]) is type(cut[1]) is type(batch)
    assert joined(as_lists(cut[0]), as_lists(cut[1]), as_lists(batch)) == as_lists(batch)
    assert as_lists(batch) not in (as_lists(cut[0]), as_lists(cut[1]))


def joined(one: Any, two: Any, whole: Any) -> Any:
    if isinstance(whole, dict):
        return {key: joined(one[key], two[key], whole[key]) for key in whole}
    if isinstance(whole, list) and whole and isinstance(whole[0], list) and len(one) == len(whole):
        return [joined(a, b, c) for a, b, c in zip(one, two, whole, strict=True)]
    return one + two if isinstance(whole, list) else one if one == two else None


@pytest.mark.parametrize(
    "batch",
    [
        {"x": X[:1]},
        {"x": X, "weights": torch.ones(3)},
        {"x": X, "tokens": 57},
        {"x": X, "tokens": torch.tensor(57)},
        {"x": X, "texts": ["a", "b"]},
        [X, X],
        {"name": "empty"},
        "text",
        object(),
    ],
)
def test_what_cannot_be_cut_for_sure_is_not_cut(batch: Any) -> None:
    assert halves(batch) is None


class Fails(torch.autograd.Function):
    """A backward pass that fails halfway."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("no memory")


@pytest.mark.parametrize("earlier", [None, 2.0])
def test_a_backward_pass_adds_all_of_its_gradients_or_none(earlier: float | None) -> None:
    early, late = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    for param in (early, late):
        param.grad = None if earlier is None else torch.full((1,), earlier)
    before = [param.grad for param in (early, late)]
    with pytest.raises(torch.OutOfMemoryError, match="no memory"), gradients_kept([early, late]):
        (Fails.apply(early * 1) * late).sum().backward()  # the gradient of `late` exists when it fails
    assert [param.grad for param in (early, late)] == before
    with gradients_kept([early, late]):
        (early * 3).sum().backward()
    assert early.grad is not None
    assert early.grad.item() == 3 + (earlier or 0)
    assert late.grad is before[1]
