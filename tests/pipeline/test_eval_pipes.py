"""Scores, the best model, examples and early stopping, each to be switched on and off."""

import json

import pytest
import torch

from alchemy.errors import AlchemyError
from alchemy.pipeline import EvalPipeline
from alchemy.pipeline.eval import Accuracy, EarlyStop, LogBest, LogTensorboard, SaveBest, SaveExamples

ROWS = [{"pred": 1, "label": 1}, {"pred": 0, "label": 1}, {"pred": 0, "label": 0}, {"pred": 1, "label": 1}]


class Model:
    def __init__(self):
        self.saved = 0

    def save(self, path):
        self.saved += 1
        path.mkdir()
        (path / "weights").write_text(str(self.saved))


class Writer:
    def __init__(self):
        self.rows = []

    def add_scalar(self, *row):
        self.rows.append(row)


@pytest.fixture
def model(training):
    training.model = Model()
    return training.model


def show(pipe, training, *values, split="dev", **more):
    for value in values:
        training.train_sched.cur_step += 1
        training.train_sched.cur_epoch += 1
        assert pipe(split, accuracy=value, **more)["accuracy"] is value


def test_accuracy_counts_what_was_collected(run):
    pipe = Accuracy("preds")
    run.set_global("preds", ["left over"])
    pipe.begin_eval("dev")
    run.set_global("preds", list(ROWS))
    assert pipe("dev", loss=1.0) == {"loss": 1.0, "accuracy": 0.75, "preds": ROWS}
    assert not run.contains_global("preds")


def test_accuracy_says_what_it_misses(run):
    with pytest.raises(AlchemyError, match=r"nothing was collected as 'preds'; put .*Collect with varname = 'preds'"):
        Accuracy("preds")("dev")
    run.set_global("preds", [{"pred": 1}])
    with pytest.raises(AlchemyError, match=r"have no 'label'; they have \['pred'\]"):
        Accuracy("preds")("dev")


def test_save_best_keeps_the_best_model_only(training, model, tmp_path):
    pipe = SaveBest()
    show(pipe, training, 0.5, 0.7, 0.6, float("nan"))
    assert (tmp_path / "checkpt" / "best" / "weights").read_text() == "2"
    assert model.saved == 2
    info = json.loads((tmp_path / "best_info.json").read_text())
    assert (info["value"], info["step"], info["epoch"], info["split"]) == (0.7, 1, 1, "dev")
    assert [path.name for path in (tmp_path / "checkpt").iterdir()] == ["best"]


def test_save_best_mends_what_a_killed_run_left(training, model, tmp_path):
    for name in (".best.new", ".best.old", "best"):
        (tmp_path / "checkpt" / name).mkdir(parents=True)
    show(SaveBest(monitor="dev/accuracy"), training, 0.5)
    assert [path.name for path in (tmp_path / "checkpt").rglob("*")] == ["best", "weights"]


def test_a_lower_loss_is_better_with_mode_min(training, model):
    pipe = SaveBest(monitor="loss", mode="min")
    for loss in (torch.tensor(0.5), 0.6, 0.4):
        pipe("dev", loss=loss)
    assert model.saved == 2
    assert pipe.best.value == 0.4


def test_nothing_is_saved_for_other_splits_or_without_a_record(training, model):
    pipe = SaveBest()
    show(pipe, training, 0.9, split="test")
    training.record_dir = None
    show(pipe, training, 0.8)
    assert (model.saved, pipe.best.value) == (0, 0.8)


def test_a_model_that_saves_elsewhere_is_told(training, model):
    model.save = lambda path: None
    with pytest.raises(AlchemyError, match=r"wrote nothing there; save\(path\) must create path"):
        SaveBest()("dev", accuracy=1.0)


def test_early_stop_counts_evaluations(training):
    pipe = EarlyStop(patience=2, min_delta=0.05)
    show(pipe, training, 0.5, 0.6, 0.64)
    assert training.stopping is None
    show(pipe, training, 0.9, split="test")
    show(pipe, training, 0.62)
    assert training.stopping == "dev/accuracy has not passed 0.6 for 2 evaluations"


