"""The check reports all problems of a config, each with its line and a fix."""

import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.config.check import check, raise_if_wrong
from alchemy.config.load import prepare_cfg
from alchemy.errors import ConfigError, Problem

PROJECT = str(Path(__file__).parent / "project")

GOOD = Path(__file__).with_name("good.toml").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A working folder with the data of the valid config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.txt").write_text("one\ntwo\n")


def problems_of(text: str, *, strict: bool = False) -> list[Problem]:
    Path("train.toml").write_text(text, encoding="utf-8")
    try:
        return check(prepare_cfg("train.toml"), strict=strict, roots=[PROJECT, "."])
    except ConfigError as error:  # errors found while loading stop the check
        return error.problems


def lines_with(text: str, mark: str) -> list[str]:
    return [f"train.toml:{n}" for n, line in enumerate(text.splitlines(), 1) if mark in line]


def edited(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new, 1)


def test_good_config_has_no_problem():
    assert problems_of(GOOD) == []


MORE = {
    "stop rules": """
[stop]
any = [
    { type = "alchemy.stop.Patience", monitor = "dev/f1", patience = 5 },
    { type = "alchemy.stop.Epochs", epochs = 2.5 },
    { type = "alchemy.stop.Divergence", limit = 9 },
    { type = "alchemy.stop.Target", monitor = "train/loss", mode = "min", value = 0.1 },
]
all = [{ type = "alchemy.stop.Time", hours = 2 }, { type = "alchemy.stop.Tokens", tokens = 1e9 }]
""",
    "checkpoints": '[checkpoint]\nmonitor = "dev/f1"\nbest = 3\nevery = { updates = 500, minutes = 9.5 }\n',
    "every": "[checkpoint]\nevery = 500\nenabled = false\n",
    "precision": '[precision]\ndtype = "bf16"\nrecompute = ["encoder.*"]\ncompile = { mode = "default" }\n',
    "average": "[ema]\ndecay = 0.99\n",
    "plain average": '[ema]\ntype = "alchemy.average.SWA"\nstart = 0.5\n',
    "capture": '[capture]\nmodules = ["layers.*"]\nexamples = 2\n',
    "shared model": "[ddp]\nfind_unused_parameters = false\n",
    "no rules": "[stop]\nany = []\n",
}


@pytest.mark.parametrize("text", MORE.values(), ids=MORE)
def test_good_additions_have_no_problem(text):
    assert problems_of(GOOD + text) == []


def test_stop_rules_can_say_how_long_to_train():
    text = edited("epochs = 3\n", "") + MORE["stop rules"]
    assert problems_of(text) == []


def test_several_optimizers_each_with_its_parameters():
    first = '[optim.first]\ntype = "alchemy.optim.SGD"\nparams = ["encoder.*", "pool.*"]\nlr = 1\n'
    assert problems_of(edited("[optim]", f"{first}\n[optim.second]\nparams = 'head'")) == []


