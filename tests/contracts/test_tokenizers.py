"""The contract of tokenizers, tested for every kind."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.config.part_source import parts
from alchemy.errors import AlchemyError
from alchemy.registry import build
from alchemy.text import Tokenizer, load_tokenizer
from tests.text.kinds import KINDS, LINES, every_kind, make

ANY = ["", "   ", "the unheard-of cat", "<pad> </s> [SEP] <unk> @@", "\u3000weiß\u00a0\n\U0001f600", *LINES]


@every_kind
@given(data=st.data())
def test_text_comes_back(kind: str, data: st.DataObject) -> None:
    _, texts, expected = KINDS[kind]
    text = data.draw(texts)
    tokenizer = make(kind)
    assert tokenizer.decode(tokenizer.encode(text)) == expected(text)


@every_kind
@given(lines=st.lists(st.text() | st.sampled_from(ANY), max_size=5))
def test_many_lines_are_encoded_as_one_by_one(kind: str, lines: list[str]) -> None:
    tokenizer = make(kind)
    ids, lengths = tokenizer.encode_lines(lines)
    assert (ids.dtype.kind, lengths.dtype) == ("i", np.int64)
    assert len(lengths) == len(lines) and lengths.sum() == len(ids)
    ends = np.cumsum(lengths)
    assert [ids[end - length : end].tolist() for end, length in zip(ends, lengths)] == [
        tokenizer.encode(line) for line in lines
    ]


@every_kind
@given(text=st.text() | st.sampled_from(ANY))
def test_any_text_has_ids_none_of_which_is_special(kind: str, text: str) -> None:
    tokenizer = make(kind)
    ids = tokenizer.encode(text)
    assert all(0 <= i < tokenizer.size and i not in tokenizer.hidden for i in ids)
    assert isinstance(tokenizer.decode(ids), str)


@every_kind
def test_special_tokens_are_left_out_of_text(kind: str) -> None:
    tokenizer = make(kind)
    ids = tokenizer.encode("the cat")
    special = [i for i in (tokenizer.pad, tokenizer.bos, tokenizer.eos) if i is not None]
    expected = KINDS[kind][2]("the cat")
    assert tokenizer.decode([*special, *ids, *special]) == expected
    assert tokenizer.decode(np.array(ids, np.uint16)) == expected


@every_kind
def test_a_number_that_is_no_id_is_refused(kind: str) -> None:
    tokenizer = make(kind)
    for wrong in (-100, tokenizer.size):
        with pytest.raises(AlchemyError, match=f"has no id {wrong}; valid ids are 0 to {tokenizer.size - 1}"):
            tokenizer.decode([wrong])


def same(one: Any, other: Any) -> bool:
    names = ("size", "pad", "bos", "eos", "unk", "hidden", "digest")
    equal = all(getattr(one, name) == getattr(other, name) for name in names)
    return equal and all(np.array_equal(a, b) for a, b in zip(one.encode_lines(ANY), other.encode_lines(ANY)))


@every_kind
def test_saved_and_loaded_it_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = make(kind)
    tokenizer.save(tmp_path / "deep" / "one")
    loaded = load_tokenizer(tmp_path / "deep" / "one")
    assert type(loaded) is type(tokenizer) and same(tokenizer, loaded)
    loaded.save(tmp_path / "deep" / "one")  # replaces the first one
    assert same(tokenizer, load_tokenizer(tmp_path / "deep" / "one"))


@every_kind
def test_it_can_be_sent_to_another_process(kind: str) -> None:
    assert same(make(kind), pickle.loads(pickle.dumps(make(kind))))


@every_kind
def test_a_config_can_name_it(kind: str, tmp_path: Path) -> None:
    tokenizer = make(kind)
    tokenizer.save(tmp_path / "one")
    manifest = json.loads((tmp_path / "one" / "alchemy.json").read_text())
    files = {key: str(tmp_path / "one" / name) for key, name in tokenizer.FILES.items()}
    room = "tests.text.kinds" if kind == "own" else "alchemy.text"
    table = {"type": f"{room}.{type(tokenizer).__name__}", **manifest["options"], **files}
    assert manifest["type"] == table["type"]
    assert same(tokenizer, build(Tokenizer, table))


def test_every_kind_that_is_listed_is_held_to_the_contract() -> None:
    made = {f"alchemy.text.{type(make(kind)).__name__}" for kind in KINDS}
    assert {part.path for part in parts("tokenizer")} <= made


def test_digests_differ_where_ids_do() -> None:
    assert len({make(kind).digest for kind in KINDS}) == len(KINDS)


# -- the folder


def test_a_file_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    make("words").save(tmp_path / "one")
    with (tmp_path / "one" / "vocab.txt").open("a") as file:
        file.write("more 1\n")
    with pytest.raises(AlchemyError, match=r"vocab\.txt was changed after it was saved; save the tokenizer again"):
        load_tokenizer(tmp_path / "one")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "not a tokenizer manifest: KeyError"),
        ("[", "not a tokenizer manifest"),
        ('{"format": 9}', "not a tokenizer manifest"),
        ('{"format": 1, "type": "alchemy.text.Words", "options": {}, "files": ["a"]}', "not a tokenizer manifest"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "alchemy.json").write_text(text)
    with pytest.raises(AlchemyError, match=rf"alchemy.json {message}"):
        load_tokenizer(tmp_path)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "alchemy.json").write_text('{"format": 9, "type": "", "options": {}, "files": {}}')
    with pytest.raises(AlchemyError, match="unknown format 9, expected 1"):
        load_tokenizer(tmp_path)


def test_an_error_of_a_saved_tokenizer_names_its_folder(tmp_path: Path) -> None:
    make("words").save(tmp_path / "one")
    manifest = json.loads((tmp_path / "one" / "alchemy.json").read_text())
    for change, message in (
        ({"type": "alchemy.text.Wrds"}, "has no"),
        ({"options": {"lowr": True}}, "has no option 'lowr'"),
    ):
        (tmp_path / "one" / "alchemy.json").write_text(json.dumps(manifest | change))
        with pytest.raises(AlchemyError, match=rf"one/alchemy\.json .*{message}"):
            load_tokenizer(tmp_path / "one")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match="there is no folder"):
        load_tokenizer(tmp_path / "none")


def test_nothing_else_is_lost_where_a_tokenizer_is_saved(tmp_path: Path) -> None:
    make("words").save(tmp_path / "one")
    (tmp_path / "one" / "corpus.bin").write_bytes(b"x")
    (tmp_path / "file").write_text("x")
    for target, other in ((tmp_path / "one", "corpus.bin"), (tmp_path, "file, one"), (tmp_path / "file", "a file")):
        with pytest.raises(AlchemyError, match=f"refusing to replace .* with a tokenizer: it contains {other}"):
            make("words").save(target)
    assert (tmp_path / "one" / "corpus.bin").read_bytes() == b"x"


# -- optional packages

HIDDEN = """
import sys
sys.modules["{package}"] = None
from alchemy.errors import AlchemyError
from alchemy.text import *
import alchemy.text
try:
    {code}
