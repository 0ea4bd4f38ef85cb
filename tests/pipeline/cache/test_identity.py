"""What the key of the cache is made of, for chains made in Python, and what cannot be told."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alchemy.context import Run
from alchemy.data.cache.entries import cache_folder, entries
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.lst import Map as ListMap
from alchemy.text import Words
from tests.pipeline.cache.chains import (
    CALLS,
    Folder,
    Upper,
    names,
    tokenizer,
    upper,
    write,
)


class Held:
    def __init__(self, root: str) -> None:
        self.inner = {"root": [root]}


class Option(Folder):
    """Reads the folder `texts`, and has an option that names one."""

    def __init__(self, option: Any) -> None:
        super().__init__("texts")
        self.option = option


@pytest.mark.parametrize("option", [Held("texts"), "."])
def test_a_folder_that_cannot_be_told_is_never_kept_in_silence(option: Any, capture_log: Any) -> None:
    write("texts/a", "1")
    assert list(Cache(Option(option))) == ["1"]
    assert "the samples are not kept, but made anew: it cannot be told when they change" in capture_log.text


def test_a_folder_counts_with_its_files(capture_log: Any) -> None:
    write("texts/a", "1")
    assert list(Cache(Folder("texts"))) == ["1"]
    write("texts/a", "2")
    assert list(Cache(Folder("texts"))) == ["2"]
    assert "cannot be reused: the file texts/a has changed" in capture_log.text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (upper, functools.partial(upper, by=1)),
        (functools.partial(upper, by=1), functools.partial(upper, by=2)),
        (functools.partial(upper, by={1, 2}), functools.partial(upper, by=[1, 2])),
        (Upper(1), Upper(True)),
        (Upper(np.zeros(2)), Upper(np.zeros(2, "f4"))),
        (Upper(torch.zeros(2)), Upper(torch.ones(2))),
        (Upper({"a": Path("x")}), Upper({"a": Path("y")})),
        (Upper(Words.train(["a b"])), Upper(Words.train(["a b c"]))),
        (tokenizer("a", "b"), tokenizer("b", "c", "c")),
        (str.upper, str.lower),
    ],
)
def test_options_are_told_apart(one: Any, other: Any) -> None:
    for fn in (one, other, one, other):
        data = ListMap(names(), fn)
        assert list(Cache(data)) == [fn("a"), fn("b")]
    assert len(entries(cache_folder())) == 2


def test_equal_options_are_the_same() -> None:
    for _ in range(2):
        kept = Cache(ListMap(names(), Upper({"a": [1, 2.5, None, {"x", "y"}], "t": Words.train(["a b"])})))
        assert list(kept) == ["A", "B"]
    assert CALLS == ["a", "b"]


def test_a_cache_may_stand_behind_another() -> None:
    for text in ("a", "a", "b"):
        assert list(Cache(ListMap(Cache(ListMap(names(text), upper)), upper))) == [text.upper()]
    assert CALLS == ["a", "A", "b", "B"]


def test_texts_in_memory_are_data() -> None:
    assert [list(Cache(ListMap(names(text), upper))) for text in ("a", "b", "a")] == [["A"], ["B"], ["A"]]
    assert CALLS == ["a", "b"]


@DataPipeline.register()
class Asks(ItrDataPipeline):
    def __iter__(self) -> Iterator[Any]:
        from alchemy.context import current_run

        yield current_run().cfg["tag"]


def generator() -> Iterator[int]:
    yield 1


UNKNOWN = {
    "lambda": (
        lambda: ListMap(names(), lambda text: upper(text)),
        "it is a lambda, or stands inside of another function",
    ),
    "generator": (lambda: ListMap(names(), Upper(generator())), "a builtins.generator cannot be looked into"),
    "lock": (lambda: ListMap(names(), Upper([threading.Lock()])), "cannot be looked into"),
    "run": (lambda: Asks(), "asks the run, by current_run"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_told_is_never_kept_in_silence(name: str, capture_log: Any, run: Run) -> None:
    make, told = UNKNOWN[name]
    for _ in range(2):
        assert list(Cache(make())) == (["pipes"] if name == "run" else ["A", "B"])
    assert capture_log.text.count("WARNING cache: the samples are not kept, but made anew: it cannot be told") == 2
    assert told in capture_log.text
    assert len(CALLS) == (0 if name == "run" else 4)
    assert not cache_folder().exists()
    with pytest.raises(AlchemyError, match="the samples are not kept: it cannot be told when they change"):
        Cache(make(), strict=True)
