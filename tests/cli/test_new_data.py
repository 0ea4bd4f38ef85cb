"""`alchemy new --kind --data`: its output, the config it writes, and that the project runs."""

import gzip
import os
import re
import shlex
import tomllib

import pytest

from alchemy.cli import main
from alchemy.cli.starter.samples import data_files
from alchemy.config.load import prepare_cfg

KINDS = ["text", "ner", "pairs", "translation"]


def new(*words):
    return main(["new", *map(str, words)])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_writes_a_config_that_passes_the_check(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert new("demo", "--kind", kind) == 0
    printed = capsys.readouterr().out
    assert "  alchemy run train.toml --test\n" in printed
    monkeypatch.chdir(tmp_path / "demo")
    assert main(["check", "train.toml", "--strict"]) == 0
    text = (tmp_path / "demo" / "train.toml").read_text()
    assert len([line for line in text.splitlines() if line]) <= 25
    assert kind != "text" or len(text.splitlines()) <= 25
    assert sorted(path.suffix for path in (tmp_path / "demo").rglob("*.py")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_sample_data_have_no_row_in_two_splits(kind):
    splits = data_files(kind).values()
    rows = [set(text.split("\n\n") if kind == "ner" else text.splitlines()[1:]) for text in splits]
    assert [len(part) for part in rows] == [900, 150, 150]
    assert len(set.union(*rows)) == 1200
    assert data_files(kind) == data_files(kind)


def test_the_text_template_trains_tests_and_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert new("demo", "--kind", "text") == 0
    asked = next(line for line in capsys.readouterr().out.splitlines() if "alchemy predict" in line)
    monkeypatch.chdir(tmp_path / "demo")
    assert main(["run", "train.toml", "--test", "--device", "-1", "--set", "sched.epochs=2"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    scores = [float(score) for score in re.findall(r"accuracy (\S+)", row)]  # dev and test
    assert len(scores) == 2
    assert min(scores) > 0.6  # random guessing is right one time in four
    assert main([*shlex.split(asked)[1:], "--device", "-1"]) == 0
    assert '"pred": "account"' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("ner", "f1 0.9"), ("pairs", "accuracy 0.8"), ("translation", "bleu 50")])
def test_the_other_templates_learn(kind, least, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert new("demo", "--kind", kind) == 0
    monkeypatch.chdir(tmp_path / "demo")
    assert main(["run", "train.toml", "--test", "--device", "-1"]) == 0
    name, score = least.split()
    found = re.findall(rf"\b{name} (\S+)", capsys.readouterr().out.splitlines()[-1])
    assert min(map(float, found)) > float(score)


def test_data_are_named_by_their_path_and_never_copied(tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "新闻.csv").write_text("标题,栏目\n" + "锌价难续去年辉煌,财经\n国足公布名单,体育\n" * 3, "gbk")
    monkeypatch.chdir(tmp_path)
    assert new("a b/news", "--data", "data/新闻.csv") == 0
    told = capsys.readouterr().out
    assert told.startswith("data/新闻.csv: csv, gb18030, with a header, 6 rows\n  标题  text   ")
    assert "  cd 'a b/news'\n" in told
    data = tomllib.loads((tmp_path / "a b/news/train.toml").read_text("utf-8"))["task"]["data"]
    assert data == {
        "train": "../../data/新闻.csv", "dev": 0.2, "test": 0.2, "text": "标题", "label": "栏目", "encoding": "gb18030",
    }  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "a b/news").iterdir()) == [".gitignore", "train.toml"]
    monkeypatch.chdir(tmp_path / "a b/news")
    assert main(["check", "train.toml", "--strict"]) == 0


def test_a_file_of_tags_is_recognized(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("Anna B-PER\nsaid O\n'no' O\n\nAnna B-PER\nruns O\n\n" * 30)
    assert new("names", "--data", "names.txt") == 0
    told = capsys.readouterr().out
    assert "names.txt has a token and its tag on each line: using --kind ner\n" in told
    assert "predict latest --text 'Anna runs'\n" in told  # rather than the first, which has quotes
    assert 'train = "../names.txt"  # 60 sentences' in (tmp_path / "names/train.toml").read_text()


def test_very_few_rows_train_and_are_told_to_be_few(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "news.csv").write_text(
        "title,topic\nshares fell,money\na late goal,sport\nrates rise,money\nwe won,sport\n"
    )
    assert new("news", "--data", "news.csv") == 0
    assert "  note: only 4 rows: enough for a trial run, too few to train a model\n" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "news")
    assert main(["run", "train.toml", "--test", "--device", "-1", "--set", "sched.epochs=1"]) == 0


@pytest.mark.parametrize("count", [2, 60])
def test_labels_that_only_dev_has_are_told_with_the_way_out(count, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"good {n},{n}\nbad {n},{n}\n" for n in range(count)))
    (tmp_path / "dev.csv").write_text("text,label\nodd one,new\ngood one,1\n")
    assert new("out", "--data", ".") == 0
    told = capsys.readouterr().out
    assert "note: dev has labels that are missing from the training data: new; " in told
    assert ("`labels` in the config lists them" if count < 50 else "the run would fail: add training rows") in told


