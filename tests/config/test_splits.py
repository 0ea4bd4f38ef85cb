"""`[task.data]`: its expansion, its overrides, and the location of reported mistakes."""

import textwrap

import pytest

from alchemy.config.check import check
from alchemy.config.load import explain, prepare_cfg
from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes

HEAD = """\
tag = "t"
runner = "alchemy.runner.Trainer"
plugins = []
[task]
type = "{task}"
tokenizer = "alchemy.text.Words"
[model]
type = "alchemy.models.TextClassifier"
encoder = {{ type = "alchemy.models.encoders.Embedding", dim = 4 }}
[optim]
type = "alchemy.optim.AdamW"
lr = 0.1
[sched]
type = "alchemy.sched.Constant"
epochs = 1
[task.data]
"""
FIRST = HEAD.count("\n") + 1  # the line of the first key of [task.data]


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.csv").write_text("title,label\n" + "".join(f"text {i},a\n" for i in range(50)), "utf-8")

    def write(body, task="alchemy.tasks.Classification", **options):
        (tmp_path / "f.toml").write_text(HEAD.format(task=task) + textwrap.dedent(body), "utf-8")
        return prepare_cfg("f.toml", **options)

    return write


def test_a_sampler_is_for_training_alone(load):
    splits = load('train = "train.csv"\ndev = 0.1\nbatch_sampler = { type = "src.S" }\n')["task"]["datasets"]
    assert "batch_sampler" in splits["train"] and "max_sentences" not in splits["train"]
    assert "batch_sampler" not in splits["dev"] and "max_sentences" in splits["dev"]


def test_settings_said_once_reach_every_split(load):
    doc = load(
        'train = "train.csv"\ndev = "dev.csv"\ntext = "title"\nbatch_size = 8\nnum_workers = 1\nshuffle = false\n'
    )
    kind = "alchemy.pipeline.processors.TextClassification"
    assert doc["task"]["datasets"] == {
        "train": {
            "max_sentences": 8,
            "num_workers": 1,
            "shuffle": False,
            "pipes": [{"type": kind, "path": "train.csv", "text": "title"}],
        },
        "dev": {"max_sentences": 16, "num_workers": 1, "pipes": [{"type": kind, "path": "dev.csv", "text": "title"}]},
    }
    assert "data" not in doc["task"]
    assert doc["sched"]["pipes"] == [{"type": "alchemy.pipeline.sched.EvalEEPipeline", "period": 1}]
    assert check(doc) == []
    assert f"from f.toml:{FIRST + 2}" in explain(doc, "task.datasets.dev.pipes.0.text")


def test_shares_partition_the_training_data(load):
    doc = load('train = "train.csv"\ndev = 0.1\ntest = 0.2\ntext = "title"\n')
    splits = {name: build_datapipes(table["pipes"]) for name, table in doc["task"]["datasets"].items()}
    texts = {name: [pipe[i]["text"] for i in range(len(pipe))] for name, pipe in splits.items()}
    assert {name: len(found) for name, found in texts.items()} == {"train": 35, "dev": 5, "test": 10}
    assert len({text for found in texts.values() for text in found}) == 50


def test_a_split_may_differ(load):
    doc = load("""
        train = "train.csv"
        dev = "dev.csv"
        test = { path = "test.csv", label = "" }
        text = "title"
        [task.datasets.dev]
        batch_size = 4
        [task.datasets.train.pipes.TextClassification]
        bad = "skip"
        [task.datasets.more]
        pipes = []
        """)
    train, dev, test, more = doc["task"]["datasets"].values()
    assert train["pipes"][0]["bad"] == "skip"
    assert dev["batch_size"] == 4
    assert "max_sentences" not in dev
    assert test["pipes"][0]["label"] == ""
    assert more == {"pipes": []}


