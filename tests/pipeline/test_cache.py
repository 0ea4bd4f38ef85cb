"""The pipe Cache: reused while nothing has changed, never stale, and never in the way."""

from __future__ import annotations

import functools
import importlib
import json
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alchemy.cli import main
from alchemy.context import Run
from alchemy.data.cache import sources
from alchemy.data.cache.entries import cache_folder, entries
from alchemy.data.loader import get_dataloader
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, build_datapipes
from alchemy.pipeline import cache as module
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.itr import JsonlOpener, Map, Shuffle, SplitByWorker
from alchemy.pipeline.lst import Map as ListMap
from alchemy.pipeline.lst import SequenceWrapper
from alchemy.registry import resolve
from alchemy.seeds import sample_rng
from alchemy.text import Words

CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with data and code; every test has modules of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write("train.jsonl", '{"text": "a b"}\n{"text": "c"}\n')
    write("stop.txt", "the")
    write("kept/__init__.py", "")
    write("kept/clean.py", "def clean(text):\n    return text\n")
    write("kept/words.py", WORDS)
    CALLS.clear()
    module.warned.clear()
    yield
    forget()


WORDS = """
from functools import lru_cache

def words(sample, sep=" "):
    from .clean import clean
    with open("stop.txt") as file:
        stop = file.read().split()
    return {**sample, "words": [word for word in clean(sample["text"]).split(sep) if word not in stop]}

@lru_cache
def cached(text):
    return text.upper() if text in {"b", "a"} else sorted(text, key=lambda sign: -ord(sign))

class Kind:
    NAMES = ("a", 1)
    def __init__(self):
        self.x = [y for y in range(3)]
    @property
    def name(self):
        return _model
    @classmethod
    def made(cls, x: int = 3):
        return cls()

_model, KNOWN = None, {}
LOADED = None
PAIRS = [1.5, "x", (2,)]

def load():
    global LOADED
    LOADED = KNOWN["a"] = 1
load()
"""