WRONG = tomllib.loads(Path(__file__).with_name("wrong.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", WRONG)
def test_wrong_config(case):
    row = WRONG[case]
    if case == "module that does not parse":
        Path("broken.py").write_text("def broken(:\n")
    text = edited(row["old"], row["new"])
    found = [p for p in problems_of(text) if row["message"] in str(p)]
    assert found, "\n".join(map(str, problems_of(text)))
    assert found[0].error is not row.get("warns", False)
    assert not row["mark"] or found[0].where in lines_with(text, row["mark"])


def test_infinite_clipping_measures_the_norm_and_is_allowed():
    assert problems_of(edited("max_grad_norm = 1.0", "max_grad_norm = inf")) == []


def test_all_at_once_and_in_order():
    text = edited("hidden = 64", "hiden = 64").replace('tag = "reviews"', "tag = 1").replace("period = 2", "period = 0")
    found = [p.where for p in problems_of(text) if p.error]
    marks = ("tag", "[model]", "hiden", "period = 0")
    assert found == [line for mark in marks for line in lines_with(text, mark)]


def test_raise_if_wrong_names_everything():
    Path("bad.toml").write_text(edited("hidden = 64", "hiden = 64"))
    with pytest.raises(ConfigError, match="did you mean 'hidden'") as error:
        raise_if_wrong(prepare_cfg("bad.toml"), roots=[PROJECT])
    assert len(error.value.problems) == 2


OLD = (
    GOOD.replace("src.models.Mlp", "src.models.Tagger")
    .replace("alchemy.task.DefaultTask", "src.tasks.Ner")
    .replace("[task.datasets.train]", "labels = ['x']\nlongest = 9\n\n[task.datasets.train]\nlowercase = true")
    .replace("lr = 0.001", "lr = 0.001\nhead_lr = 0.1")
    .replace("dropout = 0\n", "")
)


def test_old_style_keys_are_found_in_the_source():
    assert problems_of(OLD) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden = 64", "hiden = 64", "'hiden' is not used in the source of AlchemyTagger"),
        ("longest = 9", "longst = 9", "'longst' is not used in the source of NerTask"),
        ("store_history", "store_histroy", "'store_histroy' is not used in the source of Score"),
        ("lowercase = true", "bach_size = 3", "in the source of NerTask; did you mean 'batch_size'?"),
    ],
)
def test_unread_key_of_an_old_part_is_a_warning_and_strict_an_error(old, new, message):
    assert old in OLD
    text = OLD.replace(old, new)
    assert [p.error for p in problems_of(text) if message in str(p)] == [False]
    assert [p.error for p in problems_of(text, strict=True) if message in str(p)] == [True]


def test_task_that_brings_its_own_data_needs_no_dataset():
    text = GOOD.replace("alchemy.task.DefaultTask", "src.tasks.Direct").replace("datasets.train", "datasets.more")
    assert [p.error for p in problems_of(text) if "datasets.train" in str(p)] == [False]


def test_sections_that_the_runner_does_not_need_are_allowed():
    text = GOOD.replace("runner.Trainer", "runner.Tester").replace("datasets.dev", "datasets.test")
    found = [p for p in problems_of(text) if p.error]
    assert [p.where for p in found] == lines_with(text, "EvalEpoch")
    assert "evaluates the split 'dev', which has no dataset" in str(found[0])


def test_equal_variants_are_warned_about():
    text = GOOD + "\n[variant.a]\nmodel.hidden = 3\n\n[variant.b]\nmodel.hidden = 3\n\n[variant.c]\nmodel.hidden = 64\n"
    found = [str(p) for p in problems_of(text)]
    assert [f.partition(" ")[0] for f in found] == [*lines_with(text, "[variant.b]"), *lines_with(text, "[variant.c]")]
    assert "the variant 'b' resolves to the same config as the variant 'a'" in found[0]


@pytest.mark.parametrize("old", [GOOD, OLD], ids=["new", "old"])
def test_checking_does_not_change_the_tree(old):
    Path("train.toml").write_text(old)
    doc = prepare_cfg("train.toml")
    before = pickle.dumps(doc)
    check(doc, roots=[PROJECT])
    assert pickle.dumps(doc) == before


def test_notes_of_loading_are_part_of_the_result():
    text = GOOD.replace("num_warmup_steps", "lr_warmup_steps")
    assert any("lr_warmup_steps" in str(p) and not p.error for p in problems_of(text))


