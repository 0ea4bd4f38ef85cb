"""Common names of other frameworks lead to a suggestion: in configs, in overrides, and on the command line."""

import copy
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.config.check import check
from alchemy.config.load import prepare_cfg

CFG = {
    "task": {"type": "Classification", "tokenizer": "Words", "data": {"train": "train.csv"}},
    "model": {"type": "TextClassifier", "encoder": {"type": "Embedding"}},
    "optim": {"type": "AdamW", "lr": 0.1},
    "sched": {"type": "LineWarmup", "epochs": 1},
}


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("optim.learning_rate", 0.1, "[optim] AdamW has no option 'learning_rate'; did you mean 'lr'?"),
        ("optim.weight_decay_rate", 0.1, "did you mean 'weight_decay'?"),
        ("optim.warmup_steps", 5, "write num_warmup_steps in [sched]"),
        ("optim.gradient_accumulation_steps", 2, "write period in [backward]"),
        ("sched.num_train_epochs", 3, "did you mean 'epochs'?"),
        ("sched.max_steps", 3, "did you mean 'num_training_steps'?"),
        ("sched.warmup_steps", 3, "did you mean 'num_warmup_steps'?"),
        ("model.encoder.hidden_size", 3, "did you mean 'dim'?"),
        ("task.max_seq_length", 3, "did you mean 'max_length'?"),
        ("task.data.val", 0.1, "did you mean 'dev'?"),
        ("task.data.text_column", "x", "did you mean 'text'?"),
        ("task.data.per_device_train_batch_size", 8, "did you mean 'batch_size'?"),
        ("task.data.max_epochs", 8, "write epochs in [sched]"),
        ("learning_rate", 0.1, "the key 'learning_rate' is not used by any part; write lr in [optim]"),
        ("num_epochs", 3, "write epochs in [sched]"),
        ("fp16", True, 'write dtype = "fp16" in [precision]'),
        (
            "early_stopping_patience",
            3,
            'write any = [{ type = "Patience", monitor = "dev/loss", patience = 3 }] in [stop]',
        ),
        ("gpu", 0, "pass --device 0 on the command line"),
        ("optimizer", {"lr": 1}, "the table [optimizer] is not used by any part; write [optim]"),
        ("scheduler", {"lr": 1}, "write [sched]"),
        ("loss", {"type": "MSE"}, "write [criterion]"),
        ("trainer", {"epochs": 1}, "did you mean 'runner'?"),
        ("data", {"train": "x"}, "write [task.data]"),
        ("random_seed", 3, "write seed at the top"),
    ],
)
def test_a_word_of_another_framework_is_answered(key, value, hint):
    *path, last = key.split(".")
    cfg: dict[str, Any] = copy.deepcopy(CFG)
    table = cfg
    for name in path:
        table = table[name]
    table[last] = value
    assert [problem for problem in check(prepare_cfg(cfg)) if hint in str(problem)]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "f.toml", "--lr", "0.1"], "alchemy run has no option '--lr'; write '--set optim.lr=0.1'"),
        (["run", "f.toml", "--epochs=3"], "write '--set sched.epochs=3'"),
        (["run", "f.toml", "--batch-size", "8"], "write '--set task.data.batch_size=8'"),
        (["run", "f.toml", "--gpu", "1"], "write '--device 1'"),
        (["run", "f.toml", "--cpu"], "write '--device -1'"),
        (["run", "f.toml", "--fp16"], "write '--set precision.dtype=fp16'"),
        (["run", "f.toml", "--seed", "1"], "write '--seeds 1'"),
        (["run", "f.toml", "--seeds", "1", "2"], "separate seeds with commas; write '--seeds 1,2'"),
        (["run", "f.toml", "--patience", "3"], "in [stop]"),
        (["check", "f.toml", "--strickt"], "did you mean '--strict'?"),
        (["train", "f.toml"], "unknown command 'train'; did you mean 'run'?"),
        (["fit"], "did you mean 'run'?"),
        (["eval"], "did you mean 'test'?"),
        (["init", "demo"], "did you mean 'new'?"),
    ],
)
def test_a_command_of_another_program_is_answered(words, hint, capsys):
    assert main(words) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("lr=0.5", "write '--set optim.lr=0.5'"),
        ("learning_rate=0.5", "write '--set optim.lr=0.5'"),
        ("tokenizer=Characters", "write '--set task.tokenizer=Characters'"),
        ("sede=3", "did you mean 'seed'?"),
        ("nonsense=3", "it has "),
    ],
)
def test_a_setting_that_nobody_reads_is_refused(setting, hint):
    (problem,) = [row for row in check(prepare_cfg(CFG, overrides=[setting])) if "no part uses" in str(row)]
    assert problem.error and hint in problem.hint


def test_a_key_of_the_file_stays_settable():
    problems = check(prepare_cfg({**CFG, "note": 1}, overrides=["note=2", "log_every=5"]))
    assert [row.error for row in problems if "not used by any part" in str(row)] == [False]
