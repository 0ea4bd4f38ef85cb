"""`verify parallel`: gradients of one update, split in several ways; and models whose gradients depend on the split."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from alchemy.config.load import prepare_cfg
from alchemy.errors import AlchemyError
from alchemy.verify.gradient_check import verify_parallel
from alchemy.verify.gradient_cuts import MEANS, CutReport, largest_difference


def checked(ranks: int = 1, train: dict[str, Any] | None = None, **model: Any) -> CutReport:
    from promises import config  # type: ignore[import-not-found]

    cfg = config(**model)
    cfg["task"]["datasets"]["train"] |= train or {}
    if model.get("sparse"):
        cfg["optim"] = {"type": "torch.optim.SGD", "lr": 0.1}  # Adam does not accept sparse gradients
    return verify_parallel(prepare_cfg(cfg), ranks=ranks)


def test_a_loss_with_its_count_gives_one_gradient_for_all_cuts() -> None:
    report = checked()
    assert report.equal
    assert [row.cut for row in report.rows] == ["1 process, 2 steps", "1 process, 4 steps"]
    assert all(0 <= row.difference < 1e-12 for row in report.rows)
    assert report.head == "4 samples, float64, dropout off in 2 modules"
    assert str(report).endswith("equal: no gradient differs by more than 1e-06 times its largest value")


def test_a_loss_that_is_divided_by_the_size_of_its_step_is_found() -> None:
    report = checked(breaks="divided")
    assert not report.equal
    assert "not equal: with 1 process, 2 steps the gradient of lstm.bias" in str(report)
    assert report.plain()["cuts"][1]["difference"] > 0.5


def test_means_are_told_and_fail_where_steps_differ() -> None:
    report = checked(breaks="means")
    assert report.notes == [MEANS]
    assert not report.equal


def test_batch_norm_is_named_as_the_reason_why_nothing_is_known() -> None:
    report = checked(breaks="norm")
    assert report.equal is None
    assert "norm (BatchNorm1d): the output for a sample depends on the other samples" in report.unknown
    assert str(report) == f"unknown: {report.unknown}"


def test_a_model_that_cannot_be_cast_is_compared_in_float32() -> None:
    report = checked(breaks="single")
    assert report.equal
    assert report.head.startswith("4 samples, float32: this model cannot be cast to float64")
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("size", [4, None])
def test_streams_are_cut_as_well(size: int | None) -> None:
    pipe = {"type": "promises.Spoken", "size": 0 if size else 2}
    options: dict[str, Any] = {"pipes": [pipe], "shuffle": False, "batch_size": size}
    if size is None:
        options["collate_fn"] = None
    report = checked(train=options)
    assert report.head.startswith("4 samples" if size else "2 batches")
    assert report.equal


@pytest.mark.parametrize("limit", [{"max_tokens": 20}, {"max_sentences": 4}, {"batch_size": 4}])
def test_batches_of_a_budget_are_cut_and_made_by_the_data_set_itself(limit: dict[str, int]) -> None:
    from promises import config

    cfg = config()
    cfg["task"]["datasets"]["train"] = {"pipes": [{"type": "promises.Gathered"}], "shuffle": True, **limit}
    report = verify_parallel(prepare_cfg(cfg), ranks=1)
    assert report.equal, str(report)
    assert " samples, float64" in report.head and len(report.rows) >= 1


def test_keys_of_the_loader_that_cannot_be_are_told_at_their_table() -> None:
    with pytest.raises(
        AlchemyError, match=r"^code \[task\.datasets\.train\] max_tokens cannot be combined with batch_size"
    ):
        checked(train={"max_tokens": 9, "length_of": "words"})


def test_each_of_several_optimizers_has_its_own_count() -> None:
    from tests.gan import config

    report = verify_parallel(prepare_cfg(config()), ranks=1)
    assert report.equal, str(report)
    assert report.head == "64 samples, float64"


def test_an_update_of_one_sample_cannot_be_cut() -> None:
    with pytest.raises(AlchemyError, match=r"an update has 1 sample: there is nothing to split; use larger"):
        checked(train={"batch_size": 1})


def test_gradients_next_to_nothing_are_not_compared_digit_by_digit() -> None:
    one = {"a": torch.tensor([1.0]), "b": torch.tensor([1e-17])}
    other = {"a": torch.tensor([1.0]), "b": torch.tensor([-1e-17])}
    assert largest_difference(one, other, 1e-6)[0] < 1e-6
    assert largest_difference(one, {"a": torch.tensor([1.0])}, 0.0) == (1.0, "b")


def test_a_sparse_gradient_is_compared_with_a_sparse_a_dense_and_a_missing_one() -> None:
    dense = torch.tensor([[0.0], [2.0]])
    one = {"a": dense.to_sparse(1)}
    assert largest_difference(one, {"a": (dense * 3).to_sparse(1)}, 0.0) == (pytest.approx(4 / 6), "a")
    assert largest_difference(one, {"a": dense}, 0.0) == (0.0, "a")
    assert largest_difference(one, {}, 0.0) == largest_difference({}, one, 0.0) == (1.0, "a")
    empty = {"a": torch.zeros(2, 1).to_sparse(1)}
    assert largest_difference(empty, empty, 0.0) == (0.0, "a")


@pytest.mark.parametrize("breaks", ["", "means"])
def test_two_processes_agree_with_one(breaks: str) -> None:
    report = checked(ranks=2, breaks=breaks, sparse=not breaks)
    assert [row.cut for row in report.rows][-2:] == ["2 processes, 1 step", "2 processes, 2 steps"]
    assert report.equal is (breaks == "")
