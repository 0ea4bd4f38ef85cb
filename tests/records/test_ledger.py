"""The ledger: the same rows for any split, distribution, interruption and resume; manipulation is detected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.null_objects import NoLedger, SingleProcess
from alchemy.records.ledger import START, Ledger, extend_chain, read_ledger, sum_ids, sum_range


class Group(SingleProcess):
    """The process of a rank, as the ledger sees its group: `gather` returns the values of the others."""

    def __init__(self, rank: int, handed: list[Any]) -> None:
        self.at, self.handed = rank, handed

    def gather(self, value: Any) -> list[Any]:
        self.handed[self.at] = value
        return self.handed


def start(path: Path, ranks: int) -> list[Ledger]:
    handed: list[Any] = [None] * ranks
    return [Ledger(None if rank else path, Group(rank, handed)) for rank in range(ranks)]


def flush(ledgers: list[Ledger]) -> None:
    for ledger in reversed(ledgers):  # the main process last, after all others
        ledger.flush()


def state_of(ledgers: list[Ledger]) -> Any:
    *_, state = [ledger.state_dict() for ledger in reversed(ledgers)]
    return json.loads(json.dumps(state))


def pieces(batch: list[int], ranks: int) -> list[list[int]]:
    """Split a batch for all processes into consecutive runs; the last ones may be empty."""
    size = -(-len(batch) // ranks)
    return [batch[rank * size : (rank + 1) * size] for rank in range(ranks)]


def step(ledgers: list[Ledger], batch: list[int]) -> None:
    for ledger, ids in zip(ledgers, pieces(batch, len(ledgers))):
        ledger.add_step(ids)


def close_update(ledgers: list[Ledger], update: int, epoch: int = 0) -> None:
    for ledger in ledgers:
        ledger.close_update(update, epoch)


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_ledger(path)]


def test_a_row_holds_the_chain_and_the_set(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    ledger.add_step([3, 1])
    ledger.add_step([2, 0])
    ledger.close_update(1, 0)
    ledger.close_epoch(0, 4)
    ledger.flush()
    ledger.close()
    row, event = rows(tmp_path / "l")
    assert list(row) == ["update", "epoch", "n", "ids", "hash", "set"]
    assert (row["update"], row["epoch"], row["n"]) == (1, 0, 4)
    assert row["hash"] == extend_chain(START, bytes.fromhex(row["ids"])).hex()
    assert row["set"] == f"{sum_range(4):016x}"
    assert event == {"event": "epoch", "epoch": 0, "samples": 4, "update": 1}
    assert set(ledger.cost) == {"calling", "writing"}


batches = st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=5), min_size=1, max_size=8)


@given(batches, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_the_rows_do_not_depend_on_the_number_of_processes(
    tmp_path_factory: Any, batches: list[list[int]], ranks: int, period: int, every: int
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    for count in (1, ranks):
        ledgers = start(folder / str(count), count)
        for place, batch in enumerate(batches, 1):
            step(ledgers, batch)
            if place % period == 0 or place == len(batches):
                close_update(ledgers, place)
            if place % every == 0:
                flush(ledgers)
        flush(ledgers)
        ledgers[0].close()
    assert (folder / str(ranks)).read_text() == (folder / "1").read_text()


@given(st.permutations(range(8)), st.integers(1, 3))
def test_micro_batches_that_are_dealt_in_turn_give_the_same_rows(
    tmp_path_factory: Any, ids: list[int], ranks: int
) -> None:
    """Update k takes the next micro-batches; process r those whose index is r modulo the number of processes."""
    folder = tmp_path_factory.mktemp("ledger")
    for count in (1, ranks):
        ledgers = start(folder / str(count), count)
        for begin in range(0, len(ids), 6):
            window = ids[begin : begin + 6]
            for place in range(0, len(window), count):
                for rank, ledger in enumerate(ledgers):
                    ledger.add_step(window[place + rank : place + rank + 1])  # empty if none is left
            close_update(ledgers, begin)
        flush(ledgers)
        ledgers[0].close()
    assert (folder / str(ranks)).read_text() == (folder / "1").read_text()


@given(st.integers(0, 12), st.integers(0, 5), st.integers(1, 3), st.integers(1, 3))
def test_a_run_that_is_killed_and_resumed_leaves_the_same_ledger(
    tmp_path_factory: Any, saved: int, more: int, before: int, after: int
) -> None:
    """Save after step `saved`, possibly within a window, kill `more` steps later, and resume with other processes."""
    folder = tmp_path_factory.mktemp("ledger")
    whole, killed = start(folder / "whole", 1), start(folder / "killed", before)
    play(whole, 0, 12)
    flush(whole)
    play(killed, 0, saved)
    state = state_of(killed)
    play(killed, saved, min(saved + more, 12))
    flush(killed)
    killed[0].close()
    resumed = start(folder / "killed", after)
    for ledger in resumed:
        ledger.load_state_dict(state)
        ledger.resume(1, saved // 3)
    play(resumed, saved, 12)
    flush(resumed)
    for ledger in (whole[0], resumed[0]):
        ledger.close()
    assert rows(folder / "killed") == rows(folder / "whole")


def play(ledgers: list[Ledger], begin: int, end: int) -> None:
    """Steps of five samples, three steps per update, two updates per epoch."""
    for place in range(begin, end):
        step(ledgers, list(range(5 * place, 5 * place + 5)))
        if place % 3 == 2:
            close_update(ledgers, place // 3 + 1, place // 6)
        if place % 6 == 5:
            for ledger in ledgers:
                ledger.close_epoch(place // 6, 30)


def test_a_digest_is_only_asked_for_where_it_is_written(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def digest() -> bytes:
        asked.append(b"one")
        return b"one"

    NoLedger().add_step(None, digest)
    lazy, eager = Ledger(tmp_path / "lazy.jsonl"), Ledger(tmp_path / "eager.jsonl")
    lazy.add_step([1, 2], digest)
    assert asked == []
    eager.add_step([1, 2])
    lazy.add_step(None, digest)
    eager.add_step(None, b"one")
    assert asked == [b"one"]
    for ledger in (lazy, eager):
        ledger.close_update(1, 0)
        ledger.flush()
        ledger.close()
    assert rows(tmp_path / "lazy.jsonl") == rows(tmp_path / "eager.jsonl")


def test_data_without_numbers_is_known_by_its_contents(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    ledger.add_step(None, b"one")
    again = Ledger(tmp_path / "again")
    again.load_state_dict(state_of([ledger]))
    for each in (ledger, again):
        each.add_step(None, b"two")
        each.close_update(1, 0)
        each.flush()
        each.close()
    (row,) = rows(tmp_path / "l")
    assert (row["n"], row["set"]) == (2, None)
    assert rows(tmp_path / "again") == [row]


def test_a_resume_without_a_state_begins_again(tmp_path: Path) -> None:
    for gen in range(2):
        ledger = Ledger(tmp_path / "l")
        if gen:
            ledger.resume(1, 0)
        ledger.add_step([gen])
        ledger.close_update(1, 0)
        ledger.flush()
        ledger.close()
    (row,) = rows(tmp_path / "l")
    assert row["hash"] == extend_chain(START, bytes.fromhex(row["ids"])).hex()


def test_what_is_open_at_the_end_of_an_epoch_belongs_to_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    ledger.add_step([0])
    ledger.close_epoch(0, 1, left_out=[])
    ledger.add_step([0])
    ledger.close_update(1, 1)
    ledger.flush()
    ledger.close()
    assert [(row["update"], row["epoch"]) for row in rows(tmp_path / "l")] == [(1, 0), (1, 0), (1, 1)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), st.randoms())
def test_the_set_does_not_depend_on_the_order_and_tells_twice_from_once(ids: list[int], draw: Any) -> None:
    array = np.array(ids, dtype=np.int64)
    again = list(ids)
    draw.shuffle(again)
    assert sum_ids(array) == sum_ids(np.array(again, dtype=np.int64))
    if ids:
        assert sum_ids(np.array([*ids, ids[0]], dtype=np.int64)) != sum_ids(array)


def test_the_set_of_a_range_is_made_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sum_range(1000)
    monkeypatch.setattr("alchemy.records.ledger.CHUNK", 7)
    assert sum_range(1000) == whole == sum_ids(np.arange(1000))
    assert sum_range(0) == 0
    assert sum_range(1) == 0xE220A8397B1DCDAF  # reference values of splitmix64


@pytest.mark.parametrize("text", ["{", "[]", '{"update": 1}', "\udcff"])
def test_a_damaged_line_is_named_unless_a_resume_has_made_it_void(tmp_path: Path, text: str) -> None:
    path = tmp_path / "l"
    line = (text + "\n").encode(errors="surrogateescape")
    path.write_bytes(line)
    with pytest.raises(AlchemyError, match=r"l:1 not a ledger row; the record was edited"):
        read_ledger(path)
    path.write_bytes(line + b'{"event": "resume", "gen": 1, "from_update": 0, "from_line": 0}\n{"upd')
    assert read_ledger(path) == []
