"""The flags of the command and the resulting config, without training."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.config.check import check
from alchemy.config.load import prepare_cfg
from alchemy.errors import AlchemyError
from tests.examples.thunews import ALL, EXAMPLE, flags, write_data

# as in the user's original parser
DEFAULTS = {
    **dict.fromkeys(("config_name", "tokenizer_name", "cache_dir"), ""),
    **dict.fromkeys(
        ("do_train", "do_eval", "evaluate_during_training", "do_lower_case", "eval_all_checkpoints"), False
    ),
    **dict.fromkeys(("no_cuda", "overwrite_output_dir", "overwrite_cache", "fp16"), False),
    "max_seq_length": 128,
    "per_gpu_train_batch_size": 8,
    "per_gpu_eval_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "learning_rate": 5e-5,
    "weight_decay": 0.0,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "warmup_steps": 0,
    "logging_steps": 50,
    "save_steps": 50,
    "seed": 42,
    "fp16_opt_level": "O1",
    "local_rank": -1,
    "filter_num": 256,
    "filter_sizes": [3, 4, 5],
    **{f"{name}_{key}": value for name in ("lstm", "gru") for key, value in (("hidden_size", 300), ("layers", 2))},
    "lstm_dropout": 0.5,
    "gru_dropout": 0.5,
}
REQUIRED = ["--data_dir=d", "--model_type=bert", "--model_name_or_path=m", "--task_name=tHuNews", "--output_dir=o"]
SIZES = ("--filter_sizes=2,3", "--lstm_layers=1", "--gru_hidden_size=5", "--lstm_dropout=0.1")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data")
    return tmp_path


def bare(root: Path, kind: str, **config: Any) -> Path:
    """A folder with a config.json; of the tokenizer files, only the names matter here."""
    root.mkdir()
    (root / "config.json").write_text(json.dumps({"model_type": kind, **config}))
    return root


def translated(thunews: Any, *more: str, **values: Any) -> dict[str, Any]:
    args = thunews.parse(flags(*more, **values))
    cfg: dict[str, Any] = thunews.translate.training(args, ["a", "b"])
    assert not [problem for problem in check(prepare_cfg(cfg), roots=[str(EXAMPLE)]) if problem.error]
    return cfg


def test_defaults_are_those_of_the_script_and_names_of_tasks_have_no_case(thunews: Any) -> None:
    args = vars(thunews.parse([*REQUIRED, "--do_predict"]))
    assert {name: args[name] for name in DEFAULTS} == DEFAULTS
    assert set(args) - set(DEFAULTS) == {"do_predict", *(flag[2:].partition("=")[0] for flag in REQUIRED)}
    assert args["task_name"] == "thunews"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), "nothing to do: pass --do_train"),
        (("--do_train", "--task_name=sst"), "unknown task 'sst': expected one of thunews"),
        (("--do_train", "--filter_sizes=3,x"), "expected a list of sizes such as 3,4,5, got '3,x'"),
        (("--do_train", "--per_gpu_train_batch_size=0"), "0 is less than 1"),
        (("--do_train", "--fp16_opt_level=O7"), "invalid choice: 'O7'"),
        (("--do_train", "--learning_rate=-1"), "--learning_rate: got -1, expected a finite number at least 0"),
        (("--do_train", "--learning_rate=nan"), "--learning_rate: got nan, expected a finite number at least 0"),
        (("--do_train", "--weight_decay=-1"), "--weight_decay: got -1, expected a finite number at least 0"),
        (("--do_train", "--adam_epsilon=-1"), "--adam_epsilon: got -1, expected a finite number above 0"),
        (("--do_train", "--max_grad_norm=0"), "--max_grad_norm: got 0, expected a finite number above 0"),
        (("--do_train", "--num_train_epochs=nan"), "--num_train_epochs: got nan, expected a finite number\n"),
        (("--do_train", "--num_train_epochs=inf"), "--num_train_epochs: got inf, expected a finite number\n"),
        (("--do_train", "--lstm_dropout=1.5"), "--lstm_dropout: got 1.5, expected a finite number at least 0 and at"),
    ],
)
def test_flags_that_cannot_be_are_told(
    thunews: Any, more: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        thunews.parse([*REQUIRED, *more])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model_type", "kind", "head"),
    [
        ("bert", "bert", {"type": "Pool"}),
        ("bert_cnn", "bert", {"type": "CNN", "filter_sizes": [2, 3], "filter_num": 8}),
        ("bert_lstm", "bert", {"type": "LSTM", "lstm_hidden_size": 300, "lstm_layers": 1, "lstm_dropout": 0.1}),
        ("XLNet_gru", "xlnet", {"type": "GRU", "gru_hidden_size": 5, "gru_layers": 2, "gru_dropout": 0.5}),
        ("albert_rcnn", "albert", {"type": "RCNN", "hidden": 300, "layers": 1, "dropout": 0.1}),
        ("xlm-roberta_cnn", "xlm-roberta", {"type": "CNN", "filter_sizes": [2, 3], "filter_num": 8}),
    ],
)
def test_a_model_type_is_an_encoder_and_a_head(
    thunews: Any, place: Path, model_type: str, kind: str, head: dict[str, Any]
) -> None:
    bare(place / "bert", kind)
    made = translated(thunews, *ALL, *SIZES, model_type=model_type)["model"]
    assert made["encoder"]["kind"] == kind
    assert made["head"] == {**head, "type": f"alchemy.models.heads.{head['type']}"}


@pytest.mark.parametrize("kind", ["bert", "xlnet", "roberta"])
def test_padding_stands_where_the_family_wants_it(thunews: Any, place: Path, kind: str) -> None:
    bare(place / "bert", kind)
    task = translated(thunews, *ALL, model_type=kind)["task"]
    assert (task.get("left"), task.get("segment")) == ((True, 4) if kind == "xlnet" else (None, None))


@pytest.mark.parametrize(
    ("files", "more", "lower"),
    [
        ({"vocab.txt": "a"}, (), False),
        ({"vocab.txt": "a"}, ("--do_lower_case",), True),
        ({"vocab.txt": "a", "tokenizer_config.json": '{"do_lower_case": true}'}, (), None),
        ({"tokenizer.json": '{"normalizer": {"type": "BertNormalizer", "lowercase": false}}'}, (), None),
        (
            {"tokenizer.json": '{"normalizer": {"type": "BertNormalizer", "lowercase": false}}'},
            ("--do_lower_case",),
            True,
        ),
        ({"tokenizer.json": '{"normalizer": {"type": "Lowercase"}}'}, ("--do_lower_case",), None),
        ({"vocab.json": "{}", "merges.txt": ""}, (), None),
    ],
)
def test_lower_case_is_asked_for_where_the_files_do_not_say_it(
    thunews: Any, place: Path, files: dict[str, str], more: tuple[str, ...], lower: bool | None
) -> None:
    folder = bare(place / "bert", "bert")
    for name, content in files.items():
        (folder / name).write_text(content)
    assert translated(thunews, *ALL, *more)["task"]["tokenizer"].get("lower") is lower


def test_numbers_reach_the_tables_they_belong_to(thunews: Any, place: Path) -> None:
    bare(place / "bert", "bert")
    values: dict[str, Any] = {
        "per_gpu_train_batch_size": 3,
        "per_gpu_eval_batch_size": 5,
        "gradient_accumulation_steps": 4,
    }
    values |= {"warmup_steps": 7, "num_train_epochs": 1.5, "seed": 9, "weight_decay": 0.1, "save_steps": 11}
    cfg = translated(thunews, *ALL, "--overwrite_cache", "--evaluate_during_training", logging_steps=6, **values)
    sets = cfg["task"]["datasets"]
    assert [(sets[name]["batch_size"], sets[name]["per_device"]) for name in sets] == [(3, True), (5, True), (5, True)]
    assert cfg["task"]["overwrite_cache"] and cfg["task"]["cache"]
    assert (cfg["backward"]["period"], cfg["seed"], cfg["log_every"]) == (4, 9, 6)
    assert (cfg["sched"]["epochs"], cfg["sched"]["num_warmup_steps"]) == (1.5, 7)
    assert (cfg["sched"]["pipes"][0]["save_steps"], cfg["sched"]["pipes"][0]["eval_steps"]) == (11, 6)
    assert (cfg["optim"]["weight_decay"], cfg["optim"]["no_decay"]) == (0.1, True)
    assert "precision" not in cfg


def test_max_steps_and_levels_of_fp16(thunews: Any, place: Path) -> None:
    bare(place / "bert", "bert")
    cfg = translated(thunews, "--do_train", "--fp16", max_steps=30)
    assert (cfg["sched"]["num_training_steps"], "epochs" in cfg["sched"]) == (30, False)
    assert cfg["precision"] == {"dtype": "fp16"}
    assert "precision" not in translated(thunews, "--do_train", "--fp16", fp16_opt_level="O0")


def test_other_folders_for_config_and_tokenizer_below_a_cache_dir(thunews: Any, place: Path) -> None:
    (place / "store").mkdir()
    bare(place / "store" / "bert", "bert", hidden_dropout_prob=0.1, hidden_size=16)
    bare(place / "dropping", "bert", hidden_dropout_prob=0.4, hidden_size=16, transformers_version="1")
    bare(place / "cutting", "bert")
    names = {"cache_dir": "store", "config_name": "dropping", "tokenizer_name": "cutting"}
    cfg = translated(thunews, *ALL, **names)
    assert cfg["model"]["encoder"]["path"] == str(place / "store" / "bert")
    assert cfg["model"]["encoder"]["options"] == {"hidden_dropout_prob": 0.4}
    assert cfg["task"]["tokenizer"]["path"] == str(place / "cutting")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"model_name_or_path": "nowhere"}, "folder not found: 'nowhere'; pass a local folder"),
        ({"model_type": "xlnet_cnn"}, "config.json the model is a 'bert', not a 'xlnet'; pass --model_type=bert"),
        ({"max_seq_length": 21}, "--max_seq_length=21 exceeds the 20 tokens of the model; pass --max_seq_length=20"),
        ({"num_train_epochs": 0}, "--num_train_epochs=0 trains nothing"),
        (
            {"max_steps": 3, "warmup_steps": 9},
            "--warmup_steps=9 is more than --max_steps=3; the learning rate would never",
        ),
    ],
)
def test_models_that_do_not_fit_are_told_before_anything_is_made(
    thunews: Any, place: Path, values: dict[str, Any], told: str
) -> None:
    bare(place / "bert", "bert", max_position_embeddings=20)
    with pytest.raises(AlchemyError, match=told):
        translated(thunews, "--do_train", **values)


def test_several_gpus_are_used_by_processes_that_it_starts_itself(
    thunews: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(thunews, "cuda_count", lambda: 4)
    monkeypatch.setattr(thunews, "start_ranks", lambda *program: started.append(program))
    monkeypatch.setattr(thunews, "work", lambda args: 0)
    argv = [*REQUIRED, "--do_train"]
    assert thunews.main(argv) == thunews.main([*argv, "--no_cuda"]) == 0
    assert started == [(4, str(EXAMPLE / "run.py"), *argv), (0, str(EXAMPLE / "run.py"), *argv, "--no_cuda")]


@pytest.mark.parametrize("name", ["flags", "families", "scoring"])
def test_what_docstrings_show(thunews: Any, name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"src.{name}"))
    assert tried and not failed


def test_a_rank_without_its_launcher_is_told(thunews: Any) -> None:
    with pytest.raises(AlchemyError, match="--local_rank=0 requires the environment of a launcher"):
        thunews.gpus(thunews.parse([*REQUIRED, "--do_train", "--local_rank=0"]))