def write_flowers(path, *, delimiter=",", header=True, blank=False):
    """Rows of numbers far from zero, of which the second determines the class."""
    rows = [[str(n), f"{100 + n % 7}", f"{n % 2 * 50 + n % 5}", ("iris", "rose")[n % 2]] for n in range(120)]
    rows[7][1] = "" if blank else rows[7][1]
    rows = [["id", "height", "width", "kind"]] * header + rows
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))


def test_numbers_with_a_label_train_test_and_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_flowers(tmp_path / "flowers.csv")
    assert new("flowers", "--data", "flowers.csv") == 0
    told = capsys.readouterr().out
    assert "flowers.csv has numbers and a label: using --kind points\n" in told
    assert "  height  input  from 100 to 106, mean 1" in told
    assert "  note: column 'id' is not used: an id\n" in told
    assert "  alchemy predict latest --split test --out predictions.csv\n" in told
    monkeypatch.chdir(tmp_path / "flowers")
    assert main(["check", "train.toml", "--strict"]) == 0
    assert main(["run", "train.toml", "--test", "--device", "-1"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    assert [float(score) for score in re.findall(r"accuracy (\S+)", row)] == [1.0, 1.0]
    assert main(["predict", "latest", "--split", "test", "--out", "predictions.csv", "--device", "-1"]) == 0
    assert len((tmp_path / "flowers/predictions.csv").read_text().splitlines()) == 13  # 12 held out, and the header
    (tmp_path / "new.csv").write_text("height,width\n101,2\n103,53\n")
    assert main(["predict", "latest", "--file", "../new.csv", "--device", "-1"]) == 0
    assert re.findall('"pred_name": "(.*?)"', capsys.readouterr().out) == ["iris", "rose"]


def test_numbers_are_read_as_they_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_flowers(tmp_path / "train.txt", delimiter=";", header=False, blank=True)
    write_flowers(tmp_path / "dev.txt", delimiter=";", header=False)
    assert new("out", "--kind", "points", "--data", "train.txt", "dev.txt", "--label", "3") == 0
    assert "note: column '1' is not used: 1 cells are blank" in capsys.readouterr().out
    tables = tomllib.loads((tmp_path / "out/train.toml").read_text())["task"]["datasets"]
    assert tables["train"]["pipes"][1] == {
        "type": "CsvOpener", "delimiter": ";", "header": False, "fields": ["0", "1", "2", "3"],
    }  # fmt: skip
    assert tables["dev"]["pipes"] == {"SequenceWrapper": {"datapipe": ["../dev.txt"]}}
    monkeypatch.chdir(tmp_path / "out")
    assert main(["check", "train.toml", "--strict"]) == 0


def test_a_folder_stands_for_its_splits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, count in (("train.csv", 4), ("valid.csv", 2), ("notes.csv", 1)):
        (tmp_path / name).write_text("text,label\n" + "good one,a\nbad one,b\n" * count)
    assert new("out", "--data", ".", "--text", "0", "--label", "1") == 0
    assert "  dev: valid.csv, 4 rows\n" in capsys.readouterr().out
    data = tomllib.loads((tmp_path / "out/train.toml").read_text())["task"]["data"]
    assert (data["dev"], "test" in data) == ("../valid.csv", False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "--data", "none.csv"], "file not found: 'none.csv'"),
        (["x", "--data", "empty.csv"], "empty.csv is empty"),
        (["x", "--data", "binary.csv"], "binary.csv is not a text file"),
        (["x", "--data", "empty"], "empty has no data files with a known name"),
        (["x", "--data", "ids.csv"], "'label' has 20 values in 20 rows"),
        (["x", "--kind", "points", "--data", "ids.csv"], "ids.csv has no label column; available columns: text, label"),
        (["x", "--data", "good.csv", "--text", "text", "--label", "text"], "column 'text' is used twice"),
        (["x", "--data", "tags.csv"], "tags.csv: the labels B-PER, O are token tags; for --kind ner, write one token"),
        (["x", "good.csv"], "unexpected argument 'good.csv'; for data files, run alchemy new x --data good.csv"),
        (["good.csv"], "for data files, run alchemy new FOLDER --data good.csv"),
        (["x", "--data", "numbers.csv", "--label", "a"], "values in 20 rows, but --kind points is for classification"),
        (["x", "--data", "numbers.csv"], "numbers.csv has no label column; available columns: a, b; set the label"),
        (["x", "--kind", "ner", "--data", "ids.csv", "--label", "a"], "--label applies to --kind text, pairs, points"),
        (["x", "--label", "label"], "--label requires --data"),
        (["x", "--kind", "txt"], "'txt' is not a valid --kind; did you mean 'text'?"),
        (["x", "--data", "ids.csv", "--encoding", "utf8x"], "unknown encoding 'utf8x'"),
        (["there", "--data", "good.csv"], "there already contains train.toml"),
    ],
)  # fmt: skip
def test_mistakes_are_told_and_nothing_is_written(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    (tmp_path / "good.csv").write_text("text,label\n" + "good one,a\nbad one,b\n")
    (tmp_path / "ids.csv").write_text("text,label\n" + "".join(f"text {number},{number}\n" for number in range(20)))
    (tmp_path / "numbers.csv").write_text("a,b\n" + "".join(f"{number},{-number}\n" for number in range(20)))
    (tmp_path / "tags.csv").write_text("word,tag\n" + "Anna,B-PER\nruns,O\n" * 9)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "train.toml").write_text("mine")
    assert main(["new", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "there" / "train.toml").read_text() == "mine"


def test_a_reference_in_the_name_of_a_file_or_column_is_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"a fine film {i},good\na dull film {i},bad\n" for i in range(30))
    (tmp_path / "${optim.lr}.csv").write_text("${optim.lr},label\n" + rows)
    assert new("demo", "--data", "${optim.lr}.csv") == 0
    monkeypatch.chdir(tmp_path / "demo")
    assert main(["check", "train.toml", "--strict"]) == 0
    data = prepare_cfg("train.toml")["task"]["datasets"]["train"]["pipes"][0]
    assert (data["path"], data["text"]) == ("../${optim.lr}.csv", "${optim.lr}")


def test_a_pipe_and_a_line_without_end_are_refused_at_once(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.csv")
    assert new(tmp_path / "demo", "--data", tmp_path / "pipe.csv") == 2
    (tmp_path / "long.csv.gz").write_bytes(gzip.compress(b"text,label\n" + b"a" * 2**23))
    assert new(tmp_path / "demo", "--data", tmp_path / "long.csv.gz") == 2
    printed = capsys.readouterr().err
    assert "is a named pipe" in printed and "has a line of more than 4,194,304 bytes" in printed
    assert not (tmp_path / "demo").exists()


def test_a_name_that_is_too_long_is_one_error(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text,label\n" + "a fine film,good\na dull film,bad\n" * 9)
    assert new(tmp_path / ("x" * 300), "--data", tmp_path / "a.csv") == 2
    assert "File name too long" in capsys.readouterr().err
