"""Tagging: schemes, their rules, and conversions between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.tables import BadRow
from alchemy.data.tag_schemes import LETTERS, Scheme
from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import Spans, Tagging

schemes = st.sampled_from(sorted(LETTERS))


def convert(tags, scheme, to):
    """Convert tags as Tagging does with `to`."""
    return to.tags(scheme.spans(tags), len(tags))


@st.composite
def marked(draw):
    """Non-overlapping spans, and the length of their sentence."""
    ends = draw(st.lists(st.integers(0, 3), max_size=12))
    spans, place = [], 0
    for gap in ends:
        start = place + gap // 2
        place = start + 1 + gap % 2 * draw(st.integers(0, 2))
        spans.append([start, place, draw(st.sampled_from(["PER", "LOC", "A-B"]))])
    return spans, place + draw(st.integers(0, 2))


@given(marked(), schemes)
def test_tags_give_back_their_spans(sentence, name):
    spans, length = sentence
    tags = Scheme(name).tags(spans, length)
    assert len(tags) == length
    assert Scheme(name).spans(tags) == spans
    assert Scheme(name).violations(tags) == []


@given(marked(), schemes, schemes)
def test_a_scheme_can_be_had_from_any_other(sentence, one, other):
    tags = Scheme(one).tags(*sentence)
    there = convert(tags, Scheme(one), Scheme(other))
    assert convert(there, Scheme(other), Scheme(one)) == tags
    assert set(there) <= set(Scheme(other).all_tags(["PER", "LOC", "A-B"]))


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y"]), max_size=8), st.booleans())
def test_any_tags_can_be_mended(tags, begins):
    scheme = Scheme("BIOES", begins=begins)
    mended = convert(tags, scheme, scheme)
    assert scheme.violations(mended) == []
    assert (mended == tags) == (scheme.violations(tags) == [])


RULES = {
    "I after O": ("BIO", "O I-X", [1], [], [[1, 2, "X"]]),
    "another type": ("BIO", "B-X I-Y", [1], [[0, 1, "X"]], [[0, 1, "X"], [1, 2, "Y"]]),
    "I first": ("BIO", "I-X O", [0], [], [[0, 1, "X"]]),
    "no end": ("BMES", "B-X M-X", [2], [[0, 2, "X"]], [[0, 2, "X"]]),
    "no beginning": ("BMES", "O E-X", [1], [], [[1, 2, "X"]]),
    "cut": ("BIOES", "B-X O", [1], [[0, 1, "X"]], [[0, 1, "X"]]),
    "single inside": (
        "BILOU",
        "B-X U-X L-X",
        [1, 2],
        [[0, 1, "X"], [1, 2, "X"]],
        [[0, 1, "X"], [1, 2, "X"], [2, 3, "X"]],
    ),
    "all is allowed": (
        "IOB1",
        "I-X B-X I-Y",
        [],
        [[0, 1, "X"], [1, 2, "X"], [2, 3, "Y"]],
        [[0, 1, "X"], [1, 2, "X"], [2, 3, "Y"]],
    ),
}


@pytest.mark.parametrize(("name", "tags", "places", "dropped", "begun"), RULES.values(), ids=RULES)
def test_rules(name, tags, places, dropped, begun):
    tags = tags.split()
    scheme = Scheme(name)
    assert scheme.violations(tags) == scheme.violations(tags) == places
    assert scheme.spans(tags) == dropped
    assert Scheme(name, begins=True).spans(tags) == begun


def test_spans_that_overlap_have_no_tags():
    with pytest.raises(BadRow, match=r"the spans \[0, 3, 'X'\] and \[2, 4, 'X'\] overlap"):
        Scheme("BIO").tags([[2, 4, "X"], [0, 3, "X"]], 5)


def test_columns_documents_and_blank_tokens(write):
    text = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n \nPeter NNP B-PER"
    path = write("a.conll", text)
    assert [sample["tags"] for sample in Tagging(path, tag=1)] == [["NNP", "VBZ"], ["NNP"]]
    assert Tagging(path, scheme="BIO")[1] == {"tokens": ["Peter"], "tags": ["B-PER"], "spans": [[0, 1, "PER"]]}
    assert Tagging(path, tagged=False)[0] == {"tokens": ["EU", "rejects"]}
    assert Tagging(write("b.txt", "a O\n\u3000 O\n"), delimiter=" ")[0]["tokens"] == ["a", "\u3000"]


@pytest.mark.parametrize(
    "text", ["-DOCSTART- O\nx O\n\ny O\n", "x O\n-DOCSTART- O\ny O\n", "-DOCSTART- O\n-DOCSTART- O\nx O\n\ny O\n"]
)
def test_the_mark_of_a_document_takes_no_sentence_with_it(write, text):
    assert [sample["tokens"] for sample in Tagging(write("a.conll", text))] == [["x"], ["y"]]


def test_tags_of_a_list_or_file_have_numbers(write):
    path = write("a.txt", "x\tN\ny\tV\n")
    assert Tagging(path, tags=["V", "N"])[0]["tag_ids"] == [1, 0]
    assert Tagging(path, tags=write("tags.txt", "N\nV\n"))[0]["tag_ids"] == [0, 1]


def test_conversion_numbers_the_new_tags(write):
    pipe = Tagging(write("a.txt", "x B-P\ny I-P\n"), scheme="BIO", to="BIOES", types=["P"])
    assert pipe.tags == ["O", "B-P", "I-P", "E-P", "S-P"]
    assert pipe[0]["tags"] == ["B-P", "E-P"] and pipe[0]["tag_ids"] == [1, 3]


def test_violations_are_errors_or_counted(write, capture_log):
    path = write("a.txt", "x O\n\ny O\nz I-P\n")
    with pytest.raises(AlchemyError, match=r"a\.txt:4 the tag I-P follows O, which BIO does not allow"):
        Tagging(path, scheme="BIO")
    assert len(Tagging(path, scheme="BIO", bad="skip")) == 1
    kept = Tagging(path, scheme="BIO", violations="drop")[1]
    assert kept["tags"] == ["O", "I-P"] and kept["spans"] == []
    assert "1 tags violate the scheme BIO, the first at " in capture_log.text and "a.txt:4" in capture_log.text
    assert Tagging(path, scheme="BIO", violations="begin", to="BIO")[1]["tags"] == ["O", "B-P"]


WRONG = {
    "a tag of another scheme": (
        "x O\ny M-P\n",
        {"scheme": "BIO"},
        r"a\.txt:2 the tag 'M-P' is not a BIO tag, expected O, B-TYPE",
    ),
    "no type": ("x B\n", {"scheme": "BIO"}, r"a\.txt:1 the tag 'B' is not a"),
    "another type": (
        "x B-PRE\n",
        {"scheme": "BIO", "types": ["PER"]},
        r"unknown type 'PRE', expected PER; did you mean 'PER'\?",
    ),
    "an unknown tag": ("x N\n\ny Q\n", {"tags": ["N"]}, r"a\.txt:3 unknown label 'Q', expected N"),
    "first": ("x I-P\n", {"scheme": "BIO"}, "the tag I-P is at the beginning"),
    "end": ("x O\ny B-P\n", {"scheme": "BMES"}, r"a\.txt:2 the sentence ends after B-P, which BMES does not allow"),
    "one column": ("x\n", {}, "token and tag are the same column; set the delimiter, or tagged = false"),
    "column": ("x O\n", {"tag": 3}, r"a\.txt:1 no column 3 for tag: the line has 2"),
    "scheme": ("x O\n", {"scheme": "BIOS"}, r"scheme must be one of .*, not the string 'BIOS'; did you mean 'BIOES'\?"),
    "types alone": ("x O\n", {"types": ["P"]}, "'to' and 'types' need the scheme of the file"),
    "types and tags": (
        "x O\n",
        {"scheme": "BIO", "types": ["P"], "tags": ["O"]},
        "'types' and 'tags' cannot be combined",
    ),
    "violations": (
        "x O\n",
        {"violations": "keep"},
        "violations must be one of 'error', 'drop', 'begin', not the string 'keep'",
    ),
}


@pytest.mark.parametrize(("text", "options", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(write, text, options, message):
    with pytest.raises(AlchemyError, match=message):
        Tagging(write("a.txt", text), **options)


def test_spans_become_tags_of_characters(write):
    line = '{"content": "去北京", "entities": [{"start": 1, "end": 3, "label": "LOC"}]}\n'
    pipe = Spans(write("a.jsonl", line), text="content", spans="entities", labels=["LOC"], scheme="BIO")
    assert pipe[0]["spans"] == [[1, 3, "LOC"]]
    assert pipe[0]["tokens"] == ["去", "北", "京"]
    assert pipe[0]["tags"] == ["O", "B-LOC", "I-LOC"] and pipe[0]["tag_ids"] == [0, 1, 2]


WRONG_SPANS = {
    "no list": ('"x"', "the spans are 'x', expected a list"),
    "two numbers": ("[[0, 1]]", r"the span \[0, 1\] is not \[start, end, label\]"),
    "no number": ('[["0", 1, "A"]]', r"the span \['0', 1, 'A'\] is not"),
    "empty": ('[[1, 1, "A"]]', "is outside the text, which has 3 characters"),
    "unknown": ('[[0, 1, "C"]]', "unknown label 'C', expected A, B"),
    "overlap": ('[[0, 2, "A"], [1, 3, "B"]]', "overlap, which tags cannot represent"),
}


@pytest.mark.parametrize(("spans", "message"), WRONG_SPANS.values(), ids=WRONG_SPANS)
def test_wrong_spans_are_named(write, spans, message):
    with pytest.raises(AlchemyError, match=rf"a\.jsonl:1 .*{message}"):
        Spans(write("a.jsonl", f'{{"text": "abc", "spans": {spans}}}\n'), labels=["A", "B"], scheme="BIO")


def test_cells_lose_blanks_and_lines_their_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"foo\tB-PER \r\r\n \tO\r\r\n\r\r\nbar\tO\r\n")
    samples = list(Tagging(str(path), scheme="BIO", delimiter="\t"))
    assert [(s["tokens"], s["tags"]) for s in samples] == [(["foo", " "], ["B-PER", "O"]), (["bar"], ["O"])]
    path.write_bytes(b"foo O\rbar O\r\rbaz O\r")
    with pytest.raises(
        AlchemyError, match=r"a\.txt:1 carriage return inside a line; a lone carriage return is not a line ending"
    ):
        Tagging(str(path), bad="skip")
