"""The samples of the pipe Cache equal those without it."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alchemy.context import Run
from alchemy.data.cache.entries import Entry, cache_folder, entries, remove
from alchemy.data.cache.sample_store import Stored
from alchemy.data.loader import get_dataloader
from alchemy.data.sample_lengths import lengths_of
from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.itr import JsonlOpener, Map, Shuffle, SplitByWorker
from alchemy.pipeline.lst import Map as ListMap
from alchemy.seeds import sample_rng
from tests.pipeline.cache.chains import (
    CALLS,
    Upper,
    built,
    names,
    upper,
    write,
)


def test_samples_that_cannot_be_written_are_made_anew(capture_log: Any) -> None:
    kept = Cache(Map(names(), Upper))
    assert [type(sample) for sample in kept] == [Upper, Upper]
    assert "cannot store a tests.pipeline.cache.chains.Upper" in capture_log.text
    with pytest.raises(AlchemyError, match=r"cannot store a .*chains\.Upper"):
        Cache(Map(names(), Upper), strict=True)


def test_a_cache_that_cannot_be_written_is_done_without(capture_log: Any) -> None:
    write(".alchemy/cache", "a file in its place")
    for _ in range(2):
        assert list(Cache(ListMap(names(), upper))) == ["A", "B"]
    assert capture_log.text.count("WARNING cache: not used, computing the samples again") == 2
    assert "cannot write the cache: " in capture_log.text


def test_overwrite_cache_makes_it_again(capture_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in ("one", "two", "two"):
        monkeypatch.setattr("alchemy.data.cache.entries.launch_id", lambda start=start: start)
        assert list(Cache(ListMap(names(), upper), overwrite_cache=True)) == ["A", "B"]
    assert CALLS == ["a", "b"] * 2  # the second rank of the same launch finds the entry of the first
    assert "computing the samples again, since overwrite_cache is set" in capture_log.text


def test_no_file_writes_nothing_and_reads_what_is_there(run: Run, capture_log: Any) -> None:
    run.symbols.set_global("no_file", True)
    assert list(Cache(Map(names(), upper))) == ["A", "B"]
    assert not Path(".alchemy").exists()
    run.symbols.set_global("no_file", False)
    Cache(Map(names(), upper))
    run.symbols.set_global("no_file", True)
    there = {path: path.stat().st_mtime_ns for path in Path(".alchemy").rglob("*")}
    assert list(Cache(Map(names(), upper))) == ["A", "B"]
    assert {path: path.stat().st_mtime_ns for path in Path(".alchemy").rglob("*")} == there
    assert CALLS == ["a", "b"] * 2
    assert "WARNING" not in capture_log.text


def test_workers_read_it(capture_log: Any) -> None:
    kept = Cache(ListMap(names(*"abcdef"), upper))
    for start in ("fork", "spawn"):
        loader = get_dataloader(kept, batch_size=2, num_workers=2, multiprocessing_context=start)
        assert list(loader) == [["A", "B"], ["C", "D"], ["E", "F"]]
    assert list(get_dataloader(SplitByWorker(kept), batch_size=6)) == [list("ABCDEF")]


def test_arrays_may_be_changed_unless_they_are_views() -> None:
    source = ListMap(names(), Arrays())
    kept = Cache(source)
    kept[0]["x"][0] = 9
    assert kept[0]["x"].tolist() == [1, 1]
    assert not Cache(source, views=True)[0]["x"].flags.writeable
    assert next(iter(get_dataloader(kept, batch_size=2)))["x"].tolist() == [[1, 1], [1, 1]]


class Arrays:
    def __call__(self, sample: str) -> dict[str, Any]:
        return {"x": np.ones(2, "f4")}


# -- random numbers


def noisy(sample: str) -> Any:
    return sample, random.random(), float(np.random.rand()), float(torch.rand(1))


def own(sample: str) -> Any:
    return sample, float(sample_rng().random())


@pytest.mark.parametrize("fn", [noisy, own])
def test_what_was_drawn_is_kept_told_and_seen_by_nobody_else(fn: Any, capture_log: Any) -> None:
    random.seed(1)
    kept = [
        list(Cache(ListMap(names(), fn))),
        list(Cache(ListMap(names(), fn))),
        list(Cache(ListMap(names(), fn), overwrite_cache=True)),
    ]
    assert kept[0] == kept[1] == kept[2]
    assert kept[0][0][1:] != kept[0][1][1:]
    assert random.random() == random.Random(1).random()
    assert "WARNING cache: alchemy.pipeline.lst.Map or a pipe before it draws random numbers" in capture_log.text


def test_a_shuffle_before_it_is_that_of_the_seed(capture_log: Any) -> None:
    def read(seed: int) -> list[Any]:
        pipes: list[Any] = [
            {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": list("abcdef")},
            {"type": "alchemy.pipeline.itr.Shuffle"},
        ]
        kept = build_datapipes([*pipes, {"type": "alchemy.pipeline.cache.Cache"}], seed=seed)
        assert list(kept) == list(build_datapipes(pipes, seed=seed))
        return list(kept)

    assert read(1) == read(1) != read(2)
    assert "pipe 1 (alchemy.pipeline.itr.Shuffle) has changed" in capture_log.text
    assert "WARNING" not in capture_log.text


# -- errors


def test_it_stands_before_the_split() -> None:
    with pytest.raises(AlchemyError, match="cannot follow a pipe that splits the data"):
        Cache(SplitByWorker(names()))


def test_nothing_is_an_error() -> None:
    write("blank.jsonl", "\n\n")
    with pytest.raises(AlchemyError, match="JsonlOpener yields no samples"):
        Cache(Shuffle(JsonlOpener(["blank.jsonl"])).datapipe)


def test_an_error_of_the_data_names_the_pipe() -> None:
    write("train.jsonl", '{"text": 1}\n')
    with pytest.raises(AlchemyError, match=r"\[pipes.2\] alchemy.pipeline.itr.Map failed"):
        built()
    assert entries(cache_folder()) == []


# -- damaged, or removed by another process


def folder_of(kept: Cache) -> Path:
    assert isinstance(kept.samples, Stored)
    return kept.samples.folder


@pytest.mark.parametrize("name", ["manifest.json", "samples.bin", "ends.bin"])
def test_what_is_damaged_is_told_once_and_made_again(name: str, capture_log: Any) -> None:
    path = folder_of(Cache(ListMap(names(), upper))) / name
    path.write_bytes(path.read_bytes()[::-1])
    for _ in range(2):
        assert list(Cache(ListMap(names(), upper))) == ["A", "B"]
    assert CALLS == ["a", "b"] * 2
    assert f"{name} was modified after it was written); computing the samples again" in capture_log.text
    assert capture_log.text.count("WARNING") == 1


def test_what_is_removed_before_it_is_opened_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(ListMap(names(), upper))
    opened = Entry.open

    def removed_first(entry: Entry, **more: Any) -> Stored:
        monkeypatch.setattr(Entry, "open", opened)
        remove(cache_folder(), [entry.key])
        return entry.open(**more)

    monkeypatch.setattr(Entry, "open", removed_first)
    assert list(Cache(ListMap(names(), upper))) == ["A", "B"]
    assert CALLS == ["a", "b"] * 2


def test_what_is_removed_before_a_worker_opens_it_is_told() -> None:
    kept = Cache(ListMap(names(), upper))
    packed = pickle.dumps(kept)
    remove(cache_folder(), [folder_of(kept).name])
    traveled = pickle.loads(packed)
    with pytest.raises(AlchemyError, match="was removed or rewritten while in use"):
        traveled[0]
    assert list(kept) == ["A", "B"]  # it has mapped the former files


def test_a_worker_reads_what_was_made_again_if_it_is_the_same() -> None:
    kept = Cache(ListMap(names(), upper))
    packed = pickle.dumps(kept)
    remove(cache_folder(), [folder_of(kept).name])
    Cache(ListMap(names(), upper))
    assert list(pickle.loads(packed)) == ["A", "B"]


# -- loaders and resuming


def ids(sample: str) -> dict[str, Any]:
    CALLS.append(sample)
    return {"input_ids": list(range(len(sample))), "text": sample}


def test_a_loader_knows_lengths_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Cache(ListMap(names("aaaa", "b", "cc"), ids))
    monkeypatch.setattr(Cache, "__getitem__", None)
    assert {name: column.tolist() for name, column in lengths_of(kept, "input_ids").items()} == {"input_ids": [4, 1, 2]}
    monkeypatch.undo()
    loader = get_dataloader(kept, max_tokens=4, length_of="input_ids", collate_fn=list)
    assert [[len(sample["input_ids"]) for sample in batch] for batch in loader] == [[1, 2], [4]]


def test_lengths_are_asked_of_the_chain_where_nothing_is_kept() -> None:
    assert Cache(ListMap(names(), lambda text: text)).lengths() == {}
    told = ListMap(names(), lambda text: text)
    told.lengths = lambda: {"ids": np.array([1, 1])}  # type: ignore[method-assign]
    assert Cache(told).lengths()["ids"].tolist() == [1, 1]


def test_a_resume_knows_the_samples() -> None:
    one, same = Cache(ListMap(names("ab"), upper)), Cache(ListMap(names("ab"), str.upper))
    other = Cache(ListMap(names("ax"), upper))
    assert isinstance(one.digest, str)
    assert one.digest == same.digest != other.digest
    assert Cache(ListMap(names(), lambda text: text)).digest is None
