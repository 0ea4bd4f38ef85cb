"""Models of sentencepiece, and folders of Hugging Face."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.text import BPE, Folder, SentencePiece, load_tokenizer
from tests.text.kinds import LINES, make, vocab_and_merges, wordpiece


def test_sentencepiece_learns_the_same_again() -> None:
    first, second = (SentencePiece.train(LINES, size=60, multiple=64) for _ in range(2))
    assert first.digest == second.digest and first.size == 64
    assert (first.pad, first.bos, first.eos, first.unk) == (0, 1, 2, 3)


def test_bytes_stand_for_what_sentencepiece_does_not_know() -> None:
    pieces = SentencePiece.train(LINES, size=400, kind="bpe", byte_fallback=True)
    assert pieces.decode(pieces.encode("\U0001f600 cat")) == "\U0001f600 cat"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.model").write_bytes(b"nothing")
    with pytest.raises(AlchemyError, match=r"x\.model it is no model of sentencepiece"):
        SentencePiece(model=tmp_path / "x.model")
    with pytest.raises(AlchemyError, match="sentencepiece could not be trained"):
        SentencePiece.train(LINES, size=5)


def test_wordpiece_cuts_as_bert_does() -> None:
    tokenizer = make("vocab.txt")
    symbols = {place: symbol for symbol, place in tokenizer.backend.inner.get_vocab().items()}
    assert [symbols[i] for i in tokenizer.encode("cats, 你好 zebra")] == ["cat", "##s", ",", "你", "好", "[UNK]"]
    assert (tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos) == (0, 1, 2, 3)
    assert tokenizer.decode(tokenizer.encode("cats zebra")) == "cats [UNK]"


def test_special_tokens_spelt_in_text_are_read_only_when_asked_for(tmp_path: Path) -> None:
    plain = wordpiece(tmp_path)
    parsing = Folder(path=tmp_path, parse_specials=True, multiple=8)
    assert plain.eos not in plain.encode("cat [SEP]") and parsing.encode("cat [SEP]")[-1] == plain.eos
    parsing.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode("[SEP]") == [parsing.eos]
    assert plain.digest != parsing.digest


def test_added_tokens_have_the_ids_that_the_folder_says(tmp_path: Path) -> None:
    size = vocab_and_merges(tmp_path).size
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<two>": size + 1, "<one>": size}))
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": {"content": "<eos>"}}')
    tokenizer = Folder(path=tmp_path)
    assert tokenizer.size == size + 2 and tokenizer.encode("<two>") == [size + 1]
    assert tokenizer.pad == 2
    (tmp_path / "added_tokens.json").write_text('{"<one>": 7}')
    with pytest.raises(AlchemyError, match=r"added_tokens\.json the added token '<one>' does not get its id 7"):
        Folder(path=tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no tokenizer that is known; it needs tokenizer.json"),
        ({"vocab.json": "{}"}, "holds no tokenizer that is known"),
        ({"vocab.txt": "a", "tokenizer_config.json": "{"}, "tokenizer_config.json it is no JSON"),
        ({"vocab.txt": "a", "tokenizer_config.json": '{"tokenizer_class": "EsmTokenizer"}'}, "is of a EsmTokenizer"),
        ({"spiece.model": "a", "tokenizer_config.json": '{"tokenizer_class": "XLNetTokenizer"}'}, "save_pretrained"),
        ({"tokenizer.json": "{}"}, "cannot read its tokenizer.json"),
    ],
)
def test_a_folder_that_is_not_understood_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(AlchemyError, match=re.escape(message)):
        load_tokenizer(tmp_path)


def as_bert(folder: Path) -> None:
    wordpiece(folder)


def as_bert_in_lower_case(folder: Path) -> None:
    wordpiece(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')


def as_gpt(folder: Path) -> None:
    vocab_and_merges(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')


def as_roberta(folder: Path) -> None:
    specials = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
    BPE.train(LINES, size=300, specials=specials).backend.inner.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer", "add_prefix_space": true}')


def as_fast(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(make("bpe").content)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


@pytest.mark.slow  # importing transformers takes seconds
@pytest.mark.parametrize("write", [as_bert, as_bert_in_lower_case, as_gpt, as_roberta, as_fast])
def test_ids_are_those_of_transformers(tmp_path: Path, write: Any) -> None:
    from transformers import AutoTokenizer

    write(tmp_path)
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), Folder(path=tmp_path)
    for line in [*LINES, "", "The Cats,  naïve Ünder\t世界 'll 12345"]:
        assert ours.encode(line) == theirs.encode(line, add_special_tokens=False), line
