"""Proteins from FASTA files and tables: samples for classification and tagging, and what is wrong with a file."""

from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import apply_to_inputs
from alchemy.pipeline.lst import HoldOut, SequenceWrapper
from alchemy.pipeline.processors import Proteins
from tests.text.sets import needs

VARIANTS = ">0|bla_P2Q|1.5\nMQ\niq\n>1|bla_M1A|-.25\nAPIQ\n"


def test_variants_of_a_fasta_file(write):
    pipe = Proteins(write("a.fasta", VARIANTS), label=-1, kind="regression", mutation=1)
    assert pipe[0] == {"id": "0|bla_P2Q|1.5", "text": "MQIQ", "label": 1.5, "mutation": "P2Q", "position": 2}
    assert pipe.where(1).endswith("a.fasta:4")
    assert Proteins(write("a.fasta", VARIANTS), spaced=True)[0]["text"] == "M Q I Q"
    assert list(Proteins(write("b.fa", ">a some words\nAC\n"))) == [{"id": "a", "text": "AC"}]
    assert Proteins(write("c.fa", ">a|x\nAC\n"), id=0, label=1, labels=["y", "x"])[0]["label_id"] == 1


def test_the_column_of_a_table_does_not_matter_in_a_fasta_file(write):
    pipe = Proteins([write("a.csv", "id,seq,y\na,AC,1\n"), write("b.fa", ">b\nGK\n")], sequence="seq", label="")
    assert list(pipe) == [{"id": "a", "text": "AC"}, {"id": "b", "text": "GK"}]


def test_prediction_inputs_are_read_like_a_file():
    questions = SequenceWrapper([{"text": "m k\nu"}, {"tokens": ["mk", "v"]}])
    table = {"type": "alchemy.pipeline.processors.Proteins", "path": "gone.csv", "unknown": "X", "spaced": True}
    assert list(apply_to_inputs([table], questions)) == [{"text": "M K X"}, {"tokens": ["M", "K", "V"]}]


def test_tagged_proteins_of_a_table(write):
    path = write("a.tsv", "id\tseq\tss3\np1\tMKU\tH-C\n")
    options: dict[str, Any] = {"sequence": "seq", "unknown": "X"}
    tagged = {"id": "p1", "tokens": ["M", "K", "X"], "tags": ["H", "-", "C"]}
    assert list(Proteins(path, tags="ss3", **options)) == [tagged]
    assert list(Proteins(path, per_residue=True, **options)) == [{"id": "p1", "tokens": ["M", "K", "X"]}]
    numbers = Proteins(write("a.csv", "sequence,label\nMK,1\n"), kind="regression")
    assert list(numbers) == [{"text": "MK", "label": 1.0}]


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.fa", ">a\nAC\nA1\n", {}, r"a\.fa:3 '1' is not in the alphabet ACDEFGHIKLMNPQRSTVWY; set unknown = 'X'"),
        ("a.fa", ">a\n>b\nAC\n", {}, r"a\.fa:1 the sequence is empty"),
        ("a.fa", ">a\nAC\n>b\nC\n>a x\nG\n", {}, r"a\.fa:5 duplicate id 'a', first on line 1"),
        ("a.fa", "AC\n", {}, r"a\.fa:1 'AC' comes before the first header"),
        ("a.fa", ">a|1\nAC\n", {"label": 5}, r"a\.fa:1 the header has 2 parts, expected a part 5"),
        ("a.fa", ">a|x\nAC\n", {"label": 1, "kind": "regression"}, r"a\.fa:1 the label is 'x', expected a finite numb"),
        ("a.fa", ">a|x\nAC\n", {"label": "effect"}, "a FASTA file has no column 'effect'; use the index of a part"),
        ("a.fa", ">a|wt\nAC\n", {"mutation": 1}, r"a\.fa:1 the mutation is 'wt', expected a substitution such as H24C"),
        ("a.csv", "sequence,ss\nAC,HH\nACD,HH\n", {"tags": "ss"}, r"a\.csv:3 the sequence has 3 residues, but .* 2 t"),
        ("a.csv", "sequence,y\nAC,\n", {"label": "y", "kind": "regression"}, r"a\.csv:2 the label is '', expected"),
        ("a.csv", "sequence,y\nAC,1\n", {"label": "z"}, "there is no column 'z'"),
        ("a.csv", "sequence,y\n,1\n", {}, r"a\.csv:2 the sequence is empty"),
        ("a.jsonl", '{"sequence": 3}\n', {}, r"a\.jsonl:1 the sequence is 3, expected a string"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(write, name, text, options, message):
    with pytest.raises(AlchemyError, match=message):
        Proteins(write(name, text), **options)


def test_no_value_of_a_field_is_in_two_splits():
    samples = SequenceWrapper([{"position": n % 10, "n": n} for n in range(97)])
    shares: dict[str, dict[str, Any]] = {"train": {"share": 0.3}, "dev": {"share": 0.1, "held": True}}
    shares["test"] = {"share": 0.2, "skip": 0.1, "held": True}
    splits = {name: HoldOut(samples, by="position", **share) for name, share in shares.items()}
    assert sorted(sample["n"] for split in splits.values() for sample in split) == list(range(97))
    places = {name: {sample["position"] for sample in split} for name, split in splits.items()}
    assert [len(places[name]) for name in splits] == [7, 1, 2]
    assert not places["train"] & places["dev"] and not places["train"] & places["test"]
    other = HoldOut(samples, by="position", share=0.3, seed=1)
    assert {sample["position"] for sample in other} != places["train"]


def test_wrong_fields_to_split_by():
    samples = SequenceWrapper([{"position": 1}, {"position": 1}])
    with pytest.raises(AlchemyError, match="selects 0 of 1 values of 'position'"):
        HoldOut(samples, by="position", share=0.3)
    with pytest.raises(AlchemyError, match="place"):
        HoldOut(samples, by="place", share=0.5)


def test_public_data():
    variants = Proteins(str(needs("protein_blat_p62593") / "P62593.fasta.gz"), label=-1, kind="regression", mutation=1)
    assert len(variants) == 5397 and len({sample["position"] for sample in variants}) == 286
    chains = Proteins(str(needs("protein_ss") / "test_ts115.tsv"), sequence="seq", tags="ss8", unknown="X")
    assert sum(len(sample["tokens"]) for sample in chains) == 29704
    assert sum(tag != "-" for sample in chains for tag in sample["tags"]) == 27501
