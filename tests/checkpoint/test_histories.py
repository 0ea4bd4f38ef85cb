"""Random histories of a run: saves, disk failures, restarts and damage in any order, checked after each event."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.checkpoint.files import Disk, read
from alchemy.checkpoint.keeper import Checkpoints
from alchemy.checkpoint.manifest import Where, checkpoints, newest_valid, read_manifest, verify
from tests.checkpoint.faults import FaultyDisk
from tests.checkpoint.killed import Counter

SCORES = st.none() | st.sampled_from([0.1, 0.5, 0.9, float("nan")])
EVENTS = st.one_of(
    st.tuples(st.just("step"), SCORES, st.booleans()),
    st.tuples(st.just("step"), SCORES, st.just(False)),
    st.tuples(st.just("epoch")),
    st.tuples(st.just("break"), st.integers(0, 20)),
    st.tuples(st.just("mend")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("damage"), st.integers(0, 10**6)),
    st.tuples(st.just("leave")),
)


class History:
    """A run, with restarts, whose tensors contain the update at which they were saved."""

    def __init__(self, state: Path, **policy: Any) -> None:
        self.state, self.policy = state, policy
        self.damaged: set[str] = set()
        self.safe = 0  # the latest update whose complete state was reported as saved
        self.begin()

    def begin(self) -> None:
        self.counter = Counter()
        self.keeper = Checkpoints(self.state, monitor="dev/f1", **self.policy)
        self.keeper.parts = {"parts": self.counter}
        self.keeper.saver.disk = FaultyDisk()

    @property
    def where(self) -> Where:
        return Where(self.counter.update, 0, self.counter.update)

    def step(self, score: float | None, mid_window: bool) -> None:
        self.counter.step()
        if score is not None:
            self.keeper.after_evaluation("dev", {"f1": score}, self.where, mid_window)
        self.keeper.after_update(self.where)

    def epoch(self) -> None:
        self.keeper.after_epoch(self.where)

    def leave(self) -> None:
        folder = self.keeper.save(self.where, "signal")
        if folder is not None:
            assert verify(folder) == "" or folder.name in self.damaged
            self.safe = self.counter.update if folder.name not in self.damaged else self.safe

    def restart(self) -> None:
        self.keeper.close()
        self.begin()
        place = self.keeper.restore()
        assert self.counter.update == (place["update"] if place else 0)
        assert all(bool((tensor == self.counter.update).all()) for tensor in self.counter.tensors)

    def damage(self, place: int) -> None:
        self.keeper.saver.wait()
        whole = [folder for folder in checkpoints(self.state) if folder.name not in self.damaged]
        if whole:
            path = whole[-1] / "state.json"
            data = path.read_bytes()
            place %= len(data)
            with open(path, "rb+") as file:  # in place, so that links are affected too
                file.seek(place)
                file.write(bytes([data[place] ^ 1]))
            self.damaged.add(whole[-1].name)
            self.safe = 0

    def mend(self) -> None:
        self.keeper.saver.wait()
        self.keeper.saver.disk = Disk()

    def look(self) -> None:
        self.keeper.saver.wait()
        folders = checkpoints(self.state)
        self.damaged &= {folder.name for folder in folders}
        assert [folder.name for folder in folders if verify(folder)] == [
            folder.name for folder in folders if folder.name in self.damaged
        ]
        for folder in set(folders) - {self.state / name for name in self.damaged}:
            update = read_manifest(folder).update
            if read_manifest(folder).kind == "whole":
                assert all(bool((tensor == update).all()) for tensor in read(folder)["parts.safetensors"].values())
        newest, _ = newest_valid(self.state)
        assert (read_manifest(newest).update if newest else 0) >= self.safe
        assert [path.name for path in self.state.glob(".*")] == []


def live(events: list[tuple[Any, ...]], **policy: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        state.mkdir()
        history = History(state, **policy)
        for name, *arguments in events:
            if name == "break":
                history.keeper.saver.wait()
                history.keeper.saver.disk = FaultyDisk(call=arguments[0])
            else:
                getattr(history, name)(*arguments)
            history.look()
        history.keeper.close()


POLICIES = st.fixed_dictionaries(
    {
        "every": st.sampled_from([1, 2, {"epochs": 1}]),
        "best": st.integers(0, 2),
        "last": st.integers(1, 2),
        "asynchronous": st.booleans(),
    }
)


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=12), POLICIES)
def test_a_complete_state_is_always_there(events: list[tuple[Any, ...]], policy: dict[str, Any]) -> None:
    live(events, **policy)


@pytest.mark.slow
@settings(max_examples=1000)
@given(st.lists(EVENTS, max_size=25), POLICIES)
def test_a_thousand_histories(events: list[tuple[Any, ...]], policy: dict[str, Any]) -> None:
    live(events, **policy)
