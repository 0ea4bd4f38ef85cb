"""Splits defined by a file of ids."""

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.lst import SequenceWrapper
from alchemy.pipeline.processors import SplitById, TextClassification

SAMPLES = [{"id": 7, "n": 0}, {"id": "b", "n": 1}, {"id": "c", "n": 2}]


def test_a_file_of_ids_splits_the_data(write):
    ids = write("ids.txt", "c\n7\n\n")
    chain = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": SAMPLES},
        {"type": "alchemy.pipeline.processors.SplitById", "ids": ids},
    ]
    assert [sample["n"] for sample in build_datapipes(chain)] == [0, 2]
    assert list(SplitById(SequenceWrapper(SAMPLES), ids=ids, exclude=True)) == [SAMPLES[1]]
    assert list(SplitById(SequenceWrapper(SAMPLES), ids=write("places", "1"), id="")) == [SAMPLES[1]]
    assert len(SplitById(SequenceWrapper(SAMPLES), ids=write("more", "b\nx\n"), missing=True)) == 1


def test_a_part_of_the_data_knows_its_lines(write):
    path = write("a.jsonl", '{"text": "x"}\n{"text": "y"}\n')
    part = SplitById(TextClassification(path), ids=write("places", "1"), id="")
    assert part.where(0) == f"{path}:2"


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (
            "b\nx\n",
            {},
            r"ids:2 no sample has the id 'x'; the first sample has '7'; set missing = true to ignore such ids",
        ),
        ("b\nb\n", {}, r"ids:2 duplicate id 'b', first on line 1"),
        ("\n", {}, "has no ids; it needs one id per line"),
        ("x\n", {"missing": True}, "SplitById keeps none of 3 samples"),
        ("b\n", {"id": "name"}, "name"),
    ],
)
def test_wrong_ids_are_named(write, ids, options, message):
    with pytest.raises(AlchemyError, match=message):
        SplitById(SequenceWrapper(SAMPLES), ids=write("ids", ids), **options)