PIPES: list[dict[str, Any]] = [
    {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": ["*.jsonl"]},
    {"type": "alchemy.pipeline.itr.JsonlOpener"},
    {"type": "alchemy.pipeline.itr.Map", "fn": "kept.words.words", "args": {"sep": " "}},
    {"type": "alchemy.pipeline.cache.Cache"},
]


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kept"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)


def built(**options: Any) -> Cache:
    """A chain as another process would build it."""
    forget()
    first, opener, words, last = PIPES
    words = {**words, "args": {"sep": options.pop("sep", " ")}}
    kept: Cache = build_datapipes([first, opener, words, {**last, **options}])
    return kept


def test_it_is_reused_while_nothing_changes(capture_log: Any) -> None:
    first, again = built(), built()
    wanted = [{"text": "a b", "words": ["a", "b"]}, {"text": "c", "words": ["c"]}]
    assert list(first) == list(again) == wanted
    assert again[-1] == wanted[-1]
    key = entries(cache_folder())[0].key[:12]
    assert f"INFO cache {key}: nothing of this chain is kept yet; the samples are made" in capture_log.text
    assert f"INFO cache {key}: 2 samples are kept" in capture_log.text
    assert f"INFO cache {key}: nothing has changed, 2 samples are reused, " in capture_log.text
    assert " B, made 0 seconds ago" in capture_log.text


def change_version(monkeypatch: pytest.MonkeyPatch) -> None:
    known = sources.version
    monkeypatch.setattr("alchemy.data.cache.identity.version", lambda name: known(name) + "x" * (name == "numpy"))


CHANGES: dict[str, tuple[Callable[[pytest.MonkeyPatch], Any], dict[str, Any], str]] = {
    "data": (lambda _: write("train.jsonl", '{"text": "x"}\n'), {}, "the file train.jsonl has changed"),
    "more data": (lambda _: write("dev.jsonl", '{"text": "x"}\n'), {}, "the file dev.jsonl is new"),
    "option": (lambda _: None, {"sep": "b"}, "'fn' of pipe 2 (alchemy.pipeline.itr.Map) has changed"),
    "function": (lambda _: write("kept/words.py", WORDS + "#"), {}, "the source of kept.words has changed"),
    "imported": (
        lambda _: write("kept/clean.py", "def clean(text):\n    return text.upper()\n"),
        {},
        "the source of kept.clean has changed",
    ),
    "file in the code": (lambda _: write("stop.txt", "a"), {}, "the file stop.txt has changed"),
    "version": (change_version, {}, "the version of numpy has changed"),
    "also": (lambda _: None, {"also": ["2"]}, "'also' of the cache has changed"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_it_is_made_again(name: str, capture_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    change, options, told = CHANGES[name]
    built()
    change(monkeypatch)
    changed = built(**options)
    without = changed.datapipe
    assert list(changed) == list(without)
    assert f"cannot be reused: {told}" in capture_log.text
    assert len(entries(cache_folder())) == 2


def test_a_file_named_by_also_counts_with_its_content(capture_log: Any) -> None:
    write("more.bin", "1")
    built(also=["more.bin"])
    write("more.bin", "2")
    built(also=["more.bin"])
    assert "cannot be reused: the file more.bin has changed" in capture_log.text


def test_a_touched_file_is_the_same(capture_log: Any) -> None:
    built()
    os.utime("train.jsonl", (1, 1))
    built()
    assert "nothing has changed" in capture_log.text


CHAINS: dict[str, list[dict[str, Any]]] = {
    "encode": [
        {"type": "alchemy.pipeline.processors.TextClassification", "path": "a.tsv", "labels": ["x", "y"]},
        {"type": "alchemy.pipeline.encode.Encode", "tokenizer": "words"},
    ],
    "tagging": [{"type": "alchemy.pipeline.processors.Tagging", "path": "a.conll", "scheme": "BIO"}],
    "parallel": [{"type": "alchemy.pipeline.processors.ParallelText", "path": ["a.tsv", "a.tsv"]}],
    "corpus": [{"type": "alchemy.pipeline.corpora.Mapped", "path": "corpus"}],
    "concat": [
        {"type": "alchemy.pipeline.itr.LineOpener", "datapipe": "a.tsv"},
        {
            "type": "alchemy.pipeline.itr.Concat",
            "pipes": [[{"type": "alchemy.pipeline.itr.LineOpener", "datapipe": "a.tsv"}]],
        },
        {"type": "alchemy.pipeline.itr.Filter", "fn": "builtins.bool"},
        {"type": "alchemy.pipeline.lst.ItrToLst"},
        {"type": "alchemy.pipeline.lst.Map", "fn": "kept.words.cached"},
    ],
}


@pytest.mark.parametrize("name", CHAINS)
def test_our_own_pipes_can_be_told(name: str, capture_log: Any) -> None:
    from alchemy.data.corpus.build import Recipe, build

    write("a.tsv", "label\ttext\nx\ta b\ny\tc\n")
    write("a.conll", "a B-X\nb I-X\n\nc O\n")
    Words.train(["a b"]).save("words")
    build(Recipe(Path("corpus"), {"": ["a.tsv"]}))
    chain = [*CHAINS[name], {"type": "alchemy.pipeline.cache.Cache"}]
    first, again = build_datapipes(chain), build_datapipes(chain)
    assert repr(list(first)) == repr(list(again)) == repr(list(first.datapipe))
    assert "WARNING" not in capture_log.text
    assert "nothing has changed" in capture_log.text
    write("a.tsv", "label\ttext\nx\tb b\ny\tc\n")
    write("a.conll", "b B-X\nb I-X\n\nc O\n")
    build(Recipe(Path("corpus"), {"": ["a.tsv"]}))
    changed = build_datapipes(chain)
    assert repr(list(changed)) == repr(list(changed.datapipe)) != repr(list(first))


def test_a_module_that_was_edited_after_its_import_is_not_believed(capture_log: Any) -> None:
    built()
    for name, text in (("words", f"{WORDS}\nLIMIT = 2\n"), ("clean", "def clean(text):\n    return text.upper()\n")):
        write(f"kept/{name}.py", text)
        kept = build_datapipes(PIPES)  # in the same process, with the code of before
        assert [sample["words"] for sample in kept] == [["a", "b"], ["c"]]
        assert f"the module kept.{name}: it was edited after it had been imported" in capture_log.text
        write("kept/words.py", WORDS)
    assert len(entries(cache_folder())) == 1


def test_data_that_changes_while_it_is_read_is_not_kept(capture_log: Any) -> None:
    write("grown.txt", "a")
    assert list(Cache(Growing("grown.txt"))) == ["ab"]
    assert "grown.txt changed while it was read" in capture_log.text
    assert entries(cache_folder()) == []


class Growing(ItrDataPipeline):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def __iter__(self) -> Iterator[str]:
        Path(self.path).write_text("ab")
        yield Path(self.path).read_text()


class Later(ItrDataPipeline):
    """Imports a function when it is read."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        yield resolve(self.name)("a")


def test_a_name_that_is_imported_later_counts(capture_log: Any) -> None:
    assert list(Cache(Later("kept.clean.clean"))) == ["a"]
    write("kept/clean.py", "def clean(text):\n    return text.upper()\n")
    forget()
    assert list(Cache(Later("kept.clean.clean"))) == ["A"]
    assert "the source of kept.clean has changed" in capture_log.text


def test_looking_imports_nothing() -> None:
    write("kept/words.py", WORDS + "\ndef more():\n    from kept.danger import run\n    return 'kept.danger.run'\n")
    write("kept/danger.py", "raise SystemExit('imported')\n")
    assert len(built()) == 2
    assert "the source of kept.danger" in entries(cache_folder())[0].facts


# -- chains made in Python


def upper(sample: str, **more: Any) -> str:
    CALLS.append(sample)
    return sample.upper()


class Upper:
    """Something with options of its own that can be called."""

    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, sample: str) -> str:
        CALLS.append(sample)
        return sample.upper()


def encoded(sample: str, tokenizer: Words) -> list[int]:
    CALLS.append(sample)
    return tokenizer.encode(sample)


def names(*texts: str) -> SequenceWrapper:
    return SequenceWrapper(list(texts) or ["a", "b"])


def tokenizer(*words: str) -> Any:
    return functools.partial(encoded, tokenizer=Words.train([" ".join(words)]))


class Folder(ItrDataPipeline):
    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root

    def __iter__(self) -> Iterator[str]:
        return (path.read_text() for path in sorted(Path(self.root).iterdir()))


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


def test_samples_that_cannot_be_written_are_made_anew(capture_log: Any) -> None:
    kept = Cache(Map(names(), Upper))
    assert [type(sample) for sample in kept] == [Upper, Upper]
    assert "a tests.pipeline.test_cache.Upper cannot be written" in capture_log.text
    with pytest.raises(AlchemyError, match=r"test_cache\.Upper cannot be written"):
        Cache(Map(names(), Upper), strict=True)


def test_a_cache_that_cannot_be_written_is_done_without(capture_log: Any) -> None:
    write(".alchemy/cache", "a file in its place")
    for _ in range(2):
        assert list(Cache(ListMap(names(), upper))) == ["A", "B"]
    assert capture_log.text.count("WARNING cache: the samples are not kept") == 1
    assert "the cache cannot be written: " in capture_log.text


def test_overwrite_cache_makes_it_again(capture_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in ("one", "two", "two"):
        monkeypatch.setattr(module, "launch", lambda start=start: start)
        monkeypatch.setattr("alchemy.data.cache.entries.launch", lambda start=start: start)
        assert list(Cache(ListMap(names(), upper), overwrite_cache=True)) == ["A", "B"]
    assert CALLS == ["a", "b"] * 2  # the second rank of one start finds what the first has made
    assert "it is made again, as overwrite_cache says" in capture_log.text


def test_no_file_writes_nothing_and_reads_what_is_there(run: Run, capture_log: Any) -> None:
    run.set_global("no_file", True)
    assert list(Cache(Map(names(), upper))) == ["A", "B"]
    assert not Path(".alchemy").exists()
    run.set_global("no_file", False)
    Cache(Map(names(), upper))
    run.set_global("no_file", True)
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
    assert "WARNING cache: alchemy.pipeline.lst.Map draws random numbers, or a pipe before it" in capture_log.text


def test_a_shuffle_before_it_is_that_of_the_seed(capture_log: Any) -> None:
    def read(seed: int) -> list[Any]:
        pipes = [
            {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": list("abcdef")},
            {"type": "alchemy.pipeline.itr.Shuffle"},
        ]
        kept = build_datapipes([*pipes, {"type": "alchemy.pipeline.cache.Cache"}], seed=seed)
        assert list(kept) == list(build_datapipes(pipes, seed=seed))
        return list(kept)

    assert read(1) == read(1) != read(2)
    assert "'order' of pipe 1 (alchemy.pipeline.itr.Shuffle) has changed" in capture_log.text
    assert "WARNING" not in capture_log.text


# -- what it refuses


def test_it_stands_before_the_split() -> None:
    with pytest.raises(AlchemyError, match="behind a pipe that splits the data"):
        Cache(SplitByWorker(names()))


def test_nothing_is_an_error() -> None:
    write("empty.jsonl", "")
    with pytest.raises(AlchemyError, match="JsonlOpener yields nothing"):
        Cache(Shuffle(JsonlOpener(["empty.jsonl"])).datapipe)


def test_an_error_of_the_data_names_the_pipe() -> None:
    write("train.jsonl", '{"text": 1}\n')
    with pytest.raises(AlchemyError, match=r"\[pipes.2\] alchemy.pipeline.itr.Map failed"):
        built()
    assert entries(cache_folder()) == []


# -- the command


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["data", "cache", "ls", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_lists_and_removes(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys) == []
    assert main(["data", "cache", "rm", "--all"]) == 0
    assert not Path(".alchemy").exists()
    built()
    built(sep="b")
    built(also=["3"])
    capsys.readouterr()
    rows = listed(capsys)
    assert [(row["samples"], row["data"]) for row in rows] == [(2, ["train.jsonl", "stop.txt"])] * 3
    main(["data", "cache", "ls"])
    out = capsys.readouterr().out
    assert rows[0]["key"][:12] in out
    assert "train.jsonl, stop.txt\n3 kept, " in out
    main(["data", "cache", "rm", rows[0]["key"][:8]])
    manifest = Path(rows[1]["path"]) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "created": 1.0}))
    os.utime(manifest, (1, 1))
    main(["data", "cache", "rm", "--older-than", "30"])
    capsys.readouterr()
    assert [row["key"] for row in listed(capsys)] == [rows[2]["key"]]
    main(["data", "cache", "path"])
    assert capsys.readouterr().out.strip() == str(cache_folder())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rm"], "say what to remove"),
        (["rm", "ff", "--all"], "say what to remove"),
        (["rm", "ff"], "no entry of the cache begin with 'ff'"),
        (["ls", "--all"], "takes no '--all'"),
        (["path", "--json"], "takes no '--json'"),
        (["lst"], "did you mean 'ls'"),
    ],
)
def test_the_command_says_what_is_wrong(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "cache", *words]) == 2
    assert told in capsys.readouterr().err
