"""Nested metrics: inner logs appear in outer scopes, and values of a root stay there."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.metrics.metric_stack import KINDS, Scope, Stack

rows = st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 100)), min_size=1, max_size=30)
cuts = st.lists(st.integers(0, 30), max_size=4).map(sorted)


def log(metrics: Stack, total: Any, weight: Any = 1) -> None:
    """The same values once as every kind, except rates, which depend on the clock."""
    metrics.log("mean", total, weight)
    metrics.sum("sum", total)
    metrics.max("max", total)
    metrics.min("min", total)
    metrics.last("last", total)


def cut_up(rows: list[Any], cuts: list[int]) -> list[list[Any]]:
    return [rows[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(rows)])]


def expected(rows: list[tuple[float, int]]) -> dict[str, Any]:
    totals = [total for total, _ in rows]
    mean = math.fsum(totals) / sum(weight for _, weight in rows)
    exact = {"mean": mean, "sum": math.fsum(totals), "max": max(totals), "min": min(totals), "last": totals[-1]}
    return {name: pytest.approx(value, rel=1e-12) for name, value in exact.items()}


@given(rows, cuts, st.booleans())
def test_the_values_do_not_depend_on_how_the_windows_were_cut(rows: Any, cuts: list[int], turning: bool) -> None:
    stack = Stack()
    with stack.scope("epoch") as epoch:
        if turning:
            with stack.scope("recent"):
                for part in cut_up(rows, cuts):
                    for row in part:
                        log(stack, *row)
                    stack.turn_over()
        else:
            for part in cut_up(rows, cuts):
                with stack.scope("window"), stack.scope("inner"):
                    for row in part:
                        log(stack, *row)
    assert epoch.values() == expected(rows)
    assert stack.current.values() == expected(rows)


@given(rows, st.integers(1, 4))
def test_the_values_do_not_depend_on_the_number_of_processes(rows: Any, ranks: int) -> None:
    scopes = [Stack() for _ in range(ranks)]
    for place, row in enumerate(rows):
        log(scopes[place % ranks], *row)
    states = [stack.current.state_dict() for stack in scopes]
    results = [stack.current.reduce(lambda _: states) for stack in scopes]
    assert all(result == results[0] for result in results)
    ours = results[0] | {"last": rows[-1][0]}  # the last value of several processes is undefined
    assert ours == expected(rows)


def test_ranks_that_logged_other_names_are_gathered_all_the_same() -> None:
    one, two = Stack(), Stack()
    one.log("loss", 6.0, 2)
    two.log("hits", 1.0, 4)
    two.log("loss", 0.0, 1)
    states = [one.current.state_dict(), two.current.state_dict()]
    assert one.turn_over(lambda mine: states) == two.turn_over(lambda mine: states) == {"loss": 2.0, "hits": 0.25}
    assert one.current.values() == {}


@given(rows, cuts, st.integers(0, 30))
def test_a_run_that_is_saved_and_resumed_tells_the_same_bits(rows: Any, turns: list[int], stop: int) -> None:
    """Save after `stop` rows, as unread float32 tensors; windows end at `turns`."""
    assert told(rows, turns, [stop]) == told(rows, turns, [])


def told(rows: Any, turns: list[int], stops: list[int]) -> list[Any]:
    found, state = [], Stack().state_dict()
    for part in cut_up(list(enumerate(rows)), stops):
        stack = Stack()
        stack.load_state_dict(json.loads(json.dumps(state)))
        with stack.scope("epoch") as epoch, stack.scope("recent"):
            for place, (total, weight) in part:
                log(stack, torch.tensor(total), torch.tensor(weight))
                if place in turns:
                    found.append(list(stack.turn_over().items()))
            state = stack.state_dict()
    return [*found, list(epoch.sums().items())]


class Group:
    """One of several processes; the values of the others are given."""

    def __init__(self, rank: int, size: int, handed: list[Any]) -> None:
        self.rank, self.size, self.is_main, self.handed = rank, size, rank == 0, handed

    def gather(self, value: Any) -> list[Any]:
        self.handed[self.rank] = value
        return self.handed


@given(rows, st.integers(1, 3), st.integers(1, 3))
def test_a_run_of_several_processes_goes_on_with_any_number_of_them(rows: Any, before: int, after: int) -> None:
    def opened(ranks: int, state: Any) -> list[Scope]:
        scopes, handed = [], [None] * ranks
        for rank in range(ranks):
            stack = Stack()
            stack.group = Group(rank, ranks, handed)  # type: ignore[assignment]  # as much of one as a stack asks for
            if state is not None:
                stack.load_state_dict(json.loads(json.dumps(state)))
            stack.scope("epoch").__enter__()
            stacks.append(stack)
            scopes.append(stack.current)
        return scopes

    stacks: list[Stack] = []
    opened(before, None)
    for place, row in enumerate(rows):
        log(stacks[place % before], *row)
    state = [stack.state_dict() for stack in stacks][-1]
    scopes = opened(after, state)
    if before == after:
        assert [scope.sums() for scope in scopes] == [stack.current.sums() for stack in stacks[:before]]
    values = scopes[0].reduce(lambda _: [scope.state_dict() for scope in scopes])
    assert values | {"last": rows[-1][0]} == expected(rows)


def test_a_saved_evaluation_is_made_again_from_nothing() -> None:
    stack, again = Stack(), Stack()
    with stack.scope("epoch"), stack.scope("dev", root=True), stack.scope("epoch"):
        stack.log("loss", 1.0)
        again.load_state_dict(stack.state_dict())
    with again.scope("dev", root=True) as dev, again.scope("epoch") as inner:
        assert (dev.values(), inner.values()) == ({}, {})


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
    stack, loss = Stack(), torch.tensor(3.0, requires_grad=True)
    with stack.scope("epoch") as epoch:
        stack.log("loss", loss, 2)
        stack.log("loss", loss, torch.tensor(1.0))
    assert epoch.mean("loss") == 2.0
    assert loss.item() == 3.0


def test_a_long_epoch_of_float32_is_counted_in_float64() -> None:
    stack, one = Stack(), torch.tensor(16777216.0)
    stack.log("tokens", one)
    for _ in range(3):
        stack.log("tokens", torch.tensor(1.0))
    assert stack.current.sums() == {"tokens": (16777219.0, 4.0)}


def test_an_error_inside_closes_every_scope_and_a_scope_decorates() -> None:
    stack = Stack()
    with pytest.raises(ValueError, match="x"), stack.scope("a") as a:
        left = stack.scope("b")
        left.__enter__()
        stack.log("loss", 2.0)
        raise ValueError("x")
    assert stack.current.name == "run"
    assert a.values() == {"loss": 2.0}
    left.__exit__(None, None, None)  # too late, but harmless
    assert stack.current.values() == {"loss": 2.0}

    @stack.scope("c")
    def work() -> str:
        return stack.current.name

    assert (work(), work()) == ("c", "c")


def test_what_is_no_number_is_named_and_the_stack_stays_whole() -> None:
    stack = Stack()
    with (
        pytest.raises(AlchemyError, match=r"the metric 'hits' must be a single number, not Tensor .*; log the sum"),
        stack.scope("a"),
        stack.scope("b"),
    ):
        stack.log("hits", torch.ones(2))
    stack.log("hits", 1.0)
    assert stack.turn_over() == {"hits": 1.0}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("mean", "rate")])
def test_a_name_is_one_kind_of_number(kind: str) -> None:
    stack = Stack()
    stack.log("a", 1.0)
    with pytest.raises(AlchemyError, match=f"the metric 'a' is a mean and cannot be logged as a {kind}"):
        getattr(stack, kind)("a", 1.0)
    getattr(stack, kind)("b", 1.0)
    with stack.scope("inner"), pytest.raises(AlchemyError, match=f"'b' is a {kind} and cannot be logged as a mean"):
        stack.log("b", 1.0)
    with pytest.raises(AlchemyError, match=f"'b' is a {kind} and cannot be logged as a mean"):
        stack.log("b", 1.0)
    assert stack.turn_over() == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("kind", ["max", "min"])
def test_a_nan_is_seen_wherever_it_stands(kind: str) -> None:
    for values in ((math.nan, 1.0), (1.0, math.nan)):
        stack = Stack()
        for value in values:
            getattr(stack, kind)("a", value)
        assert math.isnan(stack.current.values()["a"])


def test_rates_and_times_leave_evaluations_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))  # ten seconds pass between two reads
    monkeypatch.setattr("alchemy.metrics.metric_stack.time.perf_counter", lambda: float(next(clock)))
    stack = Stack()
    with stack.scope("epoch") as epoch:  # opened at 10
        stack.rate("tokens", 600)
        with stack.scope("dev", root=True):  # 20 to 30
            stack.rate("tokens", 10**9)
        paused = epoch._begin
        assert epoch.values() == {"time/tokens_per_s": 600 / (50 - paused)}
    assert paused > 10

    @stack.timed("load")
    def load() -> None:
        pass

    load()
    with stack.timed("load"):
        pass
    assert stack.current.sums()["time/load"] == (20.0, 2.0)
    assert stack.current.values()["time/load"] == 10.0


def test_rates_of_processes_add_up_over_the_time_of_the_slowest() -> None:
    states = [{"name": "x", "seconds": s, "fields": {"time/a_per_s": ["rate", 10.0, 1.0]}} for s in (1.0, 2.0)]
    assert Scope("x").reduce(lambda _: states) == {"time/a_per_s": pytest.approx(10.0, rel=0.01)}


def test_nothing_logged_is_nothing_told() -> None:
    stack = Stack()
    assert math.isnan(stack.current.mean("none", math.nan) or 0.0)
    stack.log("loss", 1.0, 0)
    assert math.isnan(stack.turn_over()["loss"])
    assert stack.current.values() == {}