def test_the_command_line_and_a_schedule_with_pipes_have_the_last_word(load):
    body = 'train = "train.csv"\ndev = "dev.csv"\ntext = "title"\n'
    doc = load(body, overrides=["task.data.dev=0.2", "sched.pipes=[]", "task.data.batch_size=4"])
    assert doc["task"]["datasets"]["dev"]["pipes"][1]["share"] == 0.2
    assert doc["task"]["datasets"]["train"]["max_sentences"] == 4
    assert doc["sched"]["pipes"] == []


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ('train = "train.csv"\ntexd = "title"', 1, "has an option 'texd'; did you mean 'text'?"),
        (
            'trian = "train.csv"',
            -1,
            "no files are given: set at least one of train, dev, test, inference; did you mean 'train'?",
        ),
        ('train = "train.csv"\ndve = 0.1', 1, "has an option 'dve'; did you mean 'dev'?"),
        ('train = "train.csv"\ndev = 10', 1, "dev = 10 is neither a path nor a share; write a path, or a share of"),
        ('train = "train.csv"\ndev = 0.5\ntest = 0.5', 2, "dev and test hold out 100% of the training data"),
        ("dev = 0.1", 0, "is a share of the training data, but no training file is given"),
        ('train = "train.csv"\ndev = true', 1, "dev must be a path, not true"),
        ('train = "train.cvs"\ndev = 0.1', 0, "file not found: 'train.cvs'; did you mean 'train.csv'?"),
        ('train = "."\ndev = 0.1', 0, "expected a file, but '.' is a folder; try './*'"),
        ('train = "train.csv"\ndev = 0.1\nkind = "one"', 2, "TextClassification: kind must be"),
        ('train = "train.csv"\nbatch_size = 0', 1, "batch_size must be at least 1, not 0"),
        ('train = "train.csv"\nprocessor = "alchemy.pipeline.processors.Text"', 1, "unknown type"),
    ],
)
def test_a_mistake_is_reported_once_at_its_line(load, body, line, message):
    problems = [problem for problem in check(load(body)) if message in str(problem)]
    assert [(p.where, p.section) for p in problems] == [(f"f.toml:{FIRST + line}", "task.data")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'processor = "TextClasification"\ntrain = "train.csv"\ndev = 0.1\n',
            "no data pipe 'TextClasification'; did you",
        ),
        ('text = "title"\n', "no files are given"),
    ],
)
def test_data_that_cannot_be_read_is_not_reported_as_missing_too(load, body, message):
    (problem,) = check(load(body))
    assert message in str(problem)


def test_a_task_without_a_processor(load, tmp_path):
    problems = check(load('train = "train.csv"\n', task="alchemy.task.DefaultTask"))
    assert any("DefaultTask does not define how to read the files; add processor" in str(p) for p in problems)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__init__.py").write_text("")
    source = "from alchemy.{0} import {1}\nclass Mine({1}):\n    pass\n"
    (tmp_path / "src" / "own.py").write_text(source.format("task", "DefaultTask"))
    assert load('train = "train.csv"\n', task="src.own.Mine")["task"]["data"] == {"train": "train.csv"}
    (tmp_path / "src" / "ready.py").write_text(source.format("tasks", "Tagging"))
    table = load('train = "train.csv"\n', task="src.ready.Mine")["task"]["datasets"]["train"]
    assert table["pipes"][0]["type"] == "alchemy.pipeline.processors.Tagging"


def test_what_the_task_and_its_processor_agree_on_is_said_once(load):
    doc = load('train = "train.csv"\nkind = "multi"\npair = "title"\n')
    assert (doc["task"]["kind"], doc["task"]["pair"]) == ("multi", True)
    doc = load('train = "train.csv"\n', overrides=["task.kind=regression"])
    assert doc["task"]["datasets"]["train"]["pipes"][0]["kind"] == "regression"
    assert "kind" not in load('train = "train.csv"\n')["task"]["datasets"]["train"]["pipes"][0]
    with pytest.raises(AlchemyError, match=r"use task\.datasets\.train"):
        explain(doc, "task.data.kind")


@pytest.mark.parametrize(("dev", "warns"), [('"train.csv"', True), ('"dev.csv"', False), ("0.1", False)])
def test_a_dev_split_of_the_training_data_is_warned_about(load, dev, warns):
    found = check(load(f'train = "train.csv"\ndev = {dev}\ntext = "title"\n'))
    told = [str(problem) for problem in found if "same samples as train" in problem.message]
    assert told == ([f"f.toml:{FIRST + 1} [task.data] {SAME}"] if warns else [])


SAME = (
    "dev reads the same samples as train: its scores do not measure generalization; use a different file, or hold out "
    "a share of the training data: dev = 0.1"
)
