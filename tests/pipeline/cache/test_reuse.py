"""The pipe Cache: reused while nothing has changed, and never stale."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.data.cache.entries import cache_folder, entries
from alchemy.pipeline import ItrDataPipeline, build_datapipes
from alchemy.pipeline.cache import Cache
from alchemy.registry import resolve
from alchemy.text import Words
from tests.pipeline.cache.chains import (
    PIPES,
    WORDS,
    built,
    forget,
    write,
)


def test_it_is_reused_while_nothing_changes(capture_log: Any) -> None:
    first, again = built(), built()
    wanted = [{"text": "a b", "words": ["a", "b"]}, {"text": "c", "words": ["c"]}]
    assert list(first) == list(again) == wanted
    assert again[-1] == wanted[-1]
    key = entries(cache_folder())[0].key[:12]
    assert f"INFO cache {key}: no entry for this chain yet; computing the samples" in capture_log.text
    assert f"INFO cache {key}: stored 2 samples" in capture_log.text
    assert f"INFO cache {key}: no changes, reusing 2 samples, " in capture_log.text


CHANGES: dict[str, tuple[Callable[[pytest.MonkeyPatch], Any], dict[str, Any], str]] = {
    "data": (lambda _: write("train.jsonl", '{"text": "x"}\n'), {}, "the file train.jsonl has changed"),
    "more data": (lambda _: write("dev.jsonl", '{"text": "x"}\n'), {}, "the file dev.jsonl is new"),
    "option": (lambda _: None, {"sep": "b"}, "pipe 2 (alchemy.pipeline.itr.Map) has changed"),
    "function": (lambda _: write("kept/words.py", WORDS + "#"), {}, "the source of kept.words has changed"),
    "imported": (
        lambda _: write("kept/clean.py", "def clean(text):\n    return text.upper()\n"),
        {},
        "the source of kept.clean has changed",
    ),
    "version": (
        lambda patch: patch.setattr(alchemy, "__version__", "0"),
        {},
        "the version of alchemy has changed",
    ),
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
    assert "cannot reuse " in capture_log.text and f": {told}" in capture_log.text
    assert len(entries(cache_folder())) == 2


def test_a_file_named_by_also_counts_with_its_content(capture_log: Any) -> None:
    write("more.bin", "1")
    built(also=["more.bin"])
    write("more.bin", "2")
    built(also=["more.bin"])
    assert "cannot reuse " in capture_log.text and ": the file more.bin has changed" in capture_log.text


def test_a_touched_file_is_the_same(capture_log: Any) -> None:
    built()
    os.utime("train.jsonl", (1, 1))
    built()
    assert "no changes" in capture_log.text


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
    assert "no changes" in capture_log.text
    write("a.tsv", "label\ttext\nx\tb b\ny\tc\n")
    write("a.conll", "b B-X\nb I-X\n\nc O\n")
    build(Recipe(Path("corpus"), {"": ["a.tsv"]}))
    changed = build_datapipes(chain)
    assert repr(list(changed)) == repr(list(changed.datapipe)) != repr(list(first))


def test_a_module_that_was_edited_after_its_import_is_not_believed(capture_log: Any) -> None:
    built()
    for name, text in (("words", f"{WORDS}\nLIMIT = 2\n"), ("clean", "def clean(text):\n    return text.upper()\n")):
        write(f"kept/{name}.py", text)
        kept = build_datapipes(PIPES)  # in the same process, with the former code
        assert [sample["words"] for sample in kept] == [["a", "b"], ["c"]]
        assert f"the module kept.{name} was edited after it was imported" in capture_log.text
        write("kept/words.py", WORDS)
    assert len(entries(cache_folder())) == 1


def test_a_package_counts_where_a_module_in_it_is_imported(capture_log: Any) -> None:
    built()
    write("kept/__init__.py", "SIZE = 22\n")
    built()
    assert "the source of kept has changed" in capture_log.text


def test_a_module_that_the_chain_does_not_import_does_not_count(capture_log: Any) -> None:
    write("kept/model.py", "SIZE = 1\n")
    built()
    write("kept/model.py", "SIZE = 2\n")
    built()
    assert "no changes" in capture_log.text


def test_an_environment_that_matters_is_named_by_also() -> None:
    """Changes that the key does not detect, and what a user can do about them."""
    write("kept/clean.py", "import os\ndef clean(text):\n    return text + os.environ.get('MARK', '')\n")
    os.environ["MARK"] = "!"
    try:
        assert [built(also=[mark])[1]["words"] for mark in ("!",)] == [["c!"]]
        os.environ["MARK"] = "?"
        assert built(also=["!"])[1]["words"] == ["c!"]
        assert built(also=["?"])[1]["words"] == ["c?"]
    finally:
        del os.environ["MARK"]


def test_data_that_changes_while_it_is_read_is_not_kept(capture_log: Any) -> None:
    write("grown.txt", "a")
    assert list(Cache(Growing("grown.txt"))) == ["ab"]
    assert "grown.txt changed while it was being read" in capture_log.text
    assert entries(cache_folder()) == []


class Growing(ItrDataPipeline):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def __iter__(self) -> Iterator[str]:
        Path(self.path).write_text("ab")
        yield Path(self.path).read_text()


class Later(ItrDataPipeline):
    """Import a function when it is read."""

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
