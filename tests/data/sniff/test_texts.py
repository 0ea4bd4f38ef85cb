"""Tables of text and labels in many formats: the detected format, and that the processor reads the same rows."""

import csv
import gzip
import io
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.data.sniff.finding import Hints
from alchemy.data.sniff.texts import sniff_pairs, sniff_texts
from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import TextClassification

ROWS = [
    ("the match was lost in the last minute", "sport"),
    ("shares fell, again and again", "money"),
    ('the "new" coach of the team', "sport"),
    ("the bank pays 3 % more", "money"),
    ("a goal; and then another one", "sport"),
    ("rates rise | slowly", "money"),
]
CHINESE = [("锌价难续去年辉煌", "财经"), ("放球员一条生路吧", "体育"), ("今年股市能否回暖？", "财经")] * 2


def table(rows, names=None, delimiter=",", quote=True):
    text = io.StringIO()
    if quote:
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(([names] if names else []) + rows)
        return text.getvalue()
    return "".join(delimiter.join(map(str, row)) + "\n" for row in ([names] if names else []) + rows)


def jsonl(rows, names):
    return "".join(json.dumps(dict(zip(names, row)), ensure_ascii=False) + "\n" for row in rows)


def turned(rows):
    return [row[::-1] for row in rows]


NUMBERED = [(number, *row) for number, row in enumerate(ROWS)]
# file name, content, detected options besides the path
FILES = {
    "csv": ("a.csv", table(ROWS, ("text", "label")), {"text": "text", "label": "label"}),
    "csv, label first": ("a.csv", table(turned(ROWS), ("label", "text")), {"text": "text", "label": "label"}),
    "csv, own names": ("a.csv", table(ROWS, ("Headline", "Category")), {"text": "Headline", "label": "Category"}),
    "csv, unknown names": ("a.csv", table(ROWS, ("was", "wozu")), {"text": "was", "label": "wozu"}),
    "csv, ids": ("a.csv", table(NUMBERED, ("id", "body", "topic")), {"text": "body", "label": "topic"}),
    "csv, no header": ("a.csv", table(ROWS), {"text": 0, "label": 1}),
    "csv, no header, label first": ("a.csv", table(turned(ROWS)), {"text": 1, "label": 0}),
    "csv, ids, no header": ("a.csv", table(NUMBERED), {"text": 1, "label": 2}),
    "csv, semicolons": (
        "a.csv",
        table(ROWS, ("text", "label"), ";"),
        {"text": "text", "label": "label", "delimiter": ";"},
    ),
    "csv, tabs": ("a.csv", table(ROWS, ("text", "label"), "\t"), {"text": "text", "label": "label", "delimiter": "\t"}),
    "csv, names twice": (
        "a.csv",
        table([(*row, row[1]) for row in ROWS], ("text", "y", "y")),
        {"text": "text", "label": 1},
    ),
    "tsv": ("a.tsv", table(ROWS, ("text", "label"), "\t", False), {"text": "text", "label": "label"}),
    "tsv, no header": ("a.tsv", table(turned(ROWS), None, "\t", False), {"text": 1, "label": 0}),
    "tsv, quoted": (
        "a.tsv",
        table([("a\ttab", "x"), ("two\nlines", "y"), *ROWS], ("text", "label"), "\t"),
        {"text": "text", "label": "label", "quote": '"'},
    ),
    "txt, text and label": ("a.txt", table(ROWS, None, "\t", False), {"text": 0, "label": 1, "format": "tsv"}),
    "txt, label and text": ("a.txt", table(turned(ROWS), None, "\t", False), {"text": 1, "label": 0, "format": "tsv"}),
    "txt, a blank between": (
        "TREC.all",
        table(turned(ROWS) * 2, None, " ", False),
        {"text": "text", "label": "label", "format": "label text"},
    ),
    "txt, pipes": (
        "pipes.txt",
        table([row for row in ROWS if "|" not in row[0]], ("text", "label"), "|"),
        {"text": "text", "label": "label", "format": "csv", "delimiter": "|"},
    ),
    "jsonl": ("a.jsonl", jsonl(ROWS, ("text", "label")), {"text": "text", "label": "label"}),
    "jsonl, own names": ("a.jsonl", jsonl(NUMBERED, ("idx", "sentence", "y")), {"text": "sentence", "label": "y"}),
    "jsonl, another ending": (
        "a.txt",
        jsonl(ROWS, ("text", "label")),
        {"text": "text", "label": "label", "format": "jsonl"},
    ),
    "json": ("a.json", json.dumps([{"review": a, "label": b} for a, b in ROWS]), {"text": "review", "label": "label"}),
    "chinese": ("a.csv", table(CHINESE, ("标题", "类别")), {"text": "标题", "label": "类别"}),
    "chinese, no header": ("a.txt", table(CHINESE, None, "\t", False), {"text": 0, "label": 1, "format": "tsv"}),
}


