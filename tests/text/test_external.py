"""sentencepiece models and Hugging Face folders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package
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
    with pytest.raises(AlchemyError, match=r"x\.model not a sentencepiece model"):
        SentencePiece(model=tmp_path / "x.model")
    for wrong in ({"size": 5}, {"size": 60, "kind": "words"}):
        with pytest.raises(AlchemyError, match="cannot train sentencepiece"):
            SentencePiece.train(LINES, **wrong)
    with pytest.raises(
        AlchemyError, match=r"SentencePiece requires text that can be encoded as UTF-8, got 'a .ud800'; lone"
    ):
        SentencePiece.train([*LINES, "a \ud800"], size=60)


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
    with pytest.raises(AlchemyError, match=r"added_tokens\.json the added token '<one>' cannot be assigned id 7"):
        Folder(path=tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "'; expected tokenizer.json, vocab.txt"),
        ({"vocab.json": "{}"}, "no supported tokenizer in "),
        ({"vocab.txt": "a", "tokenizer_config.json": "{"}, "tokenizer_config.json not valid JSON"),
        (
            {"vocab.txt": "a", "tokenizer_config.json": '{"tokenizer_class": "EsmTokenizer"}'},
            "EsmTokenizer requires a tokenizer.json",
        ),
        (
            {"spiece.model": "a", "tokenizer_config.json": '{"tokenizer_class": "XLNetTokenizer"}'},
            "not a sentencepiece model",
        ),
        ({"spiece.model": "a", "config.json": '{"model_type": "camembert"}'}, "camembert requires a tokenizer.json"),
        ({"spiece.model": "a", "config.json": "{}"}, "cannot determine the model type of the sentencepiece model in "),
        ({"spiece.model": "a"}, "set model_type to one of albert, xlnet, t5, mt5, llama, gemma; or create a"),
        (
            {"vocab.txt": "a", "config.json": '{"tokenizer_class": "BertJapaneseTokenizer"}'},
            "BertJapaneseTokenizer requires",
        ),
        ({"vocab.txt": "<unk>\na"}, "vocab.txt missing [UNK], which a BERT vocabulary must contain"),
        ({"vocab.txt": "\udcff"}, "vocab.txt not valid UTF-8"),
        (
            {"vocab.json": '{"a</w>": 0}', "merges.txt": ""},
            "contains character merges; only byte-level merges, as in GPT-2",
        ),
        (
            {"vocab.json": "{}", "merges.txt": "", "config.json": '{"model_type": "clip"}'},
            "clip requires a tokenizer.json",
        ),
        ({"vocab.json": "[1]", "merges.txt": ""}, "vocab.json not valid JSON"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "x y\n"}, "': Error while initializing BPE: Token `x`"),
        ({"vocab.json": '{"a": "0"}', "merges.txt": ""}, "cannot read the tokenizer in "),
        ({"vocab.txt": "[UNK]", "tokenizer_config.json": '{"added_tokens_decoder": [1]}'}, "its files are damaged or"),
        ({"tokenizer.json": "{}"}, "cannot read its tokenizer.json"),
    ],
)
def test_a_folder_that_is_not_understood_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, errors="surrogateescape")
    with pytest.raises(AlchemyError, match=re.escape(message)):
        load_tokenizer(tmp_path)


def old(folder: Path, **config: Any) -> Path:
    """A sentencepiece model like those of ALBERT and XLNet, with their config of 2019."""
    controls = "[CLS],[SEP],[MASK]" if "num_hidden_groups" in config else "<cls>,<sep>,<mask>"
    trainer = import_package("sentencepiece", "test").SentencePieceTrainer
    trainer.train(
        sentence_iterator=iter([line.lower() for line in LINES] * 3),
        model_prefix=str(folder / "spiece"),
        vocab_size=60,
        hard_vocab_limit=False,
        control_symbols=controls,
        minloglevel=2,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
    )
    (folder / "spiece.vocab").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_old_folders_of_sentencepiece_are_known_by_their_config(tmp_path: Path) -> None:
    albert: Any = Folder(path=old(tmp_path, num_hidden_groups=1))
    spelt = albert.backend.processor.id_to_piece
    assert [spelt(i) for i in (albert.pad, albert.unk, albert.bos, albert.eos)] == ["<pad>", "<unk>", "[CLS]", "[SEP]"]
    assert albert.id_of("[MASK]") in albert.hidden and albert.id_of("[CLS]") not in albert.encode("[CLS]")
    assert albert.encode("The CÁT  sat") == albert.encode("the cat sat") and albert.unk not in albert.encode("The CÁT")
    albert.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "config.json").exists()
    again = load_tokenizer(tmp_path / "saved")
    assert again.digest == albert.digest and again.encode("THE CAT") == albert.encode("the cat")
    assert Folder(path=tmp_path, lower=False).encode("THE") != albert.encode("the")
    assert Folder(path=tmp_path, model_type="xlnet").encode("THE") != albert.encode("the")


def test_special_and_added_tokens_of_a_sentencepiece_folder(tmp_path: Path) -> None:
    old(tmp_path, untie_r=True)
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<cls>", "eos_token": {"content": "<sep>"}}')
    xlnet = Folder(path=tmp_path)
    assert (xlnet.bos, xlnet.eos) == (xlnet.id_of("<cls>"), xlnet.id_of("<sep>")) != (None, None)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<cls>": xlnet.bos}))
    assert Folder(path=tmp_path).bos == xlnet.bos
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<new>": xlnet.size}))
    with pytest.raises(AlchemyError, match="the added token '<new>' is not in the sentencepiece model; create a"):
        Folder(path=tmp_path)
    with pytest.raises(AlchemyError, match=r"parse_specials is not supported for the sentencepiece model in "):
        Folder(path=tmp_path, parse_specials=True)


def test_lower_is_chosen_where_the_files_say_otherwise_or_nothing(tmp_path: Path) -> None:
    wordpiece(tmp_path)
    for name in ("tokenizer_config.json", None):
        assert Folder(path=tmp_path, lower=True).encode("THE Cat") == Folder(path=tmp_path, lower=False).encode(
            "the cat"
        )
        assert Folder(path=tmp_path, lower=False).encode("THE") == [Folder(path=tmp_path).unk]
        if name:
            (tmp_path / name).unlink()
    small = Folder(path=tmp_path, lower=True)
    small.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode("THE") == small.encode("the")
    cased: Any = Folder(path=tmp_path, lower=False)
    (tmp_path / "tokenizer.json").write_text(cased.backend.inner.to_str())
    assert Folder(path=tmp_path, lower=True).encode("THE") == small.encode("the")


@pytest.mark.parametrize("kind", ["tokenizer.json", "vocab.json", "spiece.model"])
def test_lower_is_refused_where_it_cannot_be_chosen(tmp_path: Path, kind: str) -> None:
    tokenizer = make(kind)
    tokenizer.save(tmp_path / "saved")
    with pytest.raises(AlchemyError, match=r"lower = True requires BERT, ALBERT or XLNet, but .* is a different"):
        Folder(path=tmp_path / "saved", **{**tokenizer.options(), "lower": True})


def test_a_mask_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    plain, parsing = wordpiece(tmp_path), Folder(path=tmp_path, parse_specials=True)
    mask = plain.id_of("[MASK]")
    assert parsing.encode("the [MASK] sat")[1] == mask and mask not in plain.encode("the [MASK] sat")


@pytest.mark.parametrize("config", ['{"model_type": "albert"}', '{"model_type": "roberta"}', "{}", None])
def test_a_vocab_alone_is_cut_as_bert_does(tmp_path: Path, config: str | None) -> None:
    expected = wordpiece(tmp_path).encode("the cats 你好")
    (tmp_path / "tokenizer_config.json").unlink()
    if config:
        (tmp_path / "config.json").write_text(config)
    assert Folder(path=tmp_path).encode("The CATS 你好") == expected


def as_albert(folder: Path) -> None:
    old(folder, num_hidden_groups=1, model_type="albert")


def as_xlnet(folder: Path) -> None:
    old(folder, untie_r=True, model_type="xlnet")


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
    bpe: Any = BPE.train(LINES, size=300, specials=specials)
    bpe.backend.inner.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer", "add_prefix_space": true}')


def as_fast(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(make("bpe").content)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


@pytest.mark.slow  # importing transformers takes seconds
@pytest.mark.parametrize("write", [as_bert, as_bert_in_lower_case, as_gpt, as_roberta, as_fast, as_albert, as_xlnet])
def test_ids_are_those_of_transformers(tmp_path: Path, write: Any) -> None:
    from transformers import AutoTokenizer

    write(tmp_path)
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), Folder(path=tmp_path)
    for line in [*LINES, "", "The Cats,  naïve Ünder\t世界 'll 12345"]:
        assert ours.encode(line) == theirs.encode(line, add_special_tokens=False), line


@pytest.mark.slow
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("write", [as_bert, as_gpt, as_roberta, as_albert, as_xlnet])
def test_special_tokens_stand_where_transformers_puts_them(tmp_path: Path, write: Any, fast: bool) -> None:
    from transformers import AutoTokenizer

    from alchemy.pipeline.special_tokens import Template

    write(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    if fast:
        theirs.save_pretrained(tmp_path / "fast")
    ours = Folder(path=tmp_path / "fast" if fast else tmp_path)
    one, two = "the cat", "a dog and a cat"
    for texts in ((one,), (one, two)):
        pair = len(texts) == 2
        template = Template(ours, ours.template(pair), pair=pair)
        row = template({key: ours.encode(text) for key, text in zip(("$A", "$B"), texts)})
        want = theirs(*texts, return_token_type_ids=True)
        assert row.ids.tolist() == want["input_ids"]
        if write is not as_gpt:  # it has no segments; ours distinguish the texts
            assert row.segments.tolist() == want["token_type_ids"]
