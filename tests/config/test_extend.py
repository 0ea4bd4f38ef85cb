"""Splits that extend another, variants that compose, bases in variants, parts added from the command line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.config.check import check
from alchemy.config.extend import NOT_INHERITED, NOT_INHERITED_BY_PIPES
from alchemy.config.load import expand, explain, prepare_cfg
from alchemy.errors import ConfigError

SPLITS = """\
seed = 1
[task.datasets.train]
batch_size = 8
shuffle = true
drop_last = true
num_workers = 2
pipes = [
    { type = "alchemy.pipeline.itr.CsvOpener", path = "train.csv", encoding = "gbk" },
    { type = "alchemy.pipeline.itr.Shuffle", buffer_size = 100 },
    { type = "alchemy.pipeline.itr.Batch", batch_size = 4, drop_last = true },
]
[task.datasets.dev]
like = "train"
pipes.Shuffle = false
[task.datasets.dev.pipes.CsvOpener]
path = "dev.csv"
[task.datasets.test]
like = "dev"
num_workers = { delete = true }
batch_size = 64
pipes.CsvOpener.path = "test.csv"
pipes.Count = { type = "src.Count" }
[variant.more.task.datasets.dev]
num_workers = 4
pipes = { Batch = { delete = true }, CsvOpener = { encoding = { delete = true } } }
[variant.again.task.datasets.dev.pipes]
Shuffle = { buffer_size = 5 }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(SPLITS)
    return tmp_path


def split(doc, name):
    """Return a split without its pipes, and its pipes by name."""
    table = doc["task"]["datasets"][name].plain()
    pipes = {pipe.pop("type").rpartition(".")[2]: pipe for pipe in table.pop("pipes")}
    return table, pipes


def test_a_split_is_like_another_and_says_what_differs(folder):
    doc = prepare_cfg("a.toml")
    opener = {"path": "dev.csv", "encoding": "gbk"}
    assert split(doc, "dev") == ({"batch_size": 8, "num_workers": 2}, {"CsvOpener": opener, "Batch": {"batch_size": 4}})
    assert split(doc, "test") == (
        {"batch_size": 64},
        {"CsvOpener": opener | {"path": "test.csv"}, "Batch": {"batch_size": 4}, "Count": {}},
    )
    dev = doc["task"]["datasets"]["dev"]
    assert (dev.where("batch_size"), dev.where()) == ("a.toml:3", "a.toml:12")
    assert (dev["pipes"][0].where("path"), dev["pipes"][0].where("encoding")) == ("a.toml:16", "a.toml:8")
    assert explain(doc, "task.datasets.dev.pipes.CsvOpener.path").splitlines()[1:] == [
        "  from a.toml:16",
        '  overrode "train.csv" (a.toml:8)',
    ]


def test_what_is_like_another_follows_every_layer(folder):
    doc = prepare_cfg("a.toml#more", overrides=["task.datasets.train.batch_size=3"])
    assert split(doc, "dev") == ({"batch_size": 3, "num_workers": 4}, {"CsvOpener": {"path": "dev.csv"}})
    assert split(doc, "test")[1].keys() == {"CsvOpener", "Count"}
    assert split(prepare_cfg("a.toml#again"), "dev")[1]["Shuffle"] == {"buffer_size": 5}
    (folder / "b.toml").write_text('base = "a.toml"\n[task.datasets.train.pipes.Batch]\nbatch_size = 5\n')
    assert split(prepare_cfg("b.toml"), "test")[1]["Batch"] == {"batch_size": 5}


SETS = [
    ("task.datasets.dev.batch_size=9", lambda table, pipes: table["batch_size"] == 9),
    ("~task.datasets.dev.num_workers", lambda table, pipes: "num_workers" not in table),
    ("task.datasets.dev.shuffle=true", lambda table, pipes: table["shuffle"] is True),
    ("task.datasets.dev.pipes.CsvOpener.path=12", lambda table, pipes: pipes["CsvOpener"]["path"] == "12"),
    ("task.datasets.dev.pipes.Batch.batch_size=2", lambda table, pipes: pipes["Batch"] == {"batch_size": 2}),
    ("task.datasets.dev.pipes.Batch=false", lambda table, pipes: [*pipes] == ["CsvOpener"]),
    ("~task.datasets.dev.pipes.CsvOpener", lambda table, pipes: [*pipes] == ["Batch"]),
    ("task.datasets.dev.pipes.New={ type = 'src.New', n = 1 }", lambda table, pipes: pipes["New"] == {"n": 1}),
    ("task.datasets.dev.pipes=[{ type = 'src.New' }]", lambda table, pipes: pipes == {"New": {}}),
    ("task.datasets.train.pipes.New={ type = 'src.New' }", lambda table, pipes: [*pipes][-1] == "New"),
    ("task.datasets.train.pipes.Batch=false", lambda table, pipes: "Batch" not in pipes),
]


