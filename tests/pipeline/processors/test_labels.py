"""A record stores label names and reads them again."""

import json
from typing import Any

import pytest

from alchemy.config.tree import Document
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.pipeline import processors
from alchemy.pipeline.label_ids import LabelIds
from alchemy.records.labels import labels_file

# part: (file, text, options, content of the record)
KINDS = {
    "TextClassification": ("a.csv", "text,label\nx,好\n", {"labels": ["坏", "好"]}, {"label_id": ["坏", "好"]}),
    "Relation": ("a.tsv", "r\t<e1>a</e1> <e2>b</e2>\n", {"labels": ["q", "r"]}, {"label_id": ["q", "r"]}),
    "Tagging": ("a.txt", "x B-P\n", {"scheme": "BIO", "types": ["P"]}, {"tag_ids": ["O", "B-P", "I-P"]}),
    "Spans": (
        "a.jsonl",
        '{"text": "x", "spans": []}\n',
        {"labels": ["P"], "scheme": "BIO"},
        {"label_ids": ["P"], "tag_ids": ["O", "B-P", "I-P"]},
    ),
}
every_kind = pytest.mark.parametrize(
    ("part", "name", "text", "options", "kept"), [(part, *rest) for part, rest in KINDS.items()], ids=KINDS
)


@pytest.fixture
def record(tmp_path):
    with Run(Document({"tag": "t"})) as run:
        run.record_dir = tmp_path / "record"
        yield run.record_dir


def kept_in(record):
    return {file.stem: json.loads(file.read_text("utf-8")) for file in (record / "labels").glob("*")}


@every_kind
def test_a_record_keeps_the_names_of_labels(write, record, part, name, text, options, kept):
    getattr(processors, part)(write(name, text), **options)
    assert kept_in(record) == kept


def test_what_has_no_numbers_leaves_no_names(write, record):
    processors.TextClassification(write("a.csv", "text,label\nx,1\n"), kind="regression")
    processors.TextClassification(write("a.csv", "text,label\nx,a\n"))
    assert not record.exists()
    processors.TextClassification(write("a.csv", "text,label\nx,a\n"), kind="multi", labels=["a"])
    assert kept_in(record) == {"label_ids": ["a"]}


def test_the_kept_file_can_be_named_as_labels(write, record):
    path = write("a.csv", "text,label\nx,b\n")
    processors.TextClassification(path, labels=["a", "b"])
    again = processors.TextClassification(path, labels=str(labels_file(record, "label_id")))
    assert again.labels == ["a", "b"] and again[0]["label_id"] == 1


def test_other_numbers_for_the_same_labels_are_told(write, record, capture_log):
    path = write("a.csv", "text,label\nx,a\n")
    processors.TextClassification(path, labels=["a", "b"])
    assert "label_id" not in capture_log.text
    processors.TextClassification(path, labels=["b", "a"])
    assert "the labels of 'label_id' are b, a, but " in capture_log.text and "has a, b: " in capture_log.text
    assert kept_in(record) == {"label_id": ["a", "b"]}


def test_a_label_that_training_does_not_know_is_named_or_counted(write, capture_log):
    path = write("dev.csv", "text,label\nx,a\ny,new\n")
    with pytest.raises(AlchemyError, match=r"dev\.csv:3 unknown label 'new', expected a, b"):
        processors.TextClassification(path, labels=["a", "b"])
    assert len(processors.TextClassification(path, labels=["a", "b"], bad="skip")) == 1
    assert "dev.csv: skipped 1 bad rows, the first at line 3" in capture_log.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", r"l\.json invalid JSON"),
        ('{"a": 0}', r'l\.json expected a list of names; for example \["good", "bad"\]'),
        ("[1]", "expected a list of names"),
        ('["a", "a"]', "labels has a duplicate: 'a'"),
        ("[]", "labels is an empty list"),
    ],
)
def test_a_damaged_list_of_names_is_refused(write, text, message):
    with pytest.raises(AlchemyError, match=message):
        processors.TextClassification(write("a.csv", "text,label\nx,a\n"), labels=write("l.json", text))


@pytest.mark.parametrize("label", [3, None, {}, ["a", None], [["a"]]])
def test_what_is_no_label_is_told_with_its_file(write, label):
    source: Any = processors.TextClassification(write("a.csv", "text,label\nx,a\n"))
    source.samples[0]["label"] = label
    with pytest.raises(AlchemyError, match=r"a\.csv:2 .*LabelIds: sample 0 has the label .*, which is not a label of"):
        LabelIds(source, labels=["a"])[0]
    with pytest.raises(AlchemyError, match="duplicate label 'a' in labels"):
        LabelIds(source, labels=["a", "b", "a"])


@pytest.mark.parametrize("ids", [[3], [-1], ["a"], [0.5], [True], None])
def test_only_numbers_of_labels_become_ones(ids):
    with pytest.raises(AlchemyError, match=r"hot: .* expected a list of integers from 0 to 2"):
        processors.hot(ids, size=3)
    assert processors.hot((0, 2), size=3) == [1.0, 0.0, 1.0]
