"""Text classification: columns, kinds, lists of labels."""

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.processors import TextClassification

ONE = {"text": "x", "label": "a"}


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", "labels,text\na,x\n", {}),
        ("a.csv", "id,kind,body\n1,a,x\n", {"text": "body", "label": "kind"}),
        ("a.tsv", "x\ta\n", {"text": 0, "label": 1}),
        ("a.csv", "head,head\nx,a\n", {"text": 0, "label": 1, "header": True}),
        ("a.txt", "text;label\n'x';a\n", {"delimiter": ";", "quote": "'"}),
        ("a.txt", "a x\n", {"format": "label text"}),
        ("a.txt", "a\tx\n", {"format": "label text"}),
        ("a.tsv", "text\tlabel\n'x'\ta\n", {"quote": "'"}),
        ("a.csv", "text,label\nx,a\n", {"quote": ""}),
        ("a.ndjson", '{"label": "a", "text": "x"}\n', {}),
    ],
)
def test_columns_by_name_or_number(write, name, text, options):
    assert list(TextClassification(write(name, text), **options)) == [ONE]


def test_pairs_numbers_and_files_without_labels(write, capture_log):
    path = write("a.csv", "text,other,label\nx,y,0.5\n")
    assert TextClassification(path, pair="other", kind="regression")[0] == {"text": "x", "pair": "y", "label": 0.5}
    assert list(TextClassification(path, label="")) == [{"text": "x"}]
    assert list(TextClassification(write("b.csv", "text\nx\n"))) == [{"text": "x"}]
    assert "b.csv has no column 'label' or 'labels': its samples are unlabeled" in capture_log.text


def test_marks_of_quotation_are_text_in_tsv_unless_they_are_named(write):
    path = write("a.tsv", 'text\tlabel\n"x"\ta\n')
    assert TextClassification(path)[0]["text"] == '"x"'
    assert TextClassification(path, quote='"')[0]["text"] == "x"


@pytest.mark.parametrize("options", [{"labels": ["good", "bad"]}, {"kind": "regression"}])
def test_a_book_in_the_wrong_column_does_not_fill_the_screen(write, options):
    path = write("a.csv", f"text,label\nx,{'a book ' * 100_000}\n")
    with pytest.raises(AlchemyError, match=r"a\.csv:2 .* 'a book a .*\.\.\..* book.*', expected") as told:
        TextClassification(path, **options)
    assert len(str(told.value)) < 400


def test_files_of_different_kinds_are_not_mixed(write):
    files = [write("a.csv", "text,label\nx,a\n"), write("b.csv", "text\ny\n")]
    with pytest.raises(
        AlchemyError, match=r"b\.csv:2 fields differ from the first file: extra none, missing label; read files"
    ):
        TextClassification(files)
    with pytest.raises(AlchemyError, match=r"a\.csv:2 fields differ from the first file: extra label, missing none"):
        TextClassification(files[::-1])
    with pytest.raises(AlchemyError, match="TextClassification found no samples in an empty list of files"):
        TextClassification([])


def test_an_empty_line_of_a_file_of_one_column_is_an_empty_text(write):
    path = write("a.csv", "text\none\n\n\ntwo\n\n")
    with pytest.raises(AlchemyError, match=r"a.csv:3 the text is '', expected a non-empty string"):
        TextClassification(path)
    assert [row["text"] for row in TextClassification(path, bad="skip")] == ["one", "two"]
    assert len(TextClassification(write("b.csv", "text,label\none,x\n\ntwo,y\n"))) == 2


def test_names_of_labels_are_compared_without_blanks(write):
    assert TextClassification(write("a.csv", "text,label\nx, a \n"), labels=["a "])[0]["label"] == "a"


def test_several_labels_of_a_cell(write):
    path = write("a.tsv", "text\tlabels\nx\tb|a\ny\t\n")
    samples = list(TextClassification(path, kind="multi", separator="|", labels=["a", "b"]))
    assert samples[0] == {"text": "x", "labels": ["b", "a"], "label_ids": [1, 0]}
    assert samples[1] == {"text": "y", "labels": [], "label_ids": []}


def test_many_labels_become_zeros_and_ones(write):
    hot = {"fn": "alchemy.pipeline.processors.hot", "args": {"size": 3}, "field": "label_ids", "to": "target"}
    source = {"path": write("a.csv", 'text,label\nx,"c,a"\n'), "kind": "multi", "labels": ["a", "b", "c"]}
    pipe = build_datapipes(
        [
            {"type": "alchemy.pipeline.processors.TextClassification", **source},
            {"type": "alchemy.pipeline.lst.Map", **hot},
        ]
    )
    assert pipe[0]["target"] == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("ids", [{"labels": ["bad", "good"]}, {"labels": "names.txt"}])
