"""Long texts are split into overlapping windows, and each token counts in only one of them."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.loader import get_dataloader
from alchemy.data.pipe_chain import acting_as
from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.encode import Encode, EncodeStream, EncodeWords, EncodeWordsStream
from alchemy.pipeline.itr import SplitByWorker
from alchemy.pipeline.lst import Map, SequenceWrapper, Take
from alchemy.pipeline.windows import Windows, WindowsStream, spans
from tests.text.kinds import make

CHARACTERS = make("characters")
BOS, EOS = CHARACTERS.bos, CHARACTERS.eos
TEMPLATE = "bos $A eos"


def windows(samples, *, stream=False, max_length=6, overlap=2, **options):
    one, other = (EncodeWords, EncodeWordsStream) if "tokens" in samples[0] else (Encode, EncodeStream)
    options = {"tokenizer": CHARACTERS, "template": TEMPLATE, **options}
    before = (other if stream else one)(SequenceWrapper(samples), **options)
    return (WindowsStream if stream else Windows)(before, max_length=max_length, overlap=overlap)


lengths = st.integers(0, 40)
rooms = st.integers(1, 12).flatmap(lambda room: st.tuples(st.just(room), st.integers(0, room - 1)))


@given(length=lengths, cut=rooms)
def test_a_token_is_owned_by_the_window_where_it_is_farthest_from_a_cut(length, cut):
    room, overlap = cut
    made = spans(length, room, overlap)

    def context(span, place):
        left = place - span.start if span.start else np.inf
        right = span.end - 1 - place if span.end < length else np.inf
        return min(left, right) if span.start <= place < span.end else -1

    owners = [k for k, span in enumerate(made) for _ in range(span.first, span.last)]
    assert owners == [int(np.argmax([context(span, place) for span in made])) for place in range(length)]
    assert all(span.start <= span.first <= span.last <= span.end <= span.start + room for span in made)
    assert all(one.end - other.start >= overlap for one, other in itertools.pairwise(made))
    assert length <= room or all(span.end - span.start == room for span in made)


@given(sizes=st.lists(lengths, min_size=1, max_size=4), cut=rooms, stream=st.booleans())
def test_windows_joined_are_the_text(sizes, cut, stream):
    samples = [{"text": ("abcdefgh" * 5)[:size], "label": size} for size in sizes]
    rows = list(windows(samples, stream=stream, max_length=cut[0] + 2, overlap=cut[1], segments="segments"))
    for number, sample in enumerate(samples):
        own = [row for row in rows if row["window_of"] == number]
        ids = np.concatenate([row["input_ids"][row["owned"] == 1] for row in own])
        assert ids.tolist() == CHARACTERS.encode(sample["text"])
        assert {row["label"] for row in own} == {sample["label"]}
        for row in own:
            start, text = row["window_start"], row["input_ids"][1:-1]
            assert text.tolist() == CHARACTERS.encode(sample["text"])[start : start + len(text)]
            assert (row["input_ids"][0], row["input_ids"][-1]) == (BOS, EOS)
            assert len(row["input_ids"]) == len(row["owned"]) == len(row["segments"]) <= cut[0] + 2


@given(sizes=st.lists(st.integers(1, 5), max_size=8), cut=rooms, stream=st.booleans())
def test_each_tag_counts_once(sizes, cut, stream):
    sample = {"tokens": ["a" * size for size in sizes], "tags": list(range(len(sizes)))}
    options = {"align": {"tags": "labels"}, "words": "word", "ignore": -7}
    rows = windows([sample], stream=stream, max_length=cut[0] + 2, overlap=cut[1], **options)
    counted = [(int(tag), int(word)) for row in rows for tag, word in zip(row["labels"], row["word"]) if tag != -7]
    assert counted == [(tag, tag) for tag in sample["tags"]]


@pytest.mark.parametrize("stream", [False, True])
def test_marks_go_with_their_tokens(stream):
    sample = {"tokens": ["the", "band", "was"], "e1": [1, 2]}
    rows = list(windows([sample], stream=stream, max_length=7, marks={"e1": "mask"}))
    assert [CHARACTERS.decode(row["input_ids"][row["mask"] == 1]) for row in rows] == ["ba", "band", "nd"]
    assert [row["mask"].tolist() for row in rows[::2]] == [[0, 0, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 0, 0]]


def test_a_list_of_windows_has_an_index():
    pipe = windows([{"text": "abcdefgh"}, {"text": ""}, {"text": "abc"}])
    assert len(pipe) == 5
    assert [row["window_of"] for row in pipe] == [0, 0, 0, 1, 2]
    assert [pipe[index]["window_of"] for index in (-1, -2, -3)] == [2, 1, 0]
    assert [pipe.where(index) for index in (0, 2, -1)] == ["sample 0", "sample 0", "sample 2"]
    assert pipe[3]["input_ids"].tolist() == [BOS, EOS]
    assert pipe[3]["owned"].tolist() == [0, 0]
    with pytest.raises(IndexError, match="out of range"):
        pipe[5]
    assert pickle.loads(pickle.dumps(pipe))[1]["owned"].tolist() == pipe[1]["owned"].tolist()


def test_windows_of_workers_have_numbers_of_their_own():
    split = SplitByWorker(SequenceWrapper([{"text": "abcdefgh"}] * 3))
    pipe = WindowsStream(EncodeStream(split, tokenizer=CHARACTERS, template=TEMPLATE), max_length=8, overlap=1)
    numbers = []
    for worker in range(2):
        with acting_as(worker, 2):
            numbers += [row["window_of"] for row in pipe]
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2]


def test_windows_of_a_config_are_counted_and_followed(tmp_path):
    (tmp_path / "tags.bio").write_text("a O\nb B-X\nc O\n\nd O\n")
    tables = [
        {"type": "alchemy.pipeline.processors.Tagging", "path": str(tmp_path / "tags.bio"), "tags": ["O", "B-X"]},
        {"type": "alchemy.pipeline.encode.EncodeWords", "tokenizer": CHARACTERS, "align": {"tag_ids": "labels"}},
        {"type": "alchemy.pipeline.windows.Windows", "max_length": 2, "overlap": 1},
    ]
    pipe = build_datapipes(tables)
    assert [row["labels"].tolist() for row in pipe] == [[0, 1], [-100, 0], [0]]
    assert [pipe.where(index) for index in range(3)] == [str(tmp_path / f"tags.bio:{line}") for line in (1, 1, 5)]
    assert list(pipe.gives)[-4:] == ["labels", "window_of", "window_start", "owned"]


def test_windows_are_batched_with_their_padding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encode = Encode(Take(SequenceWrapper([{"text": "abcdefgh"}, {"text": "abc"}]), n=2), tokenizer=CHARACTERS)
    pipe = Windows(Cache(encode), max_length=6, overlap=3)
    assert pipe.padding() == {"input_ids": CHARACTERS.pad, "owned": 0}
    (batch,) = get_dataloader(pipe, batch_size=3, collate_fn="alchemy.data.collate.Pad")
    assert batch["owned"].tolist() == [[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    assert (batch["window_of"].tolist(), batch["window_start"].tolist()) == ([0, 0, 1], [0, 2, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_length": 4},
            "max_length = 4 has room for 2 tokens of text: with overlap = 2, a window adds no new tokens",
        ),
        ({"max_length": 1}, "max_length = 1 has room for 0 tokens of text"),
        ({"max_length": "6"}, "max_length must be an integer, not the string '6'"),
        ({"overlap": -1}, "overlap must be at least 0, not -1"),
        ({"pair": "text", "template": ""}, "Windows supports a single text .*Encode has pair"),
        ({"spans": {"marked": "spans"}}, "Windows supports a single text .*Encode has spans"),
        ({"to": "owned"}, "to and owned both name the field 'owned'"),
    ],
)
def test_what_leaves_no_windows_is_said(options, message):
    with pytest.raises(AlchemyError, match=message):
        windows([{"text": "abcdefgh"}], **options)


def test_windows_stand_behind_what_encodes():
    samples = SequenceWrapper([{"text": "abcdefgh"}])
    encode = Encode(samples, tokenizer=CHARACTERS)
    for before in (samples, Map(encode, fn=dict)):
        with pytest.raises(AlchemyError, match=r"Windows needs alchemy\.pipeline\.encode\.Encode or EncodeWords"):
            Windows(before, max_length=6, overlap=2)
    with pytest.raises(AlchemyError, match=r"Encode has max_length = 9, so long texts never reach the windows"):
        Windows(Encode(samples, tokenizer=CHARACTERS, max_length=9), max_length=6, overlap=2)
    with pytest.raises(AlchemyError, match=r"Windows needs indexable data.*windows\.WindowsStream"):
        Windows(EncodeStream(samples, tokenizer=CHARACTERS), max_length=6, overlap=2)
