"""Parallel text: sides as files or columns, always aligned."""

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import ParallelText


def test_sides_are_files_or_columns(write):
    sides = [write("a.en", "a\nb\n"), write("a.de", "A\nB")]
    pairs = [{"en": "a", "de": "A"}, {"en": "b", "de": "B"}]
    assert list(ParallelText(sides, names=["en", "de"])) == pairs
    table = write("a.tsv", "A\tx\ta\nB\ty\tb\n")
    assert list(ParallelText(table, names=["en", "de"], columns=[2, 0])) == pairs
    named = write("a.csv", "de,en\nA,a\nB,b\n")
    assert list(ParallelText(named, names=["en", "de"], columns=["en", "de"])) == pairs
    assert len(ParallelText([*sides, table], names=["en", "de", "all"])) == 2


def test_source_and_target_name_the_columns_of_a_table(write):
    pairs = [{"source": "a", "target": "A"}]
    assert list(ParallelText(write("a.tsv", "x\tA\ta\n"), source=2, target=1)) == pairs
    assert list(ParallelText(write("b.tsv", "de\tid\ten\nA\t1\ta\n"), source="en", target="de")) == pairs
    assert list(ParallelText(write("c.jsonl", '{"de": "A", "en": "a"}\n'), source="en", target="de")) == pairs
    with pytest.raises(AlchemyError, match=r"b\.tsv:1 there is no column 'eng'; did you mean 'en'\?"):
        ParallelText(write("b.tsv", "de\ten\nA\ta\n"), source="eng", target="de")
    with pytest.raises(AlchemyError, match=r"a\.tsv:1 has no column 7"):
        ParallelText(write("a.tsv", "x\tA\ta\n"), source=7, target=1)


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        (["a", "b"], {"source": "en", "target": "de"}, "parallel files have none; remove source and target"),
        ("a.tsv", {"source": 0}, "'target' is not set; set target too"),
        (
            "a.tsv",
            {"source": 0, "target": 1, "columns": [0, 1]},
            "'columns' cannot be combined with 'source' and 'target'",
        ),
    ],
)
def test_columns_that_contradict_each_other_are_refused(path, options, message):
    with pytest.raises(AlchemyError, match=message):
        ParallelText(path, **options)


NAMED = [{"en": "a", "de": "A"}]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", "de,id,en\nA,1,a\n", {}),
        ("a.tsv", "de\ten\nA\ta\n", {}),
        ("a.tsv", "a\tA\n", {}),
        ("a.tsv", "english\tgerman\na\tA\n", {"header": True}),
        ("a.csv", "a,A\n", {"header": False}),
        ("a.jsonl", '{"de": "A", "en": "a"}\n', {}),
    ],
)
def test_a_header_is_no_sample(write, name, text, options):
    assert list(ParallelText(write(name, text), names=["en", "de"], **options)) == NAMED


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "english,german\na,A\n",
            r"a\.csv:1 no columns en and de; set the columns to read, or",
        ),
        ("a.jsonl", '{"english": "a", "de": "A"}\n', r"a\.jsonl:1 there is no column 'en'; it has english, de"),
    ],
)
def test_sides_that_cannot_be_told_are_refused(write, name, text, message):
    with pytest.raises(AlchemyError, match=message):
        ParallelText(write(name, text), names=["en", "de"])


def test_a_carriage_return_ends_no_line_by_itself(tmp_path):
    for name, text in {"a.en": b"a\rb\r\nc\r\n", "a.de": b"A\nC\n"}.items():
        (tmp_path / name).write_bytes(text)
    pipe = ParallelText([str(tmp_path / "a.en"), str(tmp_path / "a.de")])
    assert list(pipe) == [{"source": "a\rb", "target": "A"}, {"source": "c", "target": "C"}]


def test_an_empty_side_is_bad_unless_it_is_meant(write, capture_log):
    sides = [write("a.en", "a\n\n"), write("a.de", "A\nB\n")]
    with pytest.raises(AlchemyError, match=r"a\.en:2 the source is empty"):
        ParallelText(sides)
    assert len(ParallelText(sides, bad="skip")) == 1
    assert ParallelText(sides, empty=True)[1] == {"source": "", "target": "B"}


@pytest.mark.parametrize("bad", ["error", "skip"])
def test_unequal_sides_are_refused(write, bad):
    sides = [write("a.en", "a\nb\nc\n"), write("a.de", "A\nB\n")]
    with pytest.raises(AlchemyError, match=r"a\.de:2 the files have different numbers of lines: .*a\.en 3, .*a\.de 2"):
        ParallelText(sides, bad=bad)


@pytest.mark.parametrize(("path", "names"), [(["a"], ["en", "de"]), ("a.tsv", ["en"]), (["a", "b"], ["en", "en"])])
def test_every_side_has_a_name(path, names):
    with pytest.raises(AlchemyError, match=r"at least two distinct names, .*, not \['en'.*; set path to a list"):
        ParallelText(path, names=names)


@pytest.mark.parametrize("option", [{"columns": [0, 1]}, {"format": "tsv"}, {"delimiter": ";"}, {"header": False}])
def test_files_side_by_side_are_no_tables(write, option):
    with pytest.raises(AlchemyError, match="parallel files have no columns, format, delimiter or header; if the texts"):
        ParallelText([write("a", "x\n"), write("b", "y\n")], **option)