@pytest.mark.parametrize(("text", "holds"), SETS, ids=[text for text, _ in SETS])
def test_the_command_line_reaches_into_an_extended_split(text, holds, folder):
    assert holds(*split(prepare_cfg("a.toml", overrides=["~task.datasets.test", text]), "dev"))


def test_the_command_line_takes_like_back(folder):
    overrides = ["~task.datasets.test", "~task.datasets.dev.like", "~task.datasets.dev.pipes"]
    assert prepare_cfg("a.toml", overrides=overrides)["task"]["datasets"]["dev"] == {}


WRONG = [
    ("like = 'trian'", r"a.toml:3 \[task.datasets.dev\] like = 'trian': there is no such split; did you mean 'train'"),
    ("like = 3", "like = 3: there is no such split; available: train"),
    ("like = 'dev'", "like is circular: dev -> dev; break the cycle"),
    (
        "like = 'train'\npipes.Shufle = false",
        "the list task.datasets.dev.pipes has no 'Shufle'; did you mean",
    ),
    ("like = 'train'\nx = { delete = true }", "cannot delete task.datasets.dev.x: no such key"),
]


@pytest.mark.parametrize(("text", "match"), WRONG)
def test_a_wrong_like_is_told(text, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = "[task.datasets.train]\npipes = [{ type = 'src.Shuffle' }]\n"
    (tmp_path / "a.toml").write_text(f"seed = 1\n[task.datasets.dev]\n{text}\n{train}")
    with pytest.raises(ConfigError, match=match):
        prepare_cfg("a.toml")


def test_a_circle_is_told_once():
    splits = {"a": {"like": "b"}, "b": {"like": "c"}, "c": {"like": "a"}}
    with pytest.raises(ConfigError, match="circular: a -> b -> c -> a") as caught:
        prepare_cfg({"task": {"datasets": splits}})
    assert str(caught.value).count("is circular") == 1


def test_a_composed_deletion_removes_what_an_earlier_layer_adds():
    own = {"like": "train", "workers": 3, "pipes": {"New": {"type": "src.New"}}}
    gone = {"workers": {"delete": True}, "pipes": {"New": {"delete": True}}}
    splits = {"train": {"pipes": [{"type": "src.A"}]}, "dev": own}
    data = {"task": {"datasets": splits}, "variant": {"v": {"task": {"datasets": {"dev": gone}}}}}
    assert prepare_cfg(data, variant="v")["task"]["datasets"]["dev"] == {"pipes": [{"type": "src.A"}]}


KEYS = st.sampled_from(["batch_size", "num_workers", "shuffle", "drop_last", "max_tokens"])
PIPES = st.sampled_from(["src.A", "src.B", "src.C"])
TABLES = st.dictionaries(KEYS, st.integers(0, 9), max_size=4)
LISTS = st.lists(PIPES, unique=True, max_size=3)


@settings(deadline=None, max_examples=60)
@given(TABLES, st.dictionaries(PIPES, TABLES, max_size=3), TABLES, st.data())
def test_like_and_a_patch_are_what_one_would_write_out(train, pipes, own, data):
    patched = data.draw(st.dictionaries(st.sampled_from([*pipes] or ["src.A"]), TABLES | st.just(False), max_size=2))
    patched = {name: patch for name, patch in patched.items() if name in pipes}
    rows = [{"type": name, **keys} for name, keys in pipes.items()]
    dev = {"like": "train", **own, "pipes": {name.rpartition(".")[2]: patch for name, patch in patched.items()}}
    doc = prepare_cfg({"task": {"datasets": {"train": {**train, "pipes": rows}, "dev": dev}}})
    inherited = {key: value for key, value in train.items() if key not in NOT_INHERITED}
    written = [
        {k: v for k, v in row.items() if k not in NOT_INHERITED_BY_PIPES} | (patched.get(row["type"]) or {})
        for row in rows
        if patched.get(row["type"]) is not False
    ]
    assert doc["task"]["datasets"]["dev"].plain() == {**inherited, **own, "pipes": written}
    assert doc["task"]["datasets"]["train"].plain() == {**train, "pipes": rows}


# -- variants and bases
FAMILY = """\
seed = 1
dim = 1
lr = 1
depth = 1
[variant.wide]
dim = 2
[variant.sgd]
lr = 2
dim = 3
["variant"."a+b"]
lr = 7
[variant.deep]
base = "over.toml#d"
lr = 5
[variant.both]
base = ["f.toml#wide", "f.toml#sgd"]
"""


@pytest.fixture
def family(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.toml").write_text(FAMILY)
    (tmp_path / "over.toml").write_text("lr = 3\ndepth = 3\n[variant.d]\ndepth = 4\n")
    return tmp_path


def values(source, **options):
    doc = prepare_cfg(source, **options)
    return doc["dim"], doc["lr"], doc["depth"]


def test_variants_compose_from_left_to_right(family):
    assert values("f.toml#wide+sgd") == (3, 2, 1)
    assert values("f.toml#sgd+wide") == (2, 2, 1)
    assert values("f.toml", variant="sgd+wide") == (2, 2, 1)
    assert values("f.toml#a+b") == (1, 7, 1)
    doc = prepare_cfg("f.toml#wide+sgd")
    assert (doc.variant, doc.delta) == ("wide+sgd", {"dim": 3, "lr": 2})
    assert [doc.variant for doc in expand(["f.toml"], all_variants=True)] == ["wide", "sgd", "a+b", "deep", "both"]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("f.toml#wide+sdg", "f.toml unknown variant 'sdg'; did you mean 'sgd'"),
        ("f.toml#wide+", r"f.toml no variant is named in 'wide\+'; available: wide, sgd"),
        ("g.toml", "f.toml unknown variant 'wied'; did you mean 'wide'"),
        ("circle.toml#x", "circle.toml:2 base is circular: circle.toml#x -> circle.toml#y -> circle.toml#x"),
    ],
)
def test_a_wrong_variant_among_several_is_told(name, match, family):
    (family / "g.toml").write_text('base = "f.toml#sgd+wied"')
    (family / "circle.toml").write_text('[variant.x]\nbase = "circle.toml#y"\n[variant.y]\nbase = "circle.toml#x"\n')
    with pytest.raises(ConfigError, match=match):
        prepare_cfg(name)


