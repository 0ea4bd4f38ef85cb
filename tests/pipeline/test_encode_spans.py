"""Character spans become token spans, for any normalization by the tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.collate import Pad
from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.encode import Encode, EncodeStream
from alchemy.pipeline.lst import SequenceWrapper
from tests.text.kinds import PURE, make

KINDS = ["words", "characters", "bpe", "vocab.txt"]  # tokenizers that know the characters of a token
TEXT = "the cat sat on the mat"


def located(text, marked, kind="words", pipe=Encode, **options):
    samples = SequenceWrapper([{"text": text, "other": "a dog", "spans": marked}])
    options = {"tokenizer": make(kind), "template": "bos $A eos", "spans": {"spans": "places"}, **options}
    (sample,) = pipe(samples, **options)
    return sample


@pytest.mark.parametrize("kind", KINDS)
@given(words=st.lists(st.sampled_from(PURE), min_size=1, max_size=6), data=st.data())
def test_a_span_of_words_is_that_of_their_tokens(kind, words, data):
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    start, text = len(" ".join([*words[:first], ""])), " ".join(words[first : last + 1])
    sample = located(" ".join(words), [[start, start + len(text), "X"]], kind, template="bos eos $A eos")
    ((begin, end, label),) = sample["places"]
    assert make(kind).decode(sample["input_ids"][begin:end]).strip() == text
    assert label == "X"


@pytest.mark.parametrize("pipe", [Encode, EncodeStream])
def test_spans_are_found_behind_special_tokens_and_beside_a_pair(pipe):
    sample = located(TEXT, [[4, 7, "A"], [8, 14]], pipe=pipe, pair="other", template="bos $B eos $A:1")
    assert sample["places"] == [[5, 6, "A"], [6, 8]]
    assert sample["spans"] == [[4, 7, "A"], [8, 14]]
    assert located("", [], pipe=pipe)["places"] == []


def test_a_span_in_the_middle_of_a_token_is_that_token():
    assert located(TEXT, [[5, 9, 0]])["places"] == [[2, 4, 0]]


def test_spans_become_a_batch(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "the cat sat", "spans": [[4, 7, "PER"]]}\n')
    tables = [
        {"type": "alchemy.pipeline.processors.Spans", "path": str(tmp_path / "train.jsonl")},
        {"type": "alchemy.pipeline.encode.Encode", "tokenizer": make("words"), "spans": {"spans": "places"}},
    ]
    pipe = build_datapipes(tables)
    assert pipe.gives["places"] == "list"
    collate = Pad(fields={"places": {"type": "alchemy.data.columns.Spans", "labels": ["LOC", "PER"]}})
    assert collate([pipe[0]])["places"].tolist() == [[[1, 2, 1]]]


@pytest.mark.parametrize(
    ("spans", "options", "message"),
    [
        ([[3, 4, "X"]], {}, r"sample 0: the span \[3, 4, 'X'\] covers no tokens; does it cover only whitespace"),
        ([[19, 22]], {"max_length": 7, "long": "only_first"}, r"the span \[19, 22\] was truncated"),
        (
            [[0, 23]],
            {},
            r"the span \[0, 23\] is invalid for a text of 22 characters; write it as \[start, end, label\]",
        ),
        ([[4, 4]], {}, "is invalid for a text of 22 characters"),
        ([[True, 4]], {}, "is invalid for a text of 22 characters"),
        ([{"start": 0}], {}, "is invalid for a text of 22 characters"),
        (None, {}, "expected a list of spans, got None"),
        ([], {"spans": {"spans": "spans"}}, "the key spans of spans and spans.spans both name the field 'spans'"),
        ([], {"tokenizer": make("sentencepiece")}, "SentencePiece does not support character offsets"),
    ],
)
def test_spans_that_cannot_be_found_are_told(spans, options, message):
    with pytest.raises(AlchemyError, match=message):
        located(TEXT, spans, **options)
