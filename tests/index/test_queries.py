"""Queries give the same answers in both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.index.listing import build_listing
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_curves import write_curves
from tests.analysis.fake_runs import write_run
from tests.index.five_records import write_five

FILTERS = {
    "": "ABCDE",
    "status:finished": "ACDE",
    "-status:finished": "B",
    "lr<1e-2": "AB",
    "optim.lr=1e-2": "C",
    "lr!=1e-2": "ABDE",
    "depth>=4 depth<8": "BC",
    "tag:Base": "A",
    "tag:base": "",
    "tag=paper": "AC",
    "tag:pap*": "ACE",
    "tag:PAP*": "ACE",
    "tag~pap": "ACE",
    "tag!=paper": "BDE",
    "tag!=pa": "ABCDE",
    "purpose:ÄPFEL": "C",
    "purpose:äpfel": "C",
    "purpose:50%": "D",
    "purpose:5_%": "",
    "purpose:a\\b": "D",
    "note:later": "A",
    "name=ABC": "A",
    "name=abc": "",
    "name:abc": "A",
    "name=*b*": "AB",
    "dev/f1>0.7": "BC",
    "best(dev/f1)>=0.9": "C",
    "dev/f1=0.80": "B",
    "dev/f1=0.8": "B",
    "best(dev/f1)!=0.9": "AB",
    "max(dev/loss)>5": "D",
    "min(dev/loss)<5": "D",
    "test/f1>0.5": "A",
    "seed>1": "BD",
    "seed<10": "ABCE",
    "seed=10": "D",
    "created>=2026-03-01T14:00:00+00:00": "CDE",
    "duration>400": "B",
    "updates>1": "ABCDE",
    "code:ab*": "B",
    "code:AB": "B",
    "host:else": "ABCDE",
    '"focal loss"': "B",
    "focal": "AB",
    "损失": "AC",
    "焦点": "A",
    "点损": "A",
    "损失 or focal": "ABC",
    "损失 and focal": "A",
    "(tag:paper or tag:paper2) lr<0.1": "AC",
    "not (损失 or focal)": "DE",
    "café": "E",
    "cafe": "",
    "flag=true": "E",
    "flag:true": "E",
    "nothing=nan": "E",
}


@pytest.fixture
def five(project: Path) -> Path:
    write_five(project)
    return project


def letters(index: RecordIndex, text: str) -> str:
    return "".join(sorted("ABCDE"[int(row.name[11:13]) - 12] for row in index.query(text, kind="train")))


@pytest.mark.usefixtures("five")
def test_filters() -> None:
    with RecordIndex.open() as index:
        found = {text: letters(index, text) for text in FILTERS}
    assert found == FILTERS


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("-created", "EDCBA"),
        ("created", "ABCDE"),
        ("tag", "AEDCB"),  # capital letters first, then the newest
        ("-dev/f1", "CBAED"),  # records without the value last
        ("dev/f1", "ABCED"),
        ("test/f1", "AEDCB"),
        ("-lr", "CBAED"),
        ("seed", "ECABD"),
        ("-seed", "DBECA"),
        ("duration", "EDCAB"),
    ],
)
def test_sort(sort: str, expected: str) -> None:
    with RecordIndex.open() as index:
        rows = index.query(sort=sort, kind="train")
    found = "".join("ABCDE"[int(row.name[11:13]) - 12] for row in rows)
    if sort == "seed":  # A, C and E have the same seed
        assert (found[:3], found[3:]) == ("ECA", "BD")
    else:
        assert found == expected


def test_runs_that_differ_only_in_their_seed_are_one_line(five: Path) -> None:
    for number, f1 in ((6, 0.6), (7, 0.7)):
        write_run(five, number, {"dev/f1": f1}, {"optim": {"lr": 1e-3}, "name": "ABC"}, seed=number, tag="Base")
    with RecordIndex.open() as index:
        listing = build_listing(index, "tag:Base", columns=["dev/f1", "seed"], kind="train")
    assert [str(line.cells["dev/f1"]) for line in listing.lines] == ["0.6 ± 0.1 (3)"]


def test_names_of_records(five: Path) -> None:
    with RecordIndex.open() as index:
        names = [row.name for row in index.query(kind="train")]
        for text, name in {
            "last": names[0],
            "last~2": names[2],
            "best(dev/f1)": names[2],
            names[1][:15]: names[1],
        }.items():
            assert index.find(text).name == name
        assert index.find(str(five / names[3])).name == names[3]
        for text, problem in {
            "2026": "matches 6 records",
            "nothing": "not found",
            "a\0b": "not found",
            "\ud800": "not",
        }.items():
            with pytest.raises(AlchemyError, match=problem):
                index.find(text)


def test_of_equal_values_the_oldest_is_the_best(five: Path) -> None:
    for number in (6, 7):
        write_run(five, number, {"dev/f1": 0.95})
    with RecordIndex.open() as index:
        assert index.find("best(dev/f1)").name.startswith("2026-03-01_18")


def test_curves_of_both_databases_are_exact(project: Path) -> None:
    folder = write_curves(project, 0, {"loss": [float(number % 7) for number in range(25_000)]}, per_epoch=100)
    assert (folder / "metrics.jsonl").stat().st_size > 2 * 2**20  # large enough to be stored
    with RecordIndex.open() as index:
        (row,) = index.query()
        buckets = index.curves.read(row, "loss")
        assert (buckets[0].first, buckets[-1].last) == (1, 25_000)
        assert {(bucket.low, bucket.high) for bucket in buckets} == {(0.0, 6.0)}
        assert index.curves.read_clock(row, "epoch")[-1] == (25_000, 250)
        assert index.metrics([row])[row.id]["loss"]["points"] == 25_000
