"""The fields that Encode adds, with their padding; errors name the sample."""

from typing import Any

import pytest

from alchemy.data.pipe_errors import locate_error
from alchemy.errors import AlchemyError
from alchemy.pipeline import LstDataPipeline, build_datapipes
from alchemy.pipeline.encode import Encode, EncodeStream, EncodeWords, EncodeWordsStream
from alchemy.pipeline.itr import Concat, Fields, Shuffle, SplitByWorker
from alchemy.pipeline.lst import Filter, HoldOut, Map, SequenceWrapper, Take
from alchemy.text import Words
from tests.text.kinds import LINES, Utf8, make

WORDS = Words.train(LINES)
SAMPLES = [{"text": "the cat", "other": "a dog"}, {"text": "the cat sat on", "other": "the mat"}]
TAGGED = [{"tokens": ["the", "cat"], "tags": [0, 1], "e1": [0, 1]}]


class Numbered(LstDataPipeline):
    """Samples that know their lines, like those of processors."""

    def __getitem__(self, index):
        return self.datapipe[index]

    def __len__(self):
        return len(self.datapipe)

    def where(self, index):
        return f"train.tsv:{index + 2}"


def is_even(number):
    return number % 2 == 0


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Encode, {"to": "text"}, "field and to both name the field 'text'; each new field needs a unique name"),
        (EncodeStream, {"to": "other", "pair": "other"}, "pair and to both name the field 'other'"),
        (Encode, {"segments": "input_ids"}, "to and segments both name the field 'input_ids'"),
        (Encode, {"to": ""}, "to is empty"),
        (EncodeWords, {"align": {"tags": "input_ids"}}, "to and align.tags both name the field 'input_ids'"),
        (EncodeWords, {"align": {"tags": "tags"}}, "the key tags of align and align.tags both name the field 'tags'"),
        (EncodeWords, {"align": {"tags": ""}}, "align.tags is empty"),
        (EncodeWords, {"words": "tokens"}, "field and words both name the field 'tokens'"),
        (EncodeWordsStream, {"words": "w", "marks": {"e1": "w"}}, "words and marks.e1 both name the field 'w'"),
        (EncodeWords, {"align": {"tags": "y"}, "marks": {"e1": "y"}}, "align.tags and marks.e1 both name"),
        (EncodeWords, {"align": {"tags": "y"}, "ignore": "O"}, "ignore must be an integer, got 'O'"),
        (
            EncodeWords,
            {"long": "longest_first"},
            "long must be one of 'refuse', 'only_first', not",
        ),
        *((Encode, {"max_length": most}, "max_length must be (an integer|at least 0)") for most in (3.5, "9", -1)),
        (EncodeWords, {"max_length": True}, "max_length must be an integer, not true"),
    ],
)
def test_names_and_numbers_that_cannot_be_are_refused(kind, options, message):
    with pytest.raises(AlchemyError, match=message):
        kind(SequenceWrapper(SAMPLES), tokenizer=WORDS, **options)


def test_a_field_that_samples_have_is_not_replaced(tmp_path):
    (tmp_path / "train.csv").write_text("label,text\nsport,the cat\n")
    source = {"type": "alchemy.pipeline.processors.TextClassification", "path": str(tmp_path / "train.csv")}
    encode = {"type": "alchemy.pipeline.encode.Encode", "tokenizer": WORDS, "to": "label"}
    with pytest.raises(AlchemyError, match="to = 'label' would replace the existing field 'label'"):
        build_datapipes([{**source, "labels": ["sport"]}, encode])
    with pytest.raises(AlchemyError, match=r"sample 0: .*Encode would replace the existing field 'other'"):
        Encode(SequenceWrapper(SAMPLES), tokenizer=WORDS, to="other")[0]


@pytest.mark.parametrize("index", [1, -1])
def test_an_error_names_file_and_line(index):
    first = Encode(Numbered(SAMPLES), tokenizer=WORDS, to="ids")
    pipe = Encode(first, tokenizer=WORDS, max_length=3)
    assert pipe[0]["input_ids"].tolist() == WORDS.encode("the cat")
    with pytest.raises(AlchemyError, match=r"^train\.tsv:3: a text has 4 tokens, more than max_length = 3; set long"):
        pipe[index]


