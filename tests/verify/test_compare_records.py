"""Comparing records: equal to the bit, or the first difference is reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.runner import run
from alchemy.verify.compare_records import Comparison, compare, describe_difference
from tests.toy import config


def record(folder: str, **changes: Any) -> Path:
    (result,) = run([config(folder, log_every=1, sched__epochs=2, **changes)], device=[-1], raise_errors=True)
    assert result.record_dir is not None
    return result.record_dir


def test_equal_runs_and_runs_that_part() -> None:
    one, same = record("one"), record("same")
    assert str(compare(one, same)).startswith("equal: ")
    assert (compare(one, same).rows, compare(one, same).updates) == (11, 8)
    seed = compare(one, record("seed", seed=2))
    assert seed.differences[0] == "the runs see different samples from update 1 on"
    assert seed.differences[1].startswith("first logged difference at update 1: train/loss ")
    rate = compare(one, record("rate", optim={"type": "torch.optim.SGD", "lr": 0.2}))
    assert rate.differences[0] == "first logged difference at update 1: train/lr 0.1 vs. 0.2"
    assert "tensor model.0.weight differs in 1 of 1 values, by " in str(rate)
    assert rate.plain()["equal"] is False


def test_a_record_that_is_longer_is_not_equal() -> None:
    one, longer = record("one"), record("longer")
    with (longer / "metrics.jsonl").open("a") as file:
        file.write('{"update": 9, "step": 8, "epoch": 2, "t": 1, "gen": 0, "values": {"train/loss": 1}}\n')
    assert compare(one, longer).differences == ["first logged difference at update 9, which only the second has"]
    shutil.rmtree(one / "state")
    with pytest.raises(Exception, match=r"has no valid state to compare"):
        compare(one, longer)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (torch.zeros(2), torch.zeros(2), ""),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), ""),
        (torch.tensor(0.0), torch.tensor(-0.0), "differs in 1 of 1 values, by 0 at most"),
        (torch.zeros(2), torch.zeros(3), "is float32[2] vs. float32[3]"),
        (torch.zeros(1), torch.zeros(1).double(), "is float32[1] vs. float64[1]"),
        (torch.zeros(0), torch.zeros(0), ""),
        (torch.tensor([True, False]), torch.tensor([True, True]), "differs in 1 of 2 values"),
        (torch.tensor([1j, 2j]), torch.tensor([1j, 3j]), "differs in 1 of 2 values"),
    ],
)
def test_tensors_are_compared_bit_by_bit(one: torch.Tensor, other: torch.Tensor, text: str) -> None:
    assert describe_difference(one, other) == text


def test_many_differences_are_counted() -> None:
    assert str(Comparison(2, 3, 4)) == "equal: 2 tensors, 3 rows, 4 ledger updates"
    assert str(Comparison(differences=["a", "b"])) == "a\nb"