def test_a_variant_may_have_bases(family):
    assert values("f.toml#deep") == (1, 5, 4)
    assert "base" not in prepare_cfg("f.toml#deep")
    assert values("f.toml#both") == (3, 2, 1)
    docs = expand(["f.toml#deep", "f.toml#deep"])
    assert [doc["depth"] for doc in docs] == [4, 4]


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ('["f.toml#wide", "f.toml#sgd"]', (3, 2, 1)),
        ('["f.toml#sgd", "f.toml#wide"]', (2, 2, 1)),
        ('"f.toml#sgd+wide"', (2, 2, 1)),
        ('["f.toml", "f.toml#wide"]', (2, 1, 1)),
        ('["f.toml#wide", "over.toml#d", "f.toml#sgd"]', (3, 2, 4)),
    ],
)
def test_a_file_that_is_named_twice_is_laid_once_with_all_its_variants(base, expected, family):
    (family / "top.toml").write_text(f"base = {base}\n")
    assert values("top.toml") == expected


def test_a_base_of_a_variant_that_is_in_the_file_already_adds_its_variant_alone(family):
    (family / "top.toml").write_text('base = "over.toml"\ndim = 1\nlr = 9\n[variant.v]\nbase = "over.toml#d"\n')
    assert values("top.toml#v") == (1, 9, 4)


def test_a_part_of_a_list_is_removed_with_false(family):
    plugins = [{"type": "src.A"}, {"type": "src.B"}]
    data = {"plugins": plugins, "variant": {"v": {"plugins": {"A": False}}}}
    assert prepare_cfg(data, variant="v")["plugins"] == [{"type": "src.B"}]
    doc = prepare_cfg({"plugins": plugins}, overrides=["plugins.A=false", "plugins.C={ type = 'src.C', n = 1 }"])
    assert doc["plugins"] == [{"type": "src.B"}, {"type": "src.C", "n": 1}]
    assert doc["plugins"][1].where("n") == "command line"
    with pytest.raises(ConfigError, match="the list plugins has no 'D'; it has A, B"):
        prepare_cfg({"plugins": plugins}, overrides=["plugins.D=false"])


def test_the_check_sees_the_splits_as_they_come_out(folder):
    said = [str(problem) for problem in check(prepare_cfg("a.toml")) if "src.Count" in problem.message]
    assert len(said) == 1 and said[0].startswith("a.toml:22 [task.datasets.test.pipes.2]")
