"""Nested numbers: what is logged inside appears outside, and what a root gathers stays there."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alchemy.metrics.stack import Stack

rows = st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(1, 100)), min_size=1, max_size=30)


@given(rows, st.integers(0, 30))
def test_the_mean_does_not_depend_on_how_the_windows_were_cut(rows: list[tuple[float, int]], cut: int) -> None:
    stack = Stack()
    with stack.scope("epoch") as epoch:
        for part in (rows[:cut], rows[cut:]):
            with stack.scope("window"):
                for total, weight in part:
                    stack.log("loss", total, weight)
    assert epoch.mean("loss") == pytest.approx(sum(t for t, _ in rows) / sum(w for _, w in rows), abs=1e-3)


def test_a_root_scope_does_not_leak_and_turning_over_keeps_the_sums_outside() -> None:
    stack = Stack()
    with stack.scope("epoch") as epoch, stack.scope("recent"):
        stack.log("loss", 2.0)
        with stack.scope("dev", root=True) as dev:
            stack.log("loss", 100.0)
        assert stack.turn_over() == {"loss": 2.0}
        stack.log("loss", 4.0)
    assert dev.mean("loss") == 100.0
    assert epoch.mean("loss") == 3.0


def test_tensors_are_kept_until_asked_for_and_not_changed() -> None:
    stack, loss = Stack(), torch.tensor(3.0)
    with stack.scope("epoch") as epoch:
        stack.log("loss", loss, 2)
        stack.log("loss", loss, torch.tensor(1.0))
    assert epoch.mean("loss") == 2.0
    assert loss.item() == 3.0


def test_an_error_inside_closes_every_scope_and_a_scope_decorates() -> None:
    stack = Stack()
    with pytest.raises(ValueError, match="x"), stack.scope("a"):
        stack.scope("b").__enter__()
        raise ValueError("x")
    assert stack.current.name == "run"

    @stack.scope("c")
    def work() -> str:
        return stack.current.name

    assert (work(), work()) == ("c", "c")


def test_reduce_sums_over_processes_before_dividing() -> None:
    stack = Stack()
    with stack.scope("dev", root=True) as dev:
        stack.log("loss", 6.0, 2)
    assert dev.reduce(lambda numbers: [n * 2 for n in numbers]) == {"loss": 3.0}
    assert math.isnan(Stack().current.mean("none", math.nan))
