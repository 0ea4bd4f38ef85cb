"""Layers of a config: bases, body, variant, command line; each value knows its origin."""

import copy
import pickle
import subprocess
import sys

import pytest

from alchemy.config import dumps
from alchemy.config.check import check
from alchemy.config.load import diff, expand, explain, prepare_cfg, variants
from alchemy.config.override import parse_value
from alchemy.errors import AlchemyError, ConfigError

COMMON = """\
tag = "common"
plugins = [
    { type = "alchemy.plugins.BasicSetup" },
    { type = "alchemy.plugins.FileLogger", log_dir = "records", subdirs = ["a"] },
    { type = "alchemy.plugins.Seeding", seed = 3 },
]
[optim]
type = "alchemy.optim.AdamW"
lr = 0.1
betas = [0.9, 0.99]
"""
TRAIN = """\
base = ["common.toml"]
tag = "train"
log_every = 10
[plugins.FileLogger]
log_dir = "elsewhere"
[optim]
lr = 0.2
[variant.big]
optim.lr = 0.3
[variant.other]
plugins = { Seeding = { delete = true }, 0 = { quiet = true }, Mine = { type = "src.Mine" } }
[variant.anew.optim]
delete = "others"
type = "src.Optim"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "common.toml").write_text(COMMON)
    (tmp_path / "train.toml").write_text(TRAIN)
    return tmp_path


def names(doc):
    return [plugin["type"].rpartition(".")[2] for plugin in doc["plugins"]]


def test_a_file_is_laid_over_its_base(folder):
    doc = prepare_cfg("train.toml")
    assert "base" not in doc
    assert "variant" not in doc
    assert doc["optim"] == {"type": "alchemy.optim.AdamW", "lr": 0.2, "betas": [0.9, 0.99]}
    assert doc["plugins"][1] == {"type": "alchemy.plugins.FileLogger", "log_dir": "elsewhere", "subdirs": ["a"]}
    assert doc["optim"].where("lr") == "train.toml:7"
    assert doc["optim"].where("type") == "common.toml:8"


def test_a_variant_is_a_delta_on_the_body(folder):
    doc = prepare_cfg("train.toml#big")
    assert (doc["optim"]["lr"], doc.variant, doc.delta) == (0.3, "big", {"optim": {"lr": 0.3}})
    assert variants("train.toml") == ["big", "other", "anew"]
    other = prepare_cfg("train.toml", variant="other")
    assert names(other) == ["BasicSetup", "FileLogger", "Mine"]
    assert other["plugins"][0]["quiet"] is True
    assert prepare_cfg("train.toml#anew")["optim"] == {"type": "src.Optim"}


def test_a_base_may_be_a_variant_and_lie_elsewhere(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "a#b.toml").write_text("base = '../train.toml#big'\ntag = 'sub'")
    doc = prepare_cfg("sub/a#b.toml")
    assert (doc["tag"], doc["optim"]["lr"]) == ("sub", 0.3)
    assert doc["optim"].where("betas") == "sub/../common.toml:10"


def test_everything_that_is_wrong_is_said_at_once(folder):
    (folder / "bad.toml").write_text('tag = "x"\nbase = ["comon.toml", "loop.toml"]\n[optim]\nlr = { delete = true }\n')
    (folder / "loop.toml").write_text("\nbase = 'bad.toml'\n")
    with pytest.raises(ConfigError, match="config file not found") as caught:
        prepare_cfg("bad.toml#v", overrides=["optm.lr=1", "nonsense"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "bad.toml:2 config file not found: 'comon.toml'; did you mean 'common.toml'?"
    assert lines[1] == "loop.toml:2 base is circular: bad.toml -> loop.toml -> bad.toml; break the cycle"
    assert lines[2].startswith("bad.toml:4 cannot delete optim.lr: no such key")
    assert lines[3].startswith("bad.toml unknown variant 'v'; the file has no [variant.NAME] tables")
    assert lines[4] == "--set optm.lr=1 the config has no 'optm'; did you mean 'optim'?"
    assert lines[5] == "--set nonsense expected key=value; for example, optim.lr=0.001"


PATCHES = [
    ("optim.lr=1", lambda doc: doc["optim"]["lr"] == 1.0 and isinstance(doc["optim"]["lr"], float)),
    ("log_every=1e3", lambda doc: doc["log_every"] == 1000 and isinstance(doc["log_every"], int)),
    ("tag=12", lambda doc: doc["tag"] == "12"),
    ("tag=two words", lambda doc: doc["tag"] == "two words"),
    ('tag=""', lambda doc: doc["tag"] == ""),
    ("optim.betas=[0.5, 0.6]", lambda doc: doc["optim"]["betas"] == [0.5, 0.6]),
    ("optim.betas.1=0.5", lambda doc: doc["optim"]["betas"] == [0.9, 0.5]),
    ("optim.eps=none", lambda doc: doc["optim"]["eps"] is None),
    ("optim.flag=True", lambda doc: doc["optim"]["flag"] is True),
    ("optim={ type = 'x' }", lambda doc: doc["optim"] == {"type": "x"}),
    ("plugins.FileLogger.log_dir=x", lambda doc: doc["plugins"][1]["log_dir"] == "x"),
    ("plugins.1.log_dir=x", lambda doc: doc["plugins"][1]["log_dir"] == "x"),
    ('plugins."alchemy.plugins.FileLogger".log_dir=x', lambda doc: doc["plugins"][1]["log_dir"] == "x"),
    ("~plugins.FileLogger", lambda doc: names(doc) == ["BasicSetup", "Seeding"]),
    ("~optim.betas", lambda doc: "betas" not in doc["optim"]),
    ("optim.betas={ delete = true }", lambda doc: "betas" not in doc["optim"]),
    ("checkpoint.every=5", lambda doc: doc["checkpoint"] == {"every": 5}),
    ("seed=9", lambda doc: doc["seed"] == doc["plugins"][2]["seed"] == 9),
]


@pytest.mark.parametrize(("text", "holds"), PATCHES, ids=[text for text, _ in PATCHES])
def test_the_command_line_has_the_last_word(text, holds, folder):
    assert holds(prepare_cfg("train.toml", overrides=[text]))


WRONG = [
    ("optim.lr=abc", "expected a number such as 0.2, got 'abc'"),
    ("optim.lr=true", "expected a number such as 0.2, got 'true'"),
    ("tag=", "no value after '='"),
    ("=1", "expected key=value"),
    ("task.datasets.train.x=1", r"\[task\] has no 'datasets'"),
    ("optim=3", "optim is a table; set one of its keys: type, lr"),
    ("plugins=3", "plugins is a list"),
    ("plugins.FileLoger.log_dir=x", "the list plugins has no 'FileLoger'; did you mean 'FileLogger'"),
    ("plugins.7.x=1", "the list plugins has no '7'"),
    ("optim.lr.x=1", "optim.lr is a value and has no keys"),
    ("~optim.beta", r"\[optim\] has no 'beta'; did you mean 'betas'"),
    ("seed=-1", r"seed must be an integer from 0 to 2\*\*63 - 1, not -1"),
    ("seed=99999999999999999999999", r"command line seed must be an integer from 0 to 2\*\*63 - 1, not 9+"),
    ('base=["x"]', "base is read before overrides are applied; write a config with that base"),
    ("~base", "base is read before overrides are applied"),
    ("variant.big.optim.lr=1", "variant is read before overrides are applied; name the variant after the file"),
    ("variant=big", "variant is read before overrides are applied"),
]


@pytest.mark.parametrize(("text", "match"), WRONG)
def test_an_override_that_cannot_be_meant_is_refused(text, match, folder):
    with pytest.raises(ConfigError, match=match):
        prepare_cfg("train.toml", overrides=[text])


def test_a_key_that_nobody_takes_is_for_the_check_to_tell():
    doc = prepare_cfg({"optim": {"type": "torch.optim.AdamW", "betas": [0, 1]}}, overrides=["optim.betass=[1]"])
    assert doc.notes == []
    assert "command line [optim] AdamW has no option 'betass'; did you mean 'betas'?" in map(str, check(doc))
    assert parse_value("1", True) is True


def test_a_table_tells_what_the_command_line_has_set_in_it(folder):
    doc = prepare_cfg("train.toml", overrides=["optim.lr=7", "task.a={ b = 1 }"])
    assert doc["optim"].where().endswith(" and the command line (lr)")
    assert doc["optim"].where("lr") == "command line" and "command line" not in doc["optim"].where("betas")


def test_a_key_of_ones_own_called_variant_can_be_set():
    assert prepare_cfg({"variant": "a"}, overrides=["variant=b"])["variant"] == "b"


@pytest.mark.parametrize("source", ["train.toml#", "over.toml"])
def test_an_empty_variant_is_refused(source, folder):
    (folder / "over.toml").write_text("base = 'train.toml#'")
    for load in (prepare_cfg, lambda name: expand([name], all_variants=True)):
        with pytest.raises(ConfigError, match=r"train.toml no variant is named after '#'; available: big, other, anew"):
            load(source)


def test_a_seed_of_the_command_line_is_bounded(folder):
    assert expand(["train.toml"], seeds=[2**63 - 1])[0]["seed"] == 2**63 - 1
    with pytest.raises(
        ConfigError, match=r"command line seed must be an integer from 0 to 2\*\*63 - 1, not 9223372036854775808"
    ):
        expand(["train.toml"], seeds=[2**63])


def test_two_parts_of_one_name_want_a_number(folder):
    with pytest.raises(ConfigError, match=r"pipes has 2 parts named A; write pipes\.0 or pipes\.1"):
        prepare_cfg({"pipes": [{"type": "x.A"}, {"type": "y.A"}]}, overrides=["pipes.A.k=1"])


def test_every_value_tells_its_story(folder):
    doc = prepare_cfg("train.toml#big", overrides=["optim.lr=0.5"])
    assert explain(doc, "optim.lr").splitlines() == [
        "optim.lr = 0.5",
        "  from command line",
        "  overrode 0.3 (train.toml:9)",
        "  overrode 0.2 (train.toml:7)",
        "  overrode 0.1 (common.toml:9)",
    ]
    assert "default of alchemy.optim.AdamW (" in explain(doc, "optim.weight_decay")
    assert "from train.toml:5" in explain(doc, "plugins.FileLogger.log_dir")
    with pytest.raises(AlchemyError, match=r"the config has no 'optm'; did you mean 'optim'"):
        explain(doc, "optm.lr")


def test_a_table_that_names_no_type_has_the_defaults_of_the_usual_part():
    assert explain(prepare_cfg({"checkpoint": {"best": 3}}), "checkpoint.last").startswith(
        "checkpoint.last = 1\n  default of alchemy.checkpoint.keeper.Checkpoints ("
    )


def test_differences_are_told_and_identity_said_in_words(folder):
    one, other = prepare_cfg("train.toml"), prepare_cfg("train.toml#big", overrides=["~log_every"])
    assert diff(one, other).splitlines() == [
        "optim.lr: 0.2 (train.toml:7) -> 0.3 (train.toml:9)",
        "log_every: only in train.toml: 10 (train.toml:3)",
    ]
    assert diff(one, one).startswith("identical: train.toml and train.toml")
    drawn = [prepare_cfg({"a": 1}), prepare_cfg({"a": 1})]
    assert diff(*drawn).endswith("each draws its own seed")


def test_one_command_becomes_many_runs(folder):
    docs = expand(["train.toml", "common.toml"], all_variants=True, seeds=[1, 2])
    assert [(doc.path, doc.variant, doc["seed"]) for doc in docs] == [
        *[("train.toml", name, seed) for name in ("big", "other", "anew") for seed in (1, 2)],
        ("common.toml", "", 1),
        ("common.toml", "", 2),
    ]
    assert [doc.variant for doc in expand(["train.toml#big"], all_variants=True)] == ["big"]
    with pytest.raises(ConfigError, match=r"(?s)config file not found: 'a.toml'.*config file not found: 'b.toml'"):
        expand(["a.toml", "b.toml"])


def test_a_document_can_be_copied_sent_and_prepared_again(folder):
    doc = prepare_cfg("train.toml#big")
    for twin in (copy.deepcopy(doc), pickle.loads(pickle.dumps(doc)), prepare_cfg(doc)):
        assert twin == doc
        assert (twin.variant, twin.path, twin["optim"].where("lr")) == ("big", "train.toml", "train.toml:9")
        twin["optim"]["lr"] = 5
        assert doc["optim"]["lr"] == 0.3


def test_reading_changes_nothing(folder):
    doc = prepare_cfg("train.toml#big", seed=1)
    text, state, twin = dumps(doc), pickle.dumps(doc), copy.deepcopy(doc)
    doc.get("nothing"), doc["optim"].get("lr"), doc["plugins"][0]["type"], "x" in doc, dict(doc["optim"].items())
    assert (dumps(doc), pickle.dumps(doc)) == (text, state)
    assert doc == twin


def test_old_spellings_are_read_with_one_warning():
    seeding = {"type": "alchemy.plugins.Seeding", "seed": 1, "use_determininstic_algorithms": True}
    doc = prepare_cfg(
        {
            "plugins": [seeding],
            "sched": {"type": "alchemy.sched.LineWarmup", "lr_warmup_steps": 5, "epochs": 1},
        }
    )
    assert list(doc["sched"].items()) == [("type", "alchemy.sched.LineWarmup"), ("num_warmup_steps", 5), ("epochs", 1)]
    assert doc["plugins"][0]["use_deterministic_algorithms"] is True
    assert [note.error for note in doc.notes] == [False] * 2
    assert "[sched] 'lr_warmup_steps' is the old name of 'num_warmup_steps'; its value 5 is used" in str(doc.notes[0])


def test_an_override_in_the_old_spelling_goes_before_the_file():
    table = {"type": "alchemy.sched.LineWarmup", "num_warmup_steps": 10, "epochs": 1}
    assert prepare_cfg({"sched": table}, overrides=["sched.lr_warmup_steps=5"])["sched"]["num_warmup_steps"] == 5


@pytest.mark.parametrize(
    ("base", "child", "variant", "steps"),
    [
        ("num_warmup_steps = 10", "lr_warmup_steps = 5", "", 5),
        ("lr_warmup_steps = 10", "num_warmup_steps = 5", "", 5),
        ("lr_warmup_steps = 10", "num_warmup_steps = 5", "lr_warmup_steps = 3", 3),
        ("lr_warmup_steps = 10", "num_warmup_steps = { delete = true }", "", None),
        ("num_warmup_steps = 10", "lr_warmup_steps = { delete = true }", "", None),
    ],
)
@pytest.mark.parametrize("part", ["alchemy.sched.LineWarmup", "src.sched.Mine"])
def test_the_later_layer_wins_in_either_spelling(base, child, variant, steps, part, tmp_path):
    (tmp_path / "base.toml").write_text(f"[sched]\ntype = '{part}'\n{base}\n")
    (tmp_path / "child.toml").write_text(f"base = 'base.toml'\n[sched]\n{child}\n[variant.v.sched]\n{variant}\n")
    doc = prepare_cfg(tmp_path / "child.toml", variant="v")
    assert doc["sched"].get("num_warmup_steps") == steps
    assert doc["sched"].get("lr_warmup_steps", steps) == steps
    assert ("lr_warmup_steps" in doc["sched"]) == (part.startswith("src.") and steps is not None)
    assert [note.where for note in prepare_cfg(doc).notes if part.startswith("alchemy")] == []


def test_every_old_spelling_is_told_where_it_stands(tmp_path):
    (tmp_path / "base.toml").write_text("plugins = [{ type = 'a.Seeding', use_determininstic_algorithms = true }]")
    text = "base = 'base.toml'\n[plugins.Seeding]\nuse_determininstic_algorithms = false"
    (tmp_path / "child.toml").write_text(text)
    doc = prepare_cfg(tmp_path / "child.toml")
    assert doc["plugins"][0]["use_deterministic_algorithms"] is False
    earlier, later = map(str, doc.notes)
    assert "base.toml:1 [plugins.0]" in earlier and "its value true is used" in earlier
    assert "child.toml:3 [plugins.Seeding]" in later and "its value false is used" in later
    both = {"type": "alchemy.sched.LineWarmup", "num_warmup_steps": 2, "lr_warmup_steps": 5}
    assert "'num_warmup_steps' is also set and used" in str(prepare_cfg({"sched": both}).notes[0])


def test_a_part_of_a_project_keeps_the_old_name_beside_the_new():
    doc = prepare_cfg({"sched": {"type": "src.sched.Mine", "lr_warmup_steps": 5}})
    assert doc["sched"] == {"type": "src.sched.Mine", "num_warmup_steps": 5, "lr_warmup_steps": 5}


def test_loading_imports_neither_torch_nor_tomlkit(folder):
    code = "import sys; from alchemy.config.load import prepare_cfg; prepare_cfg('train.toml')"
    code += "; print({'torch', 'tomlkit', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
