"""The contract of processors: samples by index, declared fields, errors with file and line."""

import contextlib
import gzip
import pickle
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.data.loader import get_dataloader
from alchemy.errors import AlchemyError
from alchemy.pipeline import LstDataPipeline, build_datapipes, processors

# name: (file, options, a valid file of two samples, an invalid row and its message, the first sample)
KINDS = {
    "csv": (
        "TextClassification",
        "a.csv",
        {"labels": ["good", "bad"]},
        "text,label\nx,good\n\ny,bad\n",
        ("z,godo\n", r"a\.csv:5 unknown label 'godo', expected good, bad; did you mean 'good'\?"),
        {"text": "x", "label": "good", "label_id": 0},
    ),
    "jsonl": (
        "TextClassification",
        "a.jsonl",
        {"kind": "multi", "labels": ["a", "b", "c"]},
        '{"text": "x", "label": ["a", "c"]}\n{"text": "y", "label": []}\n',
        ('{"text": "", "label": []}\n', r"a\.jsonl:3 the text is '', expected a non-empty string"),
        {"text": "x", "labels": ["a", "c"], "label_ids": [0, 2]},
    ),
    "relation": (
        "Relation",
        "a.tsv",
        {},
        "r\tA <e1> b </e1> c <e2> d </e2>.\nr\t<e2>d</e2> <e1>b</e1>\n",
        ("r\tA <e1> b </e1> c d.\n", r"a\.tsv:3 missing marker <e2>, expected <e2> and </e2> once each"),
        {
            "text": "A b c d.",
            "tokens": ["A", "b", "c", "d."],
            "e1": [2, 3],
            "e2": [6, 7],
            "e1_tokens": [1, 2],
            "e2_tokens": [3, 4],
            "label": "r",
        },
    ),
    "tagging": (
        "Tagging",
        "a.txt",
        {"scheme": "BIO", "types": ["PER"]},
        "x B-PER\ny I-PER\n\nz O\n",
        ("\nx O\ny\n", r"a\.txt:7 expected 2 cells as in the first line, got 1"),
        {"tokens": ["x", "y"], "tags": ["B-PER", "I-PER"], "tag_ids": [1, 2], "spans": [[0, 2, "PER"]]},
    ),
    "spans": (
        "Spans",
        "a.jsonl",
        {"labels": ["LOC", "PER"]},
        '{"text": "in Rome", "spans": [[3, 7, "LOC"]]}\n{"text": "y", "spans": []}\n',
        ('{"text": "y", "spans": [[0, 2, "LOC"]]}\n', r"a\.jsonl:3 the span \[0, 2, 'LOC'\] is outside the text"),
        {"text": "in Rome", "spans": [[3, 7, "LOC"]], "label_ids": [0]},
    ),
    "parallel": (
        "ParallelText",
        "a.tsv",
        {},
        "a\tA\nb\tB\n",
        ("c\t\n", r"a\.tsv:3 the target is empty; set empty = true to allow this"),
        {"source": "a", "target": "A"},
    ),
    "fasta": (
        "Fasta",
        "a.fasta",
        {"target": -1},
        ">0|x|0.5\nACD\nefg\n>1|y|-1\nAC\n",
        (
            ">2|z|3\nAC\nXA\n",
            r"a\.fasta:8 'X' is not in the alphabet ACDEFGHIKLMNPQRSTVWY; set unknown = 'X' to replace it",
        ),
        {"header": ["0", "x", "0.5"], "sequence": "ACDEFG", "label": 0.5},
    ),
    "proteins": (
        "Proteins",
        "a.fasta",
        {"label": -1, "kind": "regression"},
        ">0|x|0.5\nACD\nefg\n>1|y|-1\nAC\n",
        (">1|y|-1\nAC\n", r"a\.fasta:6 duplicate id '1\|y\|-1', first on line 4"),
        {"id": "0|x|0.5", "text": "ACDEFG", "label": 0.5},
    ),
}
every_kind = pytest.mark.parametrize(("part", "name", "options", "text", "bad", "first"), KINDS.values(), ids=KINDS)


def build(part, path, /, **options):
    return build_datapipes([{"type": f"alchemy.pipeline.processors.{part}", "path": path, **options}])