def test_neither_torch_nor_the_project_is_imported():
    Path("train.toml").write_text(GOOD)
    code = f"""
import sys
from alchemy.config.load import prepare_cfg
from alchemy.config.check import check
assert check(prepare_cfg("train.toml"), roots=[{PROJECT!r}]) == []
heavy = {{"torch", "numpy", "src", "alchemy.plugins", "alchemy.pipeline", "rich"}} & set(sys.modules)
assert not heavy, heavy
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0


@pytest.mark.parametrize("name", ["train.toml", "new.toml", "mytask.toml"])
def test_old_projects_pass(name, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1] / "clients" / "ner")
    assert [str(p) for p in check(prepare_cfg(name)) if p.error] == []


# -- any other input must end in problems, never in a traceback

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=8),
    st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.sampled_from(["type", "pipes"]), st.integers(), max_size=2),
)  # fmt: skip


def spots(value, path=()):
    """Return every path in a tree of dicts and lists."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in rows:
        yield (*path, key)
        yield from spots(item, (*path, key))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_configs_never_end_in_a_traceback(data):
    tree = prepare_cfg(Path("good.toml") if Path("good.toml").write_text(GOOD) else "").plain()
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(list(spots(tree))))
        owner = tree
        for key in path[:-1]:
            owner = owner[key]
        match data.draw(st.sampled_from(["drop", "rename", "retype"])):
            case "drop":
                del owner[path[-1]]
            case "rename" if isinstance(owner, dict):
                owner[data.draw(st.text(max_size=6))] = owner.pop(path[-1])
            case _:
                owner[path[-1]] = data.draw(VALUES)
        if not tree:
            break
    try:
        problems = check(prepare_cfg(tree), roots=[PROJECT])
    except ConfigError as error:
        problems = error.problems
    assert all(str(problem) for problem in problems)


def test_the_defaults_in_effect_are_listed() -> None:
    from alchemy.config.defaults import render_defaults

    doc = prepare_cfg(
        {"optim": {"type": "alchemy.optim.AdamW", "lr": 0.1}, "sched": {"type": "alchemy.scheduler.NoamScheduler"}}
    )
    lines = render_defaults(doc).splitlines()
    assert lines[0].startswith("optim AdamW: weight_decay = 0.01, betas = (0.9, 0.999)")
    assert lines[1].startswith("sched Noam: num_warmup_steps = 0, factor = 1.0, model_size = None, epochs = None")


def test_a_part_that_only_the_registry_knows_is_no_error() -> None:
    from alchemy.pipeline import EvalPipeline

    made = type("Made", (EvalPipeline,), {"__module__": "tests.toy"})
    task = {"type": "alchemy.task.DefaultTask", "evalpipes": [{"type": "tests.toy.Made"}]}
    assert any("Made" in str(problem) for problem in check(prepare_cfg({"task": task}), roots=(os.getcwd(),)))
    EvalPipeline.register()(made)
    assert not any("Made" in str(problem) for problem in check(prepare_cfg({"task": task}), roots=(os.getcwd(),)))


# -- what the builder rejects and accepts


OWN = """
import torch
from torch import nn


class Mine(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})


class Net(nn.Module):
    def __init__(self, size: int, act: str = "relu"):
        super().__init__()


class Clash(nn.Module):
    def __init__(self, size: int, load: str = ""):
        super().__init__()


class Thing:
    def __init__(self, size: int):
        self.size = size


def make(size: int) -> nn.Module:
    return Net(size)
"""
MLP = 'type = "src.models.Mlp"\nhidden = 64\ndropout = 0\n'
ADAMW = 'type = "torch.optim.AdamW"\nlr = 0.001\nbetas = [0.9, 0.98]\n'
DEV = '"alchemy.pipeline.lst.SequenceWrapper", datapipe = ["data/train.txt"]'
OPENER = '"alchemy.pipeline.openers.LineOpener", datapipe = '

