"""The call stacks of a run match docs/code-walkthrough.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from torch import Tensor

import alchemy
from alchemy.cli import main
from alchemy.metrics.metric_stack import Stack
from alchemy.records.jsonl_writer import JsonlWriter

PACKAGE = Path(alchemy.__file__).parent
PAGE = PACKAGE.parent / "docs" / "code-walkthrough.md"


def drawn(walk: str) -> list[str]:
    """Return the files in the first table below a heading of the page."""
    section = PAGE.read_text("utf-8").partition(f"## {walk}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| \[[^]]+\]\(\.\./alchemy/([^)]+)\)", section, re.MULTILINE)


def files_of(frame: FrameType | None) -> list[str]:
    """Return the files of the package on a call stack, outermost first, each once."""
    found: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            found.append(path.relative_to(PACKAGE).as_posix())
        frame = frame.f_back
    return list(dict.fromkeys(reversed(found)))


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """Return the stacks when the first gradient is computed, a loss is logged, and the first row is written."""
    places = {
        Tensor.backward.__code__: "backward",
        Stack.log.__code__: "log",
        JsonlWriter.append_later.__code__: "write",
    }
    found: dict[str, list[str]] = {}

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        name = places.get(frame.f_code) if event == "call" else None
        if name is not None and name not in found:
            found[name] = files_of(frame)
        if len(found) == len(places):
            sys.setprofile(None)

    folder = tmp_path_factory.mktemp("walks")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        assert main(["new", "."]) == 0
        before = sys.getprofile()
        sys.setprofile(watch)
        try:
            assert main(["run", "train.toml", "--device", "-1", "--set", "sched.epochs=1"]) == 0
        finally:
            sys.setprofile(before)
    yield found
    for name in [name for name in sys.modules if name.partition(".")[0] == "src"]:
        del sys.modules[name]


def test_a_batch_passes_through_eight_files_and_four_of_them_in_the_loop(stacks: dict[str, list[str]]) -> None:
    walk = stacks["backward"]
    assert walk == drawn("From a batch to a gradient")
    assert len(walk) <= 8
    assert len(walk[walk.index("loop.py") :]) <= 4


def test_a_metric_passes_through_five_files(stacks: dict[str, list[str]]) -> None:
    write = stacks["write"]
    walk = [stacks["log"][-1], *write[write.index("loop.py") + 1 :]]
    assert walk == drawn("From a loss to metrics.jsonl")
    assert len(walk) <= 5