def test_an_error_has_the_place_in_the_config_too():
    source = {"type": f"{__name__}.Numbered", "datapipe": SAMPLES}
    encode = {"type": "alchemy.pipeline.encode.Encode", "tokenizer": WORDS, "max_length": 3}
    pipe = build_datapipes([source, encode], section="task.datasets.train")
    with pytest.raises(AlchemyError, match="a text has 4 tokens") as caught:
        pipe[1]
    assert str(locate_error(caught.value)).startswith("[task.datasets.train.pipes.1] train.tsv:3: a text has 4 tokens")


def test_without_a_file_an_error_names_the_sample():
    with pytest.raises(AlchemyError, match="sample 1: a text has 4 tokens"):
        list(Encode(SequenceWrapper(SAMPLES), tokenizer=WORDS, max_length=3))
    with pytest.raises(AlchemyError, match="sample 1: a text has 4 tokens"):
        list(EncodeStream(SequenceWrapper(SAMPLES), tokenizer=WORDS, max_length=3))
    split: Any = SplitByWorker(SequenceWrapper([*SAMPLES, {"text": 3}]))
    split.ranks = (2, 3)
    with pytest.raises(AlchemyError, match=r"sample 2: .* the field 'text' must be a string, got 3"):
        list(EncodeStream(split, tokenizer=WORDS))


@pytest.mark.parametrize("kind", [EncodeWords, EncodeWordsStream])
def test_what_pads_a_field_is_known(kind):
    samples = Shuffle(SequenceWrapper(TAGGED)) if kind is EncodeWordsStream else SequenceWrapper(TAGGED)
    options = {"align": {"tags": "labels"}, "marks": {"e1": "mask"}, "words": "word", "ignore": -7}
    pipe = kind(samples, tokenizer=make("vocab.txt"), **options)
    pad = make("vocab.txt").pad
    assert pad is not None
    assert Shuffle(pipe).padding() == {"input_ids": pad, "labels": -7, "mask": 0, "word": -1}


def test_padding_of_a_chain_is_that_of_all_its_pipes():
    first = Encode(SequenceWrapper(SAMPLES), tokenizer=Utf8(first=9), to="bytes", segments="segments")
    pipe = Encode(first, tokenizer=WORDS)
    assert pipe.padding() == {"bytes": 0, "segments": 0, "input_ids": WORDS.pad}
    assert Concat(pipes=[pipe, SequenceWrapper([1])]).padding() == pipe.padding()
    assert SequenceWrapper([1]).padding() == {}


def test_a_word_of_which_nothing_is_left_needs_an_unknown_one():
    samples = SequenceWrapper([{"tokens": ["the", "", "cat"], "tags": [0, 1, 2]}])
    with pytest.raises(AlchemyError, match=r"sample 0: .*EncodeWords: word 1, '', has no tokens"):
        EncodeWords(samples, tokenizer=Utf8(), align={"tags": "labels"})[0]


def test_a_mark_is_not_cut_in_the_middle_of_a_word():
    options = {"tokenizer": make("characters"), "marks": {"e1": "mask"}, "long": "only_first"}
    samples = SequenceWrapper([{"tokens": ["the", "cat"], "e1": [1, 2]}])
    assert EncodeWords(samples, max_length=6, **options)[0]["mask"].tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(AlchemyError, match=r"sample 0: .*: e1 = \[1, 2\] was truncated"):
        EncodeWords(samples, max_length=5, **options)[0]


def test_pipes_over_lists_know_where_their_samples_are_from():
    even = Filter(Take(Map(Numbered(list(range(9))), fn=abs), n=7), fn=is_even)
    assert [even.where(index) for index in (0, 1, -1)] == ["train.tsv:2", "train.tsv:4", "train.tsv:8"]
    rest = HoldOut(Numbered(list(range(9))), share=0.5)
    assert [rest.where(index) for index in range(len(rest))] == [f"train.tsv:{number + 2}" for number in rest]


def test_a_renamed_field_keeps_its_padding():
    pipe = Encode(SequenceWrapper(SAMPLES), tokenizer=Utf8(first=9), segments="segments")
    assert Fields(pipe, rename={"input_ids": "source"}).padding() == {"source": 0, "segments": 0}