ACCEPTED = {
    "own optimizer": (ADAMW, 'type = "own.Mine"\nlr = 0.001\n'),
    "plain module": (MLP, 'type = "own.Net"\nsize = 4\ninputs = { x = "y" }\noutputs = ["a"]\nfreeze = "b"\n'),
    "function that returns a module": (MLP, 'type = "own.make"\nsize = 4\n'),
    "module of torch": (MLP, 'type = "torch.nn.Linear"\nin_features = 4\nout_features = 2\n'),
    "class of samplers": ("batch_size = 4", 'batch_size = 4\nsampler = "torch.utils.data.RandomSampler"'),
    "table of a sampler": (
        "batch_size = 4",
        'batch_size = 4\nsampler = { type = "torch.utils.data.RandomSampler", num_samples = 3 }',
    ),
    "sampler in a sampler": (
        "batch_size = 4",
        'batch_sampler = { type = "torch.utils.data.BatchSampler", batch_size = 2, drop_last = true,'
        ' sampler = { type = "torch.utils.data.SequentialSampler" } }',
    ),
}
REFUSED = {
    "own optimizer": (ADAMW, 'type = "own.Mine"\nlr = -1.0\n', "Mine: lr must be at least 0, not -1.0"),
    "plain module": (MLP, 'type = "own.Net"\nsize = 4\nwidth = 3\n', "Net has no option 'width'"),
    "reserved key": (MLP, 'type = "own.Net"\nsize = 4\ninputs = "x"\n', "inputs must be a table, not the string 'x'"),
    "key of both": (MLP, 'type = "own.Clash"\nsize = 4\nload = "x"\n', "'load' is both a key of alchemy and an arg"),
    "no module": (MLP, 'type = "own.Thing"\nsize = 4\n', "'own.Thing' is not a model"),
    "NUL": ('"records/reviews"', '"a\\u0000b"', "log_dir must not contain a NUL character"),
    "out of the record": ('["detail_log"]', '["../../x"]', "subdirs.0 must be a relative path without '..'"),
    "level": ('BasicSetup" }', 'BasicSetup", level = "LOUD" }', "level must be one of 'TRACE'"),
    "sampler": ("batch_size = 4", 'batch_size = 4\nsampler = "os.system"', "cannot be iterated over"),
    "no file": (DEV, f"{OPENER}[]", "datapipe must name at least one file"),
    "number as file": (DEV, f"{OPENER}[3]", "datapipe must name at least one file"),
    "class of tokenizers": (
        '{ type = "src.pipes.Lower" }',
        '{ type = "alchemy.pipeline.encode.Encode", tokenizer = "alchemy.text.Words" }',
        "tokenizer must be a folder, or a table with a type, not the string 'alchemy.text.Words'",
    ),
}


@pytest.mark.parametrize(("old", "new"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_the_builder_accepts_has_no_problem(old, new):
    Path("own.py").write_text(OWN)
    assert problems_of(edited(old, new)) == []


@pytest.mark.parametrize(("old", "new", "message"), REFUSED.values(), ids=REFUSED)
def test_what_the_builder_refuses_is_an_error(old, new, message):
    Path("own.py").write_text(OWN)
    assert [problem for problem in problems_of(edited(old, new)) if problem.error and message in str(problem)]


def test_the_loss_of_a_plain_module_names_its_output_and_target():
    Path("own.py").write_text(OWN)
    named = 'CrossEntropy"\ntarget = "label"\noutput = "logits"'
    plain = edited(MLP, 'type = "own.Net"\nsize = 4\n').replace('CrossEntropy"', named)
    assert problems_of(plain) == []
    assert "target must be a string, not 3" in str(problems_of(plain.replace('"label"', "3"))[0])
    assert "CrossEntropy has no option 'target'" in str(problems_of(edited('CrossEntropy"', named))[0])


def test_one_table_of_vectors_needs_one_vocabulary():
    model = """type = "alchemy.models.Translator"
source_size = 8
target_size = 9
network = { type = "alchemy.nn.transformer.Transformer", share = "all" }
"""
    found = [str(problem) for problem in problems_of(edited(MLP, model)) if problem.error]
    assert any("not 8 (source) and 9 (target)" in text for text in found), found
    assert not [p for p in problems_of(edited(MLP, model.replace("9", "8"))) if p.section == "model.network"]