def look(path, **asked):
    return sniff_texts({"train": [path]}, Hints(**asked))


def rows_of(finding, split="train"):
    """Return the rows as the processor of the config reads them."""
    own = dict(finding.splits[split])
    options = finding.shared | {key: value for key, value in own.items() if key != "path"}
    return [(row["text"], row["label"]) for row in TextClassification(own["path"], **options)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
@pytest.mark.parametrize(("name", "text", "keys"), FILES.values(), ids=FILES)
def test_what_is_found_reads_the_rows(name, text, keys, encoding, tmp_path):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    finding = look(path)
    same = encoding.startswith("utf-8") or (text.isascii() and encoding == "gb18030")
    assert finding.shared == keys | ({} if same else {"encoding": encoding})
    rows = CHINESE if not text.isascii() else ROWS[:5] if "pipes" in name else ROWS
    assert rows_of(finding)[-len(rows) :] == rows
    assert finding.sizes["train"] == len(rows_of(finding))


def test_compressed_files_and_parquet_are_read(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(table(CHINESE, ("text", "label")).encode("gbk")))
    assert rows_of(look(tmp_path / "a.csv.gz")) == CHINESE
    data = [{"title": text, "label": label} for text, label in ROWS]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(data), tmp_path / "a.parquet")
    assert rows_of(look(tmp_path / "a.parquet")) == ROWS


TEXT = st.text(st.sampled_from("abc xyz,;\t\"'|0123 .中文标题财经体育，。é\\#{}[]"), min_size=1, max_size=30)
WORDS = st.builds(lambda start, rest: start + " ".join(rest.split()), st.sampled_from(["go", "去"]), TEXT)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(WORDS, st.sampled_from(["good", "bad", "好"])), min_size=12, max_size=40),
    st.sampled_from(["csv", "tsv", "jsonl"]),
    st.sampled_from(["utf-8", "gb18030", "utf-16"]),
    st.booleans(),
)
def test_any_rows_come_back_as_they_were_written(tmp_path, rows, ending, encoding, header):
    rows = [(f"{place} {text}", label) for place, (text, label) in enumerate([("a", "good"), ("b", "bad")] * 2 + rows)]
    names = ("text", "label") if header else None
    if ending == "jsonl":
        text = jsonl(rows, ("text", "label"))
    else:
        text = table(rows, names, "," if ending == "csv" else "\t", quote=ending == "csv")
    path = tmp_path / f"a.{ending}"
    path.write_bytes(text.encode(encoding))
    assert rows_of(look(path)) == rows


def test_the_user_goes_before_any_guess(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        table(
            [(text, text.upper(), label, "x" * (len(text) % 2)) for text, label in ROWS],
            ("title", "body", "topic", "label"),
        )
    )
    assert look(path, text="body", label="topic").shared == {"text": "body", "label": "topic"}
    with pytest.raises(AlchemyError, match=r"has no column 'topik' \(--label\); did you mean 'topic'"):
        look(path, label="topik")


def test_kinds_of_labels(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl([(text, [label, "all"]) for text, label in ROWS], ("text", "labels")))
    assert look(path).task["kind"] == look(path).shared["kind"] == "multi"
    path.write_text(jsonl([(f"text {number}", number / 7) for number in range(20)], ("text", "score")))
    with pytest.raises(
        AlchemyError,
        match=r"'score' has 20 values in 20 rows: it may be an id or a regression target.* '--label score'",
    ):
        look(path)
    assert look(path, label="score").task["kind"] == "regression"
    path.write_text(jsonl([(text, label == "sport") for text, label in ROWS], ("text", "label")))
    with pytest.raises(AlchemyError, match="no label column"):
        look(path)


