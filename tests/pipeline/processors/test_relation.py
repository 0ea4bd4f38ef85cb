"""Relation extraction: markers in a text become positions."""

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.processors import Relation
from alchemy.text import Characters

MARKED = {
    "blanks inside": ("A <e1> b c </e1>, (<e2> d </e2>)!", "A b c, (d)!", "b c", "d", [1, 3], [3, 4]),
    "none inside": ("A <e1>b</e1> <e2>d</e2>", "A b d", "b", "d", [1, 2], [2, 3]),
    "stuck together": ("of<e2> b </e2>of <e1> c </e1>", "of b of c", "c", "b", [3, 4], [1, 2]),
    "part of a word": ("pre<e1>b</e1>post <e2>d</e2>", "prebpost d", "b", "d", [0, 1], [1, 2]),
    "nested": ("<e1> a <e2> b </e2> c </e1>", "a b c", "a b c", "b", [0, 3], [1, 2]),
}


@pytest.mark.parametrize(("marked", "text", "one", "two", "first", "second"), MARKED.values(), ids=MARKED)
def test_marks_become_positions(write, marked, text, one, two, first, second):
    sample = Relation(write("a.tsv", f"r\t{marked}\n"))[0]
    assert sample["text"] == text and sample["tokens"] == text.split()
    assert [text[slice(*sample[name])] for name in ("e1", "e2")] == [one, two]
    assert [sample["e1_tokens"], sample["e2_tokens"]] == [first, second]


def test_indicators_stand_around_what_was_marked(write):
    sample = Relation(write("a.tsv", "r\t<e1>a b</e1> of(<e2> c </e2>)\n"), indicators=["$", "#"], labels=["r"])[0]
    assert sample["tokens"] == ["$", "a", "b", "$", "of(", "#", "c", "#", ")"]
    assert sample["text"][slice(*sample["e1"])] == "a b" and sample["e1_tokens"] == [1, 3]
    assert sample["text"][slice(*sample["e2"])] == "c" and sample["label_id"] == 0


def test_characters_are_the_tokens_of_chinese(write):
    path = write("a.tsv", "r\t<e1>王明</e1>在<e2> 北京 </e2>工作 ok\n")
    sample = Relation(path, tokens="characters")[0]
    assert sample["text"] == "王明在北京工作 ok" and sample["tokens"] == list("王明在北京工作ok")
    assert sample["e1"] == sample["e1_tokens"] == [0, 2] and sample["e2_tokens"] == [3, 5]
    marked = Relation(path, tokens="characters", indicators=["[A]", "[B]"])[0]
    assert marked["tokens"] == ["[A]", "王", "明", "[A]", "在", "[B]", "北", "京", "[B]", "工", "作", "o", "k"]
    assert marked["e1_tokens"] == [1, 3] and marked["text"][slice(*marked["e2"])] == "北京"
    with pytest.raises(AlchemyError, match="tokens must be one of 'words', 'characters', not the string 'signs'"):
        Relation(path, tokens="signs")  # type: ignore[arg-type]


def test_marks_of_chinese_reach_the_tokens_of_a_model(write):
    chain = [
        {
            "type": "alchemy.pipeline.processors.Relation",
            "path": write("a.tsv", "r\t<e1>王明</e1>在<e2>北京</e2>\n"),
            "tokens": "characters",
        },
        {
            "type": "alchemy.pipeline.encode.EncodeWords",
            "tokenizer": Characters.train(["王明在北京"]),
            "template": "bos $A eos",
            "marks": {"e1_tokens": "e1_mask", "e2_tokens": "e2_mask"},
        },
    ]
    sample = build_datapipes(chain)[0]
    assert sample["e1_mask"].tolist() == [0, 1, 1, 0, 0, 0, 0] and sample["e2_mask"].tolist() == [0, 0, 0, 0, 1, 1, 0]


def test_relations_by_name_with_other_marks_and_without_labels(write):
    path = write("a.jsonl", '{"text": "<head>a</head> <tail>b</tail>"}\n')
    sample = Relation(path, text="text", label=None, marks=["head", "tail"])[0]
    assert sample["head_tokens"] == [0, 1] and sample["tail"] == [2, 3] and "label" not in sample


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<e1> a </e1> <e1> b </e1> <e2> c </e2>", "duplicate marker <e1>, expected it once"),
        ("<e1> a <e2> b </e2>", "missing marker </e1>"),
        ("<e1> </e1> <e2> b </e2>", "no text between <e1> and </e1>"),
        ("a </e1> b <e1> <e2> b </e2>", "no text between <e1> and </e1>"),
    ],
)
def test_wrong_marks_are_named(write, text, message):
    with pytest.raises(AlchemyError, match=rf"a\.tsv:1 {message}"):
        Relation(write("a.tsv", f"r\t{text}\n"))


def test_an_indicator_for_each_mark(write):
    with pytest.raises(AlchemyError, match="marks must not be empty"):
        Relation(write("a.tsv", "r\tx\n"), marks=[])
    with pytest.raises(AlchemyError, match="1 indicators for 2 marks; set one indicator per mark"):
        Relation(write("a.tsv", "r\tx\n"), indicators=["$"])
