"""Every public dataset loads, with the counts in its DATASET.md."""

from collections import Counter
from typing import Any

import pytest

from alchemy.pipeline.processors import Fasta, IdxImages, ParallelText, Relation, Tagging, TextClassification
from tests.text.sets import needs


def labels_of(pipe):
    return Counter(sample["label"] for sample in pipe)


def counts_of(pipe):
    tokens, spans = (sum(len(sample[name]) for sample in pipe) for name in ("tokens", "spans"))
    return len(pipe), tokens, spans


@pytest.mark.parametrize(("split", "count"), [("train", 60_000), ("t10k", 10_000)])
def test_mnist(split, count):
    folder = needs("mnist")
    pipe = IdxImages(
        str(folder / f"{split}-images-idx3-ubyte.gz"), label_path=str(folder / f"{split}-labels-idx1-ubyte.gz")
    )
    digits = Counter(fields["label_id"] for fields in pipe.targets)
    assert len(pipe) == count and pipe[0]["image"].shape == (28, 28) and pipe[0]["image"].dtype == "uint8"
    assert (min(digits.values()), max(digits.values())) == ((5421, 6742) if split == "train" else (892, 1135))
    assert pipe[0]["label_id"] == {"train": 5, "t10k": 7}[split]


MULTI30K = {
    "raw": ("raw/train.{}.gz", "raw/val.{}", "raw/test_2016_flickr.{}"),
    "tok": ("tok/train.lc.norm.tok.{}.gz", "tok/val.lc.norm.tok.{}", "tok/test_2016_flickr.lc.norm.tok.{}"),
    "bpe": tuple(f"bpe10k_revisit_mmt/{name}" for name in ("train.{}.gz", "valid.{}", "test.2016.{}")),
}


@pytest.mark.parametrize("kind", MULTI30K)
def test_multi30k(kind):
    folder = needs("multi30k_en_de")
    paths = [[str(folder / name.format(side)) for side in ("en", "de")] for name in MULTI30K[kind]]
    train, dev, test = (ParallelText(path, names=["en", "de"]) for path in paths)
    assert (len(train), len(dev), len(test)) == (29_000, 1_014, 1_000)
    if kind == "tok":
        words = [[sum(len(sample[side].split()) for sample in pipe) for side in ("en", "de")] for pipe in (train, test)]
        assert words == [[377_534, 360_706], [12_968, 12_103]]


@pytest.mark.parametrize(
    ("file", "counts"), [("train.txt.xz", (50_658, 2_169_879, 74_703)), ("dev.txt.gz", (4_631, 172_601, 6_181))]
)
def test_peoples_daily(file, counts):
    path = str(needs("ner_zh_peopledaily") / file)
    pipe = Tagging(path, scheme="BIO", types=["PER", "LOC", "ORG"], violations="drop")
    assert counts_of(pipe) == counts
    assert pipe.tags == ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
    assert all(len(sample["tag_ids"]) == len(sample["tokens"]) for sample in pipe)


RESUME = {
    "train.char.bmes.gz": ((3_821, 124_099, 13_438), 28, 4),
    "dev.char.bmes": ((463, 13_890, 1_497), 26, 0),
    "test.char.bmes": ((477, 15_100, 1_630), 24, 0),
}


@pytest.mark.parametrize("file", RESUME)
def test_resume_ner(file):
    counts, tags, violations = RESUME[file]
    types = ["NAME", "CONT", "RACE", "TITLE", "EDU", "ORG", "PRO", "LOC"]
    pipe = Tagging(str(needs("ner_zh_resume") / file), scheme="BMES", types=types, violations="drop")
    assert counts_of(pipe) == counts
    assert len({tag for sample in pipe for tag in sample["tags"]}) == tags
    assert len(pipe.broken) == violations