def test_labels_of_a_list_or_a_file_by_name_or_index(write, ids, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write("names.txt", "bad\ngood\n\n")
    good = {"text": "x", "label": "good", "label_id": 1}
    assert TextClassification(write("a.csv", "text,label\nx,good\n"), **ids)[0] == good
    assert TextClassification(write("a.jsonl", '{"text": "x", "label": 1}\n'), label_by="index", **ids)[0] == good


WRONG_ROWS = {
    "a file of indices": (
        "text,label\nx,1\n",
        {"labels": ["a", "b"]},
        r'if the file has indices, set label_by = "index"',
    ),
    "an index too high": ("text,label\nx,2\n", {"labels": ["a", "b"], "label_by": "index"}, "not an index from 0 to 1"),
    "an empty label": ("text,label\nx,\n", {}, r"a\.csv:2 the label is empty"),
    "no number": ("text,label\nx,good\n", {"kind": "regression"}, "the label is 'good', expected a finite number"),
    "no finite number": ("text,label\nx,nan\n", {"kind": "regression"}, "the label is 'nan', expected a finite number"),
    "a comma too many": ("text,label\nx,y,a\n", {}, r"a\.csv:2 expected 2 cells as in the first row, got 3"),
    "a blank text": ("text,label\n ,a\n", {}, "the text is ' '"),
    "no such number": ("x,a\n", {"text": 0, "label": 2}, "has no column 2"),
}


@pytest.mark.parametrize(("text", "options", "message"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_a_wrong_row_is_named(write, text, options, message):
    with pytest.raises(AlchemyError, match=message):
        TextClassification(write("a.csv", text), **options)


WRONG_JSON = {
    "no object": ("[1]\n", r"a\.jsonl:1 is a list, expected an object"),
    "no text": ('{"text": "x", "label": "a"}\n{"label": "a"}\n', r"a\.jsonl:2 has no column 'text'"),
    "no label": ('{"text": "x", "label": "a"}\n{"text": "y"}\n', r"a\.jsonl:2 has no column 'label'"),
    "labels from the second row on": (
        '{"text": "x"}\n{"text": "y", "labels": "a"}\n',
        r"a\.jsonl:2 has a 'labels', but the first row has none: set label = 'labels' or label = ''",
    ),
    "a strange label": ('{"text": "x", "label": [1]}\n', r"a\.jsonl:1 the label is \[1\], expected a string"),
}


@pytest.mark.parametrize(("text", "message"), WRONG_JSON.values(), ids=WRONG_JSON)
def test_a_wrong_object_is_named(write, text, message):
    with pytest.raises(AlchemyError, match=message):
        TextClassification(write("a.jsonl", text))


def test_a_number_beyond_all_floats_is_no_target(write):
    with pytest.raises(AlchemyError, match=r"a\.jsonl:1 the label is 9+\.\.\.9+, expected a finite number"):
        TextClassification(write("a.jsonl", f'{{"text": "x", "label": {"9" * 400}}}\n'), kind="regression")


WRONG_SETTINGS = {
    "column": ({"text": "txet"}, r"a\.csv:1 there is no column 'txet'; did you mean 'text'\?"),
    "label": (
        {"label": "class"},
        "there is no column 'class'; it has text, label, twice, twice; .*set label = \"\" for a file without",
    ),
    "kind": ({"kind": "many"}, "kind must be one of 'single', 'multi', 'regression', not the string 'many'"),
    "format": ({"format": "jsnl"}, "format must be one of .*, not the string 'jsnl'; did you mean 'jsonl'"),
    "label_by": ({"label_by": "number"}, "label_by must be one of 'name', 'index', not the string 'number'"),
    "index": ({"label_by": "index"}, 'label_by = "index" needs the label names'),
    "twice": ({"labels": ["a", "b", "a"]}, "labels has a duplicate: 'a'"),
    "empty": ({"labels": ["a", " "]}, "labels has an empty name"),
    "none": ({"labels": []}, "labels is an empty list"),
    "a number": ({"labels": 3}, r'labels is 3, expected a list of names; set labels = \["good", "bad"\], or the path'),
    "no single column": ({"text": "twice"}, r"a\.csv:1 more than one column is named 'twice'; use the column number"),
    "signs": ({"delimiter": "||"}, r"delimiter must be one character, not the string '\|\|'"),
    "separator": ({"separator": ""}, "separator must not be empty"),
    "no header": ({"header": False}, "there is no column 'text'; use the column number, counting from 0"),
}


@pytest.mark.parametrize(("options", "message"), WRONG_SETTINGS.values(), ids=WRONG_SETTINGS)
def test_a_wrong_setting_is_named(write, options, message):
    with pytest.raises(AlchemyError, match=message):
        TextClassification(write("a.csv", "text,label,twice,twice\nx,a,b,c\n"), **options)


def test_objects_have_no_numbered_columns(write):
    with pytest.raises(
        AlchemyError, match=r"a\.jsonl:1 the rows are objects and have no column number 0; use one of the names text"
    ):
        TextClassification(write("a.jsonl", '{"text": "x"}\n'), text=0)


def test_an_ending_that_says_nothing(write):
    with pytest.raises(AlchemyError, match=r"cannot determine the format of 'a\.txt' from its extension; set format"):
        TextClassification(write("a.txt", "x\n"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a\n\nb\n", r"names\.txt:2 the line is empty"),
        ("a\nb\na\n", r":3 duplicate label 'a', first on line 1"),
        ("", "no labels"),
    ],
)
def test_a_file_of_labels_is_checked(write, names, message):
    with pytest.raises(AlchemyError, match=message):
        TextClassification(write("a.csv", "text\nx\n"), labels=write("names.txt", names))


def test_a_cell_may_hold_a_json_list(write):
    text = 'text,labels\nx,"[""a"", ""b, c""]"\ny,[]\nz,"[a],b"\n'
    samples = TextClassification(write("a.csv", text), kind="multi")
    assert [sample["labels"] for sample in samples] == [["a", "b, c"], [], ["[a]", "b"]]


def test_the_first_good_line_tells_of_labels(write):
    path = write("a.jsonl", '{oops\n3\n{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n')
    assert [sample["label"] for sample in TextClassification(path, bad="skip")] == ["x", "y"]
    with pytest.raises(AlchemyError, match=r"a\.jsonl:1 is not JSON"):
        TextClassification(path)


@pytest.mark.parametrize(
    ("text", "message"), [("", "found no samples in"), ("\n\n", "no samples"), ("\n  \n", "blank")]
)
def test_a_file_without_rows_is_told(write, text, message):
    with pytest.raises(AlchemyError, match=rf"{message}.*is the file empty"):
        TextClassification(write("a.csv", text))
