"""FASTA sequences: headers, letters, targets."""

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import Fasta


def test_unknown_letters_are_replaced(write):
    path = write("a.fasta", "\n>a b\nACX\n\nB-\n>c\nac\n")
    assert [sample["sequence"] for sample in Fasta(path, unknown="X")] == ["ACXXX", "AC"]
    assert Fasta(path, unknown="X")[0]["header"] == ["a b"]
    assert Fasta(write("dna.fa", ">a\nacgt\n"), alphabet="ACGT")[0]["sequence"] == "ACGT"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ACD\n>a\nACD\n", r"a\.fa:1 'ACD' comes before the first header"),
        (">a|x\nACD\n", "the label is 'x', expected a finite number"),
        (">1\n\n>2\nACD\n", r"a\.fa:1 the sequence is empty"),
    ],
)
def test_wrong_sequences_are_named(write, text, message):
    with pytest.raises(AlchemyError, match=message):
        Fasta(write("a.fa", text), target=-1)


def test_headers_with_too_few_parts(write):
    with pytest.raises(AlchemyError, match="the header has 1 parts, expected a number in part 2"):
        Fasta(write("a.fa", ">a\nACD\n"), target=2)
    with pytest.raises(AlchemyError, match="unknown must be one character, not the string 'XX'"):
        Fasta(write("a.fa", ">a\nACD\n"), unknown="XX")


def test_remarks_and_blanks_are_no_letters(write):
    path = write("a.fa", "; a remark\n>a\nac GT\n;x\nA C\n>b\nAZ\n")
    assert [s["sequence"] for s in Fasta(path, alphabet="acgt", unknown="N")] == ["ACGTAC", "AN"]
    with pytest.raises(AlchemyError, match=r"a\.fa:7 'Z' is not in the alphabet ACGT"):
        Fasta(path, alphabet="acgt")
