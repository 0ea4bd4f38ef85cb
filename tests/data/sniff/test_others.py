"""Tag files, parallel text, and the role of each file."""

import pytest

from alchemy.data.sniff.files import find_splits
from alchemy.data.sniff.finding import Hints
from alchemy.data.sniff.parallel import sniff_parallel
from alchemy.data.sniff.tags import sniff_tags
from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import ParallelText, Tagging

BIO = "Anna B-PER\nWeber I-PER\nsings O\n\nOslo B-LOC\nfreezes O\n\n" * 3
BMES = "吴 B-NAME\n重 M-NAME\n阳 E-NAME\n， O\n中 S-LOC\n\n" * 3


@pytest.mark.parametrize(
    ("text", "encoding", "keys", "tokenizer"),
    [
        (BIO, "utf-8", {"scheme": "BIO"}, "Words"),
        (BIO.replace(" ", "\t"), "utf-8", {"scheme": "BIO", "delimiter": "\t"}, "Words"),
        (BIO.replace(" ", " NN x "), "utf-8", {"scheme": "BIO"}, "Words"),
        ("-DOCSTART- O\n\n" + BIO.replace("B-", "I-"), "utf-8", {"scheme": "IOB1"}, "Words"),
        (BIO.replace("I-", "L-").replace("Oslo B-", "Oslo U-"), "utf-8", {"scheme": "BILOU"}, "Words"),
        (BIO.replace("Weber I-", "Weber E-").replace("Oslo B-", "Oslo S-"), "utf-8", {"scheme": "BIOES"}, "Words"),
        (BMES, "utf-8", {"scheme": "BMES"}, "Characters"),
        (BMES, "gbk", {"scheme": "BMES", "encoding": "gb18030"}, "Characters"),
        (BMES + "阳 E-NAME\n， O\n", "utf-8", {"scheme": "BMES", "violations": "begin"}, "Characters"),
    ],
)
def test_tags_are_found_and_read(text, encoding, keys, tokenizer, tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(text.encode(encoding))
    finding = sniff_tags({"train": [path]}, Hints())
    assert finding.shared == keys
    assert finding.task == {"type": "Tagging", "scheme": keys["scheme"], "tokenizer": tokenizer}
    read = Tagging(str(path), **finding.shared)
    assert len(read) == finding.sizes["train"]
    assert read[0]["spans"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a line of prose\nand another one that is longer\n", "is not a tagged file: its first line is 'a line of"),
        ("dog NN\nruns VB\n", "the tags NN, VB do not belong to a known scheme; use BIO"),
        ("".join(f"w{n} t{n}\n" for n in range(400)), "400 different values, which is too many for tags"),
    ],
)
def test_files_without_tags_are_clear_errors(text, message, tmp_path):
    (tmp_path / "train.txt").write_text(text)
    with pytest.raises(AlchemyError, match=message):
        sniff_tags({"train": [tmp_path / "train.txt"]}, Hints())


ENGLISH, CHINESE = ["Hi.", "It is cold today.", "I give up."], ["嗨。", "今天很冷。", "我放弃。"]


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
@pytest.mark.parametrize(
    ("names", "keys"),
    [(["en", "zh"], {"source": "en", "target": "zh"}), ([], {"source": 0, "target": 1})],
)
def test_parallel_texts_are_found_and_read(names, keys, encoding, tmp_path):
    rows = [names, *zip(ENGLISH, CHINESE)] if names else zip(ENGLISH, CHINESE)
    (tmp_path / "train.tsv").write_bytes("".join("\t".join(row) + "\n" for row in rows).encode(encoding))
    for name, lines in (("train.en", ENGLISH), ("train.zh", CHINESE)):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    told = {} if encoding == "utf-8" else {"encoding": encoding}
    for paths, expected in (([tmp_path / "train.tsv"], keys), ([tmp_path / "train.en", tmp_path / "train.zh"], {})):
        finding = sniff_parallel({"train": paths}, Hints())
        assert finding.shared == expected | told
        read = ParallelText(finding.splits["train"]["path"], **finding.shared)
        assert [(row["source"], row["target"]) for row in read] == list(zip(ENGLISH, CHINESE))


def test_sides_that_do_not_match_are_clear_errors(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    with pytest.raises(AlchemyError, match=r"a\.en has 2 lines, but .*a\.de has 1"):
        sniff_parallel({"train": [tmp_path / "a.en", tmp_path / "a.de"]}, Hints())
    (tmp_path / "a.tsv").write_text("1\t2\n3\t4\n")
    with pytest.raises(
        AlchemyError, match="does not have two text columns; available columns: 0, 1; set them with --source"
    ):
        sniff_parallel({"train": [tmp_path / "a.tsv"]}, Hints())


@pytest.mark.parametrize(
    ("names", "sides", "found"),
    [
        (
            ["train.csv", "dev.tsv", "test.jsonl"],
            False,
            {"train": ["train.csv"], "dev": ["dev.tsv"], "test": ["test.jsonl"]},
        ),
        (["Train.CSV", "valid.csv", "README.md"], False, {"train": ["Train.CSV"], "dev": ["valid.csv"]}),
        (["TREC.train.all", "TREC.test.all"], False, {"train": ["TREC.train.all"], "test": ["TREC.test.all"]}),
        (["news.csv"], False, {"train": ["news.csv"]}),
        (["train.csv", "test.csv", "test_gold.csv"], False, {"train": ["train.csv"], "test": ["test.csv"]}),
        (
            ["train-0.csv", "train-1.csv", "val.csv"],
            False,
            {"train": ["train-0.csv", "train-1.csv"], "dev": ["val.csv"]},
        ),
        (
            ["train.de", "train.en", "val.de", "val.en"],
            True,
            {"train": ["train.en", "train.de"], "dev": ["val.en", "val.de"]},
        ),
        (["train.de.gz", "train.en.gz"], True, {"train": ["train.en.gz", "train.de.gz"]}),
        (["train.en-zh.tsv.gz", "dev.en-zh.tsv"], True, {"train": ["train.en-zh.tsv.gz"], "dev": ["dev.en-zh.tsv"]}),
    ],
)
def test_splits_are_known_by_the_names_of_files(names, sides, found, tmp_path):
    for name in names:
        (tmp_path / name).write_text("x\n")
    splits, left = find_splits([tmp_path], sides=sides)
    assert {split: [path.name for path in paths] for split, paths in splits.items()} == found
    assert {path.name for path in left} <= {"test_gold.csv"}


def test_two_files_of_one_name_are_the_sides_of_a_corpus(tmp_path):
    files = [tmp_path / "corpus.zh", tmp_path / "corpus.en"]
    for file in files:
        file.write_text("x\n")
    assert find_splits(files, sides=True)[0] == {"train": files}


def test_folders_and_files_that_say_nothing_are_clear_errors(tmp_path):
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(AlchemyError, match=r"has no data files with a known name; expected .* found notes\.md"):
        find_splits([tmp_path])
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x")
    with pytest.raises(AlchemyError, match=r"cannot determine which of a\.csv, b\.csv is the training data"):
        find_splits([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(AlchemyError, match=r"file not found: .*nws\.csv"):
        find_splits([tmp_path / "nws.csv"])
