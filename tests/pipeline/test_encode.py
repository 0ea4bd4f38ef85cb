"""Encoding text as ids, with special tokens, up to the maximum length of a model."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.loader import get_dataloader
from alchemy.data.peek import peek, render
from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.encode import Encode, EncodeStream, EncodeWords, EncodeWordsStream
from alchemy.pipeline.itr import Shuffle
from alchemy.pipeline.lst import SequenceWrapper
from alchemy.pipeline.special_tokens import split_excess
from alchemy.text import Tokenizer, Words, load_tokenizer
from tests.text.kinds import LINES, every_kind, make, wordpiece

WORDS = Words.train(LINES)  # <pad> 0, <bos> 1, <eos> 2, <unk> 3
SAMPLES = [{"text": "the cat", "other": "a dog ran", "label": 1}, {"text": "", "other": "the dog", "label": 0}]


def encode(samples=SAMPLES, kind=Encode, **options):
    return list(kind(SequenceWrapper(samples), **{"tokenizer": WORDS, **options}))


def words(ids):
    return [WORDS.vocab.symbols[place] for place in ids]


@pytest.mark.parametrize("kind", [Encode, EncodeStream])
def test_a_field_becomes_ids_and_the_rest_stays(kind):
    first, second = encode(kind=kind)
    assert words(first["input_ids"]) == ["the", "cat"]
    assert first["input_ids"].dtype == second["input_ids"].dtype == np.int64
    assert second["input_ids"].tolist() == []
    assert (first["text"], first["label"]) == ("the cat", 1)
    assert "input_ids" not in SAMPLES[0]


@pytest.mark.parametrize("kind", [Encode, EncodeStream])
def test_a_pair_has_special_tokens_and_segments(kind):
    template = "bos $A eos $B:1 <eos>:1"
    sample = encode(kind=kind, pair="other", template=template, to="ids", segments="token_type_ids")[0]
    assert words(sample["ids"]) == ["<bos>", "the", "cat", "<eos>", "a", "dog", "ran", "<eos>"]
    assert sample["token_type_ids"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_without_a_template_the_second_text_is_segment_1():
    sample = encode(pair="other", segments="segments")[0]
    assert sample["segments"].tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("template", ["[CLS] $A [SEP]", "bos $A eos"])
def test_a_folder_of_bert_knows_its_tokens_by_name_and_by_role(template):
    bert = make("vocab.txt")
    ids = encode(tokenizer=bert, template=template)[0]["input_ids"].tolist()
    assert ids == [bert.id_of("[CLS]"), *bert.encode("the cat"), bert.id_of("[SEP]")]


@pytest.mark.parametrize(
    ("kind", "unknown"),
    [("words", "<unk>"), ("subword-nmt", "<unk>"), ("sentencepiece", "<unk>"), ("vocab.txt", "[UNK]")],
)
def test_tokens_are_found_by_how_they_are_spelt(kind, unknown):
    tokenizer = make(kind)
    assert tokenizer.id_of(unknown) == tokenizer.unk is not None
    with pytest.raises(
        AlchemyError, match=r"contains '<mask>', but \w+ has no such token; use a token of the vocabulary"
    ):
        encode(tokenizer=tokenizer, template="$A <mask>")


@every_kind
def test_what_is_no_token_has_no_id(kind):
    assert make(kind).id_of("no such token") is None


@pytest.mark.parametrize(
    ("long", "expected"),
    [
        ("longest_first", ["<bos>", "the", "<eos>", "a"]),
        ("only_second", ["<bos>", "the", "cat", "<eos>"]),
    ],
)
def test_what_is_too_long_is_cut_and_keeps_its_special_tokens(long, expected):
    options = {"pair": "other", "template": "bos $A eos $B", "long": long, "segments": "segments"}
    sample = encode(SAMPLES[:1], max_length=4, **options)[0]
    assert words(sample["input_ids"]) == expected
    assert len(sample["segments"]) == 4


@given(first=st.integers(0, 9), second=st.integers(0, 9), data=st.data())
def test_the_longer_text_loses_until_both_are_equal(first, second, data):
    excess = data.draw(st.integers(0, first + second))
    lost = split_excess(first, second, excess)
    left = first - lost[0], second - lost[1]
    assert sum(lost) == excess
    assert min(*lost, *left) >= 0
    assert min(lost) == 0 or abs(left[0] - left[1]) <= 1


@pytest.mark.slow  # importing transformers takes seconds
@pytest.mark.parametrize("long", ["longest_first", "only_first", "only_second"])
def test_a_pair_of_bert_is_that_of_transformers(long, tmp_path):
    wordpiece(tmp_path)
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    options = {"tokenizer": str(tmp_path), "pair": "other", "segments": "segments", "long": long}
    for first, second, most in itertools.product((0, 1, 4, 5), (1, 4, 5), (5, 8, 9, 12)):
        sample = {"text": "the " * first, "other": "cat " * second}
        if {"only_first": second, "only_second": first}.get(long, 0) + 3 >= most:
            continue  # there they leave no text empty
        (own,) = encode([sample], **options, template="[CLS] $A [SEP] $B:1 [SEP]:1", max_length=most)
        them = theirs(sample["text"], sample["other"], max_length=most, truncation=long)
        assert own["input_ids"].tolist() == them["input_ids"]
        assert own["segments"].tolist() == them["token_type_ids"]


@pytest.mark.parametrize("kind", [Encode, EncodeStream])
@given(
    texts=st.lists(
        st.lists(st.sampled_from(["the", "cat", "zebra"]), max_size=12).map(" ".join), min_size=1, max_size=3
    ),
    most=st.integers(3, 9),
)
def test_no_row_is_longer_than_asked_for(kind, texts, most):
    samples = [{"text": text} for text in texts]
    rows = encode(samples, kind, template="bos $A eos", max_length=most, long="only_first")
    for text, row in zip(texts, rows, strict=True):
        assert row["input_ids"].tolist() == [1, *WORDS.encode(text)[: most - 2], 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "bos eos"}, r"invalid texts in the template: none; use '\$A'"),
        ({"template": "$A $B"}, r"invalid texts in the template: \$A, \$B"),
        ({"pair": "other", "template": "$A"}, r"invalid texts in the template: \$A; use"),
        ({"template": f"$A:{10**20}"}, r"contains '\$A:1000"),
        ({"template": "$A:٣"}, r"contains '\$A:٣', but Words has no such token"),
        ({"template": "[CLS] $A"}, r"contains '\[CLS\]', but Words has no such token.*one of pad, bos, eos, unk"),
        ({"max_length": 2, "template": "bos $A eos"}, "max_length = 2 leaves no room for text"),
        ({"long": "only_first"}, "long = 'only_first' needs a positive max_length, not 0"),
        ({"max_length": 3, "long": "only_second"}, "long = 'only_second' needs a second text"),
        ({"max_length": 3, "long": "both"}, "long must be one of 'refuse', .*, not the string 'both'"),
        (
            {"max_length": 1},
            "a text has 2 tokens, more than max_length = 1; set long to 'longest_first' or 'only_first', or increase",
        ),
        ({"max_length": 1, "pair": "other", "long": "only_first"}, r"4 tokens too long, but \$A has only 2"),
        ({"field": "txet"}, "a sample has no field 'txet'"),
        ({"field": "label"}, "the field 'label' must be a string, got 1"),
        ({"tokenizer": "no/such/folder"}, "there is no folder 'no/such/folder'"),
        ({"tokenizer": {"type": "alchemy.text.Word"}}, "has no Tokenizer named 'Word'"),
        ({"tokenizer": {"vocab": "x"}}, "a Tokenizer needs a 'type'"),
    ],
)
def test_what_cannot_be_encoded_is_said(options, message):
    with pytest.raises(AlchemyError, match=message):
        encode(**options)


@pytest.mark.parametrize(("kind", "streaming"), [(Encode, EncodeStream), (EncodeWords, EncodeWordsStream)])
def test_a_stream_needs_the_pipe_for_streams(kind, streaming):
    name, other = kind.__name__, streaming.__name__
    with pytest.raises(
        AlchemyError, match=rf"{name} needs indexable data, got the stream .*Shuffle; .*encode\.{other}"
    ):
        kind(Shuffle(SequenceWrapper(SAMPLES)), tokenizer=WORDS)
    assert len(streaming(Shuffle(SequenceWrapper(SAMPLES)), tokenizer=WORDS)) == 2


NO_NUMBERS = (["O"] * 3, [0.0, 1.0, 2.0], [1, [2], 3], [2**64, 1, 2], np.array([2**63, 1, 2], np.uint64))
RELATION = {"tokens": ["the", "unheard", "cat"], "tag_ids": [0, 2, 1], "e1_tokens": [1, 2], "label": 3}


@pytest.mark.parametrize("kind", [EncodeWords, EncodeWordsStream])
def test_what_is_said_of_words_is_said_of_their_tokens(kind):
    characters = make("characters")
    options = {"words": "word", "align": {"tag_ids": "labels"}, "marks": {"e1_tokens": "e1_mask"}}
    (sample,) = encode([RELATION], kind, tokenizer=characters, template="bos $A eos", **options)
    assert characters.decode(sample["input_ids"]) == "theunheardcat"
    assert sample["word"].tolist() == [-1, 0, 0, 0, *[1] * 7, 2, 2, 2, -1]
    assert sample["labels"].tolist() == [-100, 0, -100, -100, 2, *[-100] * 6, 1, -100, -100, -100]
    assert sample["e1_mask"].tolist() == [0, 0, 0, 0, *[1] * 7, 0, 0, 0, 0]
    assert (sample["label"], sample["tokens"]) == (3, RELATION["tokens"])


@pytest.mark.parametrize("kind", [EncodeWords, EncodeWordsStream])
def test_words_have_the_segments_of_their_template(kind):
    pipe = kind(
        SequenceWrapper([RELATION]), tokenizer=WORDS, template="$A eos bos:2", segments="segments", words="word"
    )
    (sample,) = pipe
    assert sample["segments"].tolist() == [0, 0, 0, 0, 2] and sample["word"].tolist() == [0, 1, 2, -1, -1]
    assert pipe.padding()["segments"] == 0


def test_words_of_a_byte_level_tokenizer_may_have_their_blanks():
    bpe = make("bpe")
    for blank, text in ((True, "the unheard cat"), (False, "theunheardcat")):
        (sample,) = encode([RELATION], EncodeWords, tokenizer=bpe, blank=blank)
        assert bpe.decode(sample["input_ids"]) == text


def test_a_word_that_is_dropped_keeps_its_place():
    (sample,) = encode([{"tokens": ["the", "\u200b", "cat"]}], EncodeWords, tokenizer=make("vocab.txt"), words="word")
    assert sample["word"].tolist() == [0, 1, 2]
    assert sample["input_ids"][1] == make("vocab.txt").unk


@given(sizes=st.lists(st.integers(1, 4), max_size=6), most=st.integers(0, 12))
def test_the_first_token_of_each_word_has_its_tag(sizes, most):
    samples = [{"tokens": ["a" * size for size in sizes], "tags": list(range(len(sizes)))}]
    limit = {"max_length": most + 3, "long": "only_first"}
    options = {"tokenizer": make("characters"), "template": "bos $A eos", "align": {"tags": "labels"}, "ignore": -1}
    (sample,) = encode(samples, EncodeWords, **options, **limit)
    full = [tag for number, size in enumerate(sizes) for tag in [number, *[-1] * (size - 1)]]
    assert sample["labels"].tolist() == [-1, *full[: most + 1], -1]


@pytest.mark.parametrize(
    ("sample", "options", "message"),
    [
        (
            {"tag_ids": [1]},
            {"align": {"tag_ids": "x"}},
            r"'tag_ids' has the shape \(1,\), but there are 3 words",
        ),
        *(({"tag_ids": tags}, {"align": {"tag_ids": "x"}}, "has values that are not integers") for tags in NO_NUMBERS),
        ({"e1_tokens": [2, 3]}, {"marks": {"e1_tokens": "x"}}, r"e1_tokens = \[2, 3\] was truncated"),
        ({"e1_tokens": [0, 3]}, {"marks": {"e1_tokens": "x"}}, r"e1_tokens = \[0, 3\] was truncated"),
        ({"e1_tokens": [-1, 2]}, {"marks": {"e1_tokens": "x"}}, r"e1_tokens is \[-1, 2\], but there are 3 words"),
        ({"e1_tokens": [1, 1]}, {"marks": {"e1_tokens": "x"}}, r"write it as \[start, end\] in words"),
        ({"e1_tokens": None}, {"marks": {"e1_tokens": "x"}}, "e1_tokens is None, but there are 3 words"),
        ({"tokens": "the bank"}, {}, "the field 'tokens' must be a list of words, got 'the bank'"),
        ({"tokens": ["a", None]}, {}, "must be a list of words"),
        ({}, {"marks": {"e2_tokens": "x"}}, "a sample has no field 'e2_tokens'"),
        ({}, {"long": "refuse"}, "a text has 3 tokens, more than max_length = 2"),
    ],
)
def test_what_does_not_fit_the_words_is_said(sample, options, message):
    with pytest.raises(AlchemyError, match=message):
        encode([{**RELATION, **sample}], EncodeWords, **{"max_length": 2, "long": "only_first", **options})


def test_small_numbers_do_not_wrap_what_is_ignored():
    tags = np.array([0, 1, 255], np.uint8)
    sample = encode([{**RELATION, "tag": tags}], EncodeWords, align={"tag": "y"}, template="bos $A eos")[0]
    assert (sample["y"][0], sample["y"].dtype) == (-100, np.int64)
    assert 255 in sample["y"]


def test_words_are_not_taken_for_a_text():
    with pytest.raises(AlchemyError, match=r"must be a string, got .*; use EncodeWords for lists of words"):
        encode([RELATION], field="tokens")


@pytest.fixture
def chain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WORDS.save("words")
    (tmp_path / "train.csv").write_text("label,text\nsport,the cat sat\nmoney,a dog\n")
    return [
        {"type": "alchemy.pipeline.processors.TextClassification", "path": "train.csv", "labels": ["sport", "money"]},
        {"type": "alchemy.pipeline.lst.Take", "n": 2},
        {"type": "alchemy.pipeline.encode.Encode", "tokenizer": "words", "template": "bos $A eos"},
    ]


def test_the_fields_of_a_chain_are_followed(chain):
    text = render(peek(build_datapipes(chain)))
    assert "takes text: str" in text
    assert "gives text: str, label: str, label_id: int, input_ids: int64" in text
    assert f"tokenizer = Words({WORDS.size} ids)" in text
    chain[2]["field"] = "txt"
    with pytest.raises(AlchemyError, match="expects the field 'txt', but receives text: str, label: str"):
        build_datapipes(chain)
    build_datapipes([{"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": SAMPLES}, {**chain[2], "field": "x"}])


@pytest.mark.parametrize("table", ["words", {"type": "alchemy.text.Words", "vocab": "words/vocab.txt"}])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_config_names_a_folder_or_a_table(chain, table, workers):
    chain[2]["tokenizer"] = table
    pad = {"type": "alchemy.data.collate.Pad", "fields": {"input_ids": {"mask": "attention_mask"}}}
    (batch,) = get_dataloader(build_datapipes(chain), batch_size=2, collate_fn=pad, num_workers=workers)
    assert words(batch["input_ids"][1]) == ["<bos>", "a", "dog", "<eos>", "<pad>"]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1] * 4 + [0]]


def test_a_pipe_travels_to_a_worker():
    for kind in ("words", "bpe", "sentencepiece", "vocab.txt"):
        pipe = Encode(SequenceWrapper(SAMPLES), tokenizer=make(kind))
        assert pickle.loads(pickle.dumps(pipe))[0]["input_ids"].tolist() == pipe[0]["input_ids"].tolist()


def test_a_record_keeps_the_tokenizer_of_each_field(run, capture_log):
    for _ in range(2):
        encode(to="ids")
    encode(to="pieces", tokenizer=make("bpe"))
    assert load_tokenizer(run.record_dir / "tokenizer" / "ids").digest == WORDS.digest
    assert load_tokenizer(run.record_dir / "tokenizer" / "pieces").digest == make("bpe").digest
    assert capture_log.text == ""
    with pytest.raises(AlchemyError, match=r"BPE\(.* ids\) encodes 'ids' with different ids than Words\("):
        encode(to="ids", tokenizer=make("bpe"))


class Unsaved(Tokenizer):
    """A tokenizer that does not report its content."""

    size = 1

    def encode(self, text):
        return [0] * len(text)


def test_a_tokenizer_that_cannot_be_saved_is_told(run, capture_log):
    assert encode(tokenizer=Unsaved())[0]["input_ids"].tolist() == [0] * 7
    assert (
        "cannot save tests.pipeline.test_encode.Unsaved in the record: it does not define options()" in capture_log.text
    )
    assert not (run.record_dir / "tokenizer" / "input_ids").exists()