def test_scripts_and_lengths_choose_the_tokenizer(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table(ROWS, ("text", "label")))
    assert look(path).task == {"type": "Classification", "tokenizer": "Words", "learn": {"lower": True}}
    path.write_text(table(CHINESE, ("text", "label")))
    assert look(path).task == {"type": "Classification", "tokenizer": "Characters"}
    path.write_text(table([*ROWS, ("word " * 600, "sport")], ("text", "label")))
    assert look(path).task["max_length"] == 512


def test_rows_that_cannot_be_used_are_counted_and_skipped(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table([*ROWS * 5, ("", "sport"), ("text without a label", "")], ("text", "label")) + "a,b,c\n")
    finding = look(path)
    assert finding.shared["bad"] == "skip"
    assert rows_of(finding) == ROWS * 5
    told = "\n".join(finding.notes)
    for note in (
        "1 bad rows are skipped, the first at line 34",
        "1 rows without text",
        "1 rows without a label",
        "24 rows repeat",
    ):
        assert note in told


def test_splits_may_be_written_differently(tmp_path):
    train, dev, test = tmp_path / "train.csv", tmp_path / "dev.tsv", tmp_path / "test.jsonl"
    train.write_text(table(CHINESE, ("text", "label")), "gbk")
    dev.write_text(table([*CHINESE, ("新电影上映", "娱乐")], ("text", "label"), "\t"))
    test.write_text(jsonl([(text,) for text, _ in CHINESE], ("text",)))
    finding = sniff_texts({"train": [train], "dev": [dev], "test": [test]}, Hints())
    assert finding.splits["dev"] == {"path": dev.as_posix(), "encoding": "utf-8"}
    assert rows_of(finding, "dev")[:6] == CHINESE
    assert finding.task["labels"] == ["体育", "财经", "娱乐"]
    told = "\n".join(finding.notes)
    for note in (
        "dev has labels that are missing from the training data: 娱乐",
        "test.jsonl has no labels",
        "3 of 7 texts in dev are also in",
    ):
        assert note in told
    assert "test" not in finding.splits


def test_numbers_get_the_names_of_a_file_beside_them(tmp_path):
    (tmp_path / "class.txt").write_text("money\nsport\n")
    (tmp_path / "train.txt").write_text(
        table([(text, int(label == "sport")) for text, label in ROWS], None, "\t", False)
    )
    finding = look(tmp_path / "train.txt")
    assert rows_of(finding) == ROWS


def test_pairs(tmp_path):
    path = tmp_path / "a.tsv"
    rows = [(f"{number}", "is it raining?", f"take {text}", label) for number, (text, label) in enumerate(ROWS)]
    for names, keys in (
        (("id", "question1", "question2", "is_duplicate"), ("question1", "question2", "is_duplicate")),
        (("id", "first", "other", "verdict"), ("first", "other", "verdict")),
    ):
        path.write_text(table([(a, f"{b} {a}", c, d) for a, b, c, d in rows], names, "\t", False))
        finding = sniff_pairs({"train": [path]}, Hints())
        assert finding.shared == dict(zip(("text", "pair", "label"), keys))
        assert finding.task["pair"] is True


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "is empty; use a file"),
        ("a.csv", "text,label\n", "has no rows"),
        (
            "a.csv",
            "text\nonly one column\nand another\n",
            "has no label column; text is its only column; add a label column",
        ),
        ("a.csv", table([(text, "x") for text, _ in ROWS], ("text", "label")), "'label' has only one label, 'x'"),
        (
            "a.csv",
            table([(1, 2)] * 9, ("x", "y")),
            "does not have a text column; available columns: x, y; set it with --text",
        ),
        (
            "a.csv",
            table([(f"a text {n}", f"L{n}") for n in range(20)], ("text", "label")),
            "20 values in 20 rows: it looks like an id",
        ),
        (
            "a.txt",
            "just some prose\nin which every line\nbegins with another word\n",
            "is not a table: its first line is 'just",
        ),
        ("a.json", '{"a": 1}', "is a JSON dict, expected a list of objects"),
        ("a.json", '[{"a": 1}', "is not JSON: .*; use the jsonl format for one JSON value per line"),
        ("a.jsonl", "[1]\n[2]\n", "has no rows"),
    ],
)
def test_files_that_are_no_data_are_clear_errors(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(AlchemyError, match=message):
        look(tmp_path / name)
