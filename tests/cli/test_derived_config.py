"""Derive the config of a test or a prediction from that of a training run."""

import copy
from pathlib import Path

import pytest

from alchemy.cli.derived_config import best_checkpoint, derive_prediction, derive_test
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError

TRAINING = {
    "tag": "ner",
    "runner": "alchemy.runner.Trainer",
    "plugins": [{"type": "alchemy.plugins.FileLogger", "log_dir": "records/ner/train"}],
    "task": {
        "type": "src.task.Ner",
        "evalpipes": [
            {"type": "src.evalpipe.EvalNer"},
            {"type": "src.evalpipe.SaveModel"},
            {"type": "alchemy.pipeline.eval.LogBest"},
            {"type": "alchemy.pipeline.eval.SaveBest"},
            {"type": "alchemy.pipeline.eval.EarlyStop"},
            {"type": "alchemy.pipeline.eval.SaveExamples"},
        ],
        "datasets": {"train": {"pipes": [1]}, "dev": {"pipes": [2]}, "test": {"pipes": [3]}},
    },
    "model": {"type": "src.model.Tagger"},
    "sched": {"type": "alchemy.sched.LineWarmup"},
    "optim": {"type": "alchemy.optim.AdamW"},
    "criterion": {"smoothing": 0.1},
}


@pytest.fixture
def training():
    return Document(copy.deepcopy(TRAINING))


def test_a_test_keeps_what_it_needs(training):
    document, left_out = derive_test(training, Path("r/checkpt/best"))
    assert document["runner"] == "alchemy.runner.Tester"
    assert document["model"]["model_path"] == "r/checkpt/best"
    assert not {"sched", "optim"} & set(document)
    assert "criterion" in document
    assert list(document["task"]["datasets"]) == ["test"]
    assert document["task"]["evalpipes"] == training["task"]["evalpipes"]  # without effect outside training
    assert document["plugins"][0]["log_dir"] == "records/ner/test"
    assert left_out[:3] == ["[sched]", "[optim]", "[task.datasets.train]"]


def test_the_training_is_not_changed(training):
    derive_test(training, Path("x"))
    derive_prediction(training)
    assert training.plain() == TRAINING


@pytest.mark.parametrize(("split", "pipes"), [(None, [3]), ("dev", [2])])
def test_predictions_know_their_split_as_inference(split, pipes, training):
    document = derive_prediction(training, None, split).document
    assert document["runner"] == "alchemy.runner.InferenceRunner"
    assert document["task"]["datasets"].plain() == {"inference": {"pipes": pipes}}
    assert "model_path" not in document["model"]


def test_a_missing_split_is_named(training):
    del training["task"]["datasets"]["test"]
    with pytest.raises(AlchemyError, match=r"\[task.datasets\] the config has no split 'test'; available: train, dev"):
        derive_test(training)
    with pytest.raises(AlchemyError, match="no split 'inference'"):
        derive_prediction(training)


def test_a_config_without_a_model_is_named(training):
    del training["model"]
    with pytest.raises(AlchemyError, match=r"the config has no \[model\]"):
        derive_test(training, Path("x"))


def test_the_checkpoint_must_be_there(tmp_path):
    with pytest.raises(AlchemyError, match="no checkpoint 'best'; did the run end before its first save"):
        best_checkpoint(tmp_path)
    (tmp_path / "checkpt" / "last").mkdir(parents=True)
    with pytest.raises(AlchemyError, match="choose one with --checkpoint: last"):
        best_checkpoint(tmp_path)
    assert best_checkpoint(tmp_path, "last") == tmp_path / "checkpt" / "last"


def test_a_pipe_can_be_dropped_by_name(training):
    document, left_out = derive_test(training, drop=["LogBest", "SaveModel"])
    names = [pipe["type"].rpartition(".")[2] for pipe in document["task"]["evalpipes"]]
    assert names == ["EvalNer", "SaveBest", "EarlyStop", "SaveExamples"]
    assert left_out[-2:] == ["eval pipe LogBest", "eval pipe SaveModel"]
    with pytest.raises(
        AlchemyError,
        match=r"\[task.evalpipes\] cannot drop 'LogBset': .* no such eval pipe; did you mean 'LogBest'",
    ):
        derive_test(training, drop=["LogBset"])