def test_beta_lactamase():
    pipe = Fasta(str(needs("protein_blat_p62593") / "P62593.fasta.gz"), target=-1)
    effects = [sample["label"] for sample in pipe]
    assert len(pipe) == 5_397 and {len(sample["sequence"]) for sample in pipe} == {286}
    assert len({sample["sequence"] for sample in pipe}) == 5_199
    assert (round(min(effects), 3), round(max(effects), 3)) == (-0.008, 1.581)
    assert round(sum(effects) / len(effects), 3) == 0.751


def test_semeval():
    folder = needs("semeval2010_task8")
    train, test = (
        Relation(str(folder / file), labels=str(folder / "label.txt")) for file in ("train.tsv.gz", "test.tsv")
    )
    assert (len(train), len(test), len(train.labels)) == (8_000, 2_717, 19)
    for label, counts in {"Other": (1410, 454), "Entity-Destination(e2,e1)": (1, 1)}.items():
        assert (labels_of(train)[label], labels_of(test)[label]) == counts
    key = [line.split("\t") for line in (folder / "answer_keys.txt").read_text().splitlines()]
    assert [sample["label"] for sample in test] == [label for _, label in key]


def test_sst2():
    folder = needs("sst2_sentences")
    files = ("stsa.binary.train.gz", "stsa.binary.dev", "stsa.binary.test")
    options: dict[str, Any] = {"format": "label text", "labels": ["negative", "positive"], "label_by": "index"}
    pipes = [TextClassification(str(folder / file), **options) for file in files]
    assert [len(pipe) for pipe in pipes] == [6_920, 872, 1_821]
    assert all(set(labels_of(pipe)) == {"negative", "positive"} for pipe in pipes)


def test_tatoeba():
    folder = needs("tatoeba_cmn_eng")
    files = [f"{split}.en-zh.tsv" for split in ("train", "dev", "test")]
    parts = [ParallelText(str(next(folder.glob(f"{file}*"))), names=["en", "zh"]) for file in files]
    whole = ParallelText(str(folder / "cmn.txt.gz"), format="tsv", names=["en", "zh"])
    assert [len(pipe) for pipe in (whole, *parts)] == [29_155, 27_476, 814, 865]
    assert whole[0] == {"en": "Hi.", "zh": "嗨。"}  # no byte order mark


def test_thucnews5():
    folder = needs("thucnews5_csv")
    labels = str(folder / "labels.txt")
    train, dev, test, gold = (
        TextClassification(str(folder / file), labels=labels)
        for file in ("train.csv.gz", "dev.csv", "test.csv", "test_gold.csv")
    )
    assert [len(pipe) for pipe in (train, dev, test, gold)] == [22_361, 5_000, 5_000, 5_000]
    assert labels_of(train) == {"体育": 4472, "财经": 4480, "房产": 4508, "教育": 4424, "科技": 4477}
    assert set(labels_of(dev).values()) == set(labels_of(gold).values()) == {1000}
    assert [sample["text"] for sample in test] == [sample["text"] for sample in gold]
    assert all(list(sample) == ["text"] for sample in test)


def test_thucnews10():
    folder = needs("thucnews_title10")
    options: dict[str, Any] = {
        "text": 0,
        "label": 1,
        "format": "tsv",
        "labels": str(folder / "class.txt"),
        "label_by": "index",
    }
    files = ("train_first45k.txt.gz", "dev.txt", "test.txt")
    train, dev, test = (TextClassification(str(folder / file), **options) for file in files)
    assert (len(train), len(dev), len(test)) == (45_000, 10_000, 10_000)
    assert (min(labels_of(train).values()), max(labels_of(train).values())) == (4424, 4579)
    assert set(labels_of(dev).values()) == set(labels_of(test).values()) == {1000}


def test_trec():
    folder = needs("trec")
    names = ["DESC", "ENTY", "ABBR", "HUM", "LOC", "NUM"]
    train, test = (
        TextClassification(str(folder / f"TREC.{split}.all"), format="label text", labels=names, label_by="index")
        for split in ("train", "test")
    )
    assert (len(train), len(test)) == (5_452, 500)
    assert set(labels_of(train)) == set(names)