except AlchemyError as error:
    print(error)
print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("tokenizers", 'alchemy.text.BPE.train(["a"])'),
        ("sentencepiece", 'alchemy.text.SentencePiece(model=b"x")'),
        ("tokenizers", 'alchemy.text.Words.train(["a"]).encode("a")'),
    ],
)
def test_a_missing_package_is_named_when_it_is_used(package: str, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN.format(package=package, code=code)], capture_output=True, text=True, check=True
    )
    *said, torch = done.stdout.splitlines()
    needed = [] if "Words" in code else [f"needs the package {package}; pip install 'alchemy[text]'"]
    assert [line.partition(" ")[2] for line in said] == needed
    assert torch == "False"


LOCATING = ("words", "lower", "characters", "residues", "bpe", "tokenizer.json", "vocab.txt", "vocab.json")


@pytest.mark.parametrize("kind", LOCATING)
@given(text=st.text() | st.sampled_from(ANY))
def test_every_token_knows_its_characters(kind: str, text: str) -> None:
    tokenizer = make(kind)
    ids, spans = tokenizer.offsets(text)
    assert ids == tokenizer.encode(text) and len(spans) == len(ids)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@pytest.mark.parametrize("kind", LOCATING)
@given(data=st.data())
def test_the_characters_of_a_token_are_its_text(kind: str, data: st.DataObject) -> None:
    text = data.draw(KINDS[kind][1].filter(str.isascii))
    tokenizer = make(kind)
    for token, (start, end) in zip(*tokenizer.offsets(text), strict=True):
        shown = text[start:end].strip(" ")  # byte tokenizers omit spaces, which are tokens of the character tokenizer
        assert tokenizer.decode([token]).strip(" ") in (shown, shown.lower())


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - set(LOCATING)))
def test_a_kind_that_cannot_tell_says_so(kind: str) -> None:
    with pytest.raises(AlchemyError, match="does not support character offsets; use Words, "):
        make(kind).offsets("the cat")