@every_kind
def test_samples_are_a_list(write, part, name, options, text, bad, first):
    pipe = build(part, write(name, text), **options)
    assert isinstance(pipe, LstDataPipeline) and len(pipe) == 2
    assert pipe[0] == first and next(iter(pipe)) == first
    assert pipe.gives == {field: type(value).__name__ for field, value in first.items()}
    assert list(pickle.loads(pickle.dumps(pipe))) == list(pipe)


@every_kind
def test_every_sample_knows_its_file_and_line(write, part, name, options, text, bad, first):
    files = [write(f"{number}{name}", text) for number in range(2)]
    pattern = files[0].replace(f"0{name}", f"[01]{name}")
    pipe = build(part, pattern, **options)
    lines = {"a.csv": (2, 4), "a.txt": (1, 4), "a.fasta": (1, 4)}.get(name, (1, 2))
    assert [pipe.where(place) for place in range(4)] == [f"{file}:{line}" for file in files for line in lines]
    assert pipe.where(-1) == pipe.where(3) == pickle.loads(pickle.dumps(pipe)).where(3)
    with pytest.raises(IndexError, match="out of range"):
        pipe.where(4)


@every_kind
def test_a_skipped_row_shifts_no_line(write, part, name, options, text, bad, first):
    places = [build(part, write(name, more), bad="skip", **options).where(1) for more in (text, text + bad[0])]
    assert places[0] == places[1]


@every_kind
def test_packed_files_and_patterns(tmp_path, part, name, options, text, bad, first):
    for number in range(2):
        (tmp_path / f"{number}{name}.gz").write_bytes(gzip.compress(f"\ufeff{text}".encode()))
    assert (
        list(build(part, str(tmp_path / "*.gz"), **options))
        == list(build(part, str(tmp_path / f"0{name}.gz"), **options)) * 2
    )


@every_kind
def test_a_bad_row_is_an_error_or_counted(write, capture_log, part, name, options, text, bad, first):
    path = write(name, text + bad[0])
    with pytest.raises(AlchemyError, match=rf'{bad[1]}.*; fix the row, or set bad = "skip"$'):
        build(part, path, **options)
    assert len(build(part, path, bad="skip", **options)) == 2
    line = re.search(r":(\d+) ", bad[1])[1]
    assert f"skipped 1 bad rows, the first at line {line}" in capture_log.text


@every_kind
def test_what_cannot_be_read_is_told_before_training(write, part, name, options, text, bad, first):
    with pytest.raises(AlchemyError, match="file not found"):
        build(part, "missing.csv", **options)
    with pytest.raises(AlchemyError, match=f"{part} found no samples in .*{name}"):
        build(part, write(name, ""), **options)
    with pytest.raises(AlchemyError, match="bad must be one of 'error', 'skip', not the string 'ignore'"):
        build(part, write(name, text), bad="ignore", **options)


@every_kind
def test_a_loader_shuffles_and_shares_out(write, part, name, options, text, bad, first):
    pipe = build(part, write(name, text), **options)
    batches = get_dataloader(pipe, batch_size=1, shuffle=True, num_workers=1, collate_fn=list, seed=1)
    assert sorted(map(str, (sample for batch in batches for sample in batch))) == sorted(map(str, pipe))


LETTERS = st.text(st.sampled_from("aB-O \t\n\r,\"'{}[]:|<e1></2>0. \u3000\x00\u2028é"), max_size=60)


@every_kind
@settings(max_examples=60, deadline=None)
@given(start=st.booleans(), text_more=LETTERS)
def test_any_text_is_read_or_refused(part, name, options, text, bad, first, start, text_more):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text * start + text_more, "utf-8", newline="")
        for choice in ("error", "skip"):
            with contextlib.suppress(AlchemyError):
                pipe = getattr(processors, part)(str(path), bad=choice, **options)  # a config hides other errors
                assert all(isinstance(sample, dict) and set(sample) == set(first) for sample in pipe)


def test_a_processor_that_is_not_first_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("label,text\na,b\n")
    first = {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": ["a"]}
    second = {"type": "alchemy.pipeline.processors.TextClassification", "path": str(tmp_path / "t.csv")}
    with pytest.raises(AlchemyError, match="must be the first pipe of a chain: it reads files"):
        build_datapipes([first, second])