@pytest.mark.parametrize("kwargs", [{"patience": 0}, {"patience": -1}, {"patience": 1, "enabled": False}])
def test_early_stop_can_be_off(training, kwargs):
    show(EarlyStop(**kwargs), training, 0.5, 0.4, 0.3)
    assert training.stopping is None


def test_log_best_tells_scores_and_the_best(training, capture_log):
    pipe = LogBest()
    show(pipe, training, 0.5, 0.25, loss=2.0, preds=ROWS)
    show(pipe, training, 0.125, split="test")
    assert "dev: accuracy 0.5, loss 2" in capture_log.text
    assert "dev accuracy: best 0.5 at epoch 0, step 0, update 0" in capture_log.text
    assert "test: accuracy 0.125" in capture_log.text


def test_log_best_speaks_for_the_test_too(run, capture_log):
    LogBest()("test", accuracy=0.5)
    assert "test: accuracy 0.5" in capture_log.text


@pytest.mark.parametrize("pipe", [SaveBest, LogBest, EarlyStop])
def test_a_monitor_that_is_not_there_is_named(training, pipe):
    with pytest.raises(AlchemyError, match=r"monitor = 'f1' is not among the scores of 'dev'.*gave accuracy, loss"):
        pipe(monitor="f1")("dev", accuracy=1.0, loss=0.5, preds=[])
    with pytest.raises(AlchemyError, match="did you mean 'accuracy'"):
        pipe(monitor="acuracy")("dev", accuracy=1.0)
    with pytest.raises(AlchemyError, match="mode must be 'max' or 'min', not 'maximum'"):
        pipe(mode="maximum")


@pytest.mark.parametrize("make", [SaveBest, LogBest, EarlyStop])
def test_the_best_survives_a_resume(training, model, make):
    first, second = make(), make()
    show(first, training, 0.5, 0.4)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()


def test_examples_are_written(training, tmp_path):
    training.train_sched.cur_step = 3
    SaveExamples(only_wrong=True)("dev", preds=ROWS)
    assert json.loads((tmp_path / "results" / "dev_examples_step3.jsonl").read_text()) == ROWS[1]
    SaveExamples(limit=2, step_tag=False)("dev", preds=ROWS)
    assert len((tmp_path / "results" / "dev_examples.jsonl").read_text().splitlines()) == 2
    with pytest.raises(AlchemyError, match="no pipe before it gave 'preds'"):
        SaveExamples()("dev")


def test_scores_go_to_tensorboard(training):
    writer = Writer()
    LogTensorboard()("dev", accuracy=0.5)
    training.set_global("summary_writer", writer)
    training.train_sched.cur_step = 9
    LogTensorboard()("dev", accuracy=0.5, preds=[])
    assert writer.rows == [("eval/dev/accuracy", 0.5, 9)]


@pytest.mark.parametrize("make", [Accuracy, SaveBest, LogBest, EarlyStop, SaveExamples, LogTensorboard])
def test_each_can_be_switched_off(training, model, tmp_path, make):
    pipe = make(enabled=False)
    pipe.begin_eval("dev")
    assert pipe("dev", other=1) == {"other": 1}
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_without_a_call_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"EvalPipeline must define __call__\(self, split"):
        EvalPipeline()("dev")


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_a_model_whose_loss_is_not_finite_is_never_the_best(training, model, capture_log, loss):
    training.task = type("Task", (), {"evalpipes": [SaveBest(), LogBest(), EarlyStop(patience=9)]})()
    for pipe in training.task.evalpipes:
        show(pipe, training, 0.9, 0.95, loss=loss)
    assert model.saved == 0
    assert capture_log.text.count("no such model is taken as the best one") == 1
    show(training.task.evalpipes[0], training, 0.1, loss=2.0)
    assert model.saved == 1
