"""SaveBest, LogBest and EarlyStop are aliases for `[checkpoint]` and `[stop]`."""

import json
import os
from pathlib import Path

import pytest
import torch

from alchemy.checkpoint import Checkpoints
from alchemy.checkpoint.links import NamedWeights
from alchemy.checkpoint.manifest import read_manifest
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.pipeline.eval import EarlyStop, LogBest, SaveBest
from alchemy.runner import run as start
from alchemy.stop import build_rules
from tests.toy import Line, config

EVAL = "alchemy.pipeline.eval"


class Model:
    """Save in a custom format, and count the saves."""

    def __init__(self):
        self.saved = 0

    def save(self, path):
        self.saved += 1
        path.mkdir()
        (path / "weights").write_text(str(self.saved))


class OwnFormat(Line):
    def save(self, path):
        path.mkdir()
        torch.save(self.module.state_dict(), path / "weights.bin")


@pytest.fixture
def model(training):
    training.model = Model()
    return training.model


def begin(training, **table):
    """Apply the requests of the parts to the run, without checkpoints."""
    folder = Path(training.record_dir)
    keeper = training.checkpoints = Checkpoints(folder / "state", enabled=False, **table)
    keeper.named = NamedWeights(folder, save=training.model and training.model.save)
    for watch in training.watches:
        keeper.watch(watch)
    training.rules = build_rules(training)
    return keeper


def show(training, *values, split="dev", **more):
    for value in values:
        training.train_sched.cur_step += 1
        training.train_sched.cur_epoch += 1
        training.record_scores(split, {"accuracy": value, **more})


def test_save_best_keeps_the_best_model_only(training, model, tmp_path):
    SaveBest()
    begin(training)
    show(training, 0.5, 0.7, 0.6, float("nan"))
    show(training, 0.9, split="test")
    assert (tmp_path / "checkpt" / "best" / "weights").read_text() == "2"
    assert model.saved == 2
    info = json.loads((tmp_path / "best_info.json").read_text())
    where = {"update": 0, "epoch": 1, "step": 1}
    assert info == {"metric": "accuracy", "value": 0.7, "split": "dev", **where, "scores": {"accuracy": 0.7}}
    assert [path.name for path in (tmp_path / "checkpt").iterdir()] == ["best"]


def test_each_name_has_its_own_best(training, model, tmp_path):
    SaveBest(monitor="dev/accuracy", min_delta=0.1)
    SaveBest(monitor="loss", mode="min", name="lowest")
    begin(training)
    for accuracy, loss in ((0.5, torch.tensor(0.5)), (0.55, 0.6), (0.7, 0.4)):
        show(training, accuracy, loss=loss)
    found = {name: json.loads((tmp_path / f"{name}_info.json").read_text()) for name in ("best", "lowest")}
    assert {name: info["value"] for name, info in found.items()} == {"best": 0.7, "lowest": 0.4}
    assert model.saved == 4
    show(training, 0.75)  # an improvement, but not more than min_delta
    assert model.saved == 4


def test_save_best_replaces_what_a_killed_run_left(training, model, tmp_path):
    for name in (".best.new", ".best.old", "best"):
        (tmp_path / "checkpt" / name).mkdir(parents=True)
    SaveBest()
    begin(training)
    show(training, 0.5)
    assert [path.name for path in (tmp_path / "checkpt").rglob("*")] == ["best", "weights"]


def test_a_model_that_saves_elsewhere_is_an_error(training, model):
    model.save = lambda path: None
    SaveBest()
    begin(training)
    with pytest.raises(AlchemyError, match=r"wrote nothing; save\(path\) must create path"):
        show(training, 1.0)


def test_a_full_disk_is_tried_again(training, model, tmp_path, capture_log):
    SaveBest()
    keeper, save = begin(training), model.save

    def refuse(path):
        raise OSError(28, "No space left on device")

    keeper.named.save = refuse
    show(training, 0.5)
    keeper.named.save = save
    show(training, 0.4)
    assert "could not save the best model, will retry with the next one: [Errno 28]" in capture_log.text
    assert json.loads((tmp_path / "best_info.json").read_text())["value"] == 0.4


def test_early_stop_counts_evaluations(training):
    EarlyStop(patience=2, min_delta=0.05)
    begin(training)
    show(training, 0.5, 0.6, 0.64)
    assert training.stop_request.reason is None
    show(training, 0.9, split="test")
    show(training, 0.62)
    assert training.stop_request.reason == "dev/accuracy has not improved on 0.6 for 2 evaluations"


@pytest.mark.parametrize("kwargs", [{"patience": 0}, {"patience": -1}, {"patience": 1, "enabled": False}])
def test_early_stop_can_be_off(training, kwargs):
    EarlyStop(**kwargs)
    begin(training)
    show(training, 0.5, 0.4, 0.3)
    assert training.stop_request.reason is None


@pytest.mark.parametrize("table", [{}, {"monitor": "dev/accuracy"}])
def test_every_evaluation_is_one_line_that_marks_the_best(training, capture_log, table):
    if not table:
        LogBest()
    begin(training, **table)
    show(training, 0.5, 0.25, loss=2.0, preds=[1, 2])
    show(training, 0.125, split="test")
    assert [line for line in capture_log.text.splitlines() if "accuracy" in line] == [
        "INFO epoch 1/3  dev: accuracy 0.5 (best)  loss 2",
        "INFO epoch 2/3  dev: accuracy 0.25  loss 2",
        "INFO epoch 3/3  test: accuracy 0.125",
    ]


def test_a_run_that_does_not_train_logs_its_scores(run, capture_log):
    run.record_scores("test", {"accuracy": 0.5})
    run.record_scores("test", {})
    assert "test: accuracy 0.5\n" in capture_log.text and "test: no scores" in capture_log.text


@pytest.mark.parametrize("pipe", [SaveBest, LogBest, EarlyStop])
def test_a_monitor_that_is_not_there_is_named(training, pipe):
    with pytest.raises(
        AlchemyError, match=r"monitor = 'dev/f1' is not among the scores of 'dev'.*returned accuracy, loss"
    ):
        pipe(monitor="f1")("dev", accuracy=1.0, loss=0.5, preds=[])
    with pytest.raises(AlchemyError, match="did you mean 'accuracy'"):
        pipe(monitor="acuracy")("dev", accuracy=1.0)
    with pytest.raises(AlchemyError, match="mode must be one of 'max', 'min', not the string 'maximum'"):
        pipe(mode="maximum")
    assert pipe()("dev", accuracy=1.0) == {"accuracy": 1.0}


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_a_model_whose_loss_is_not_finite_is_never_the_best(training, model, capture_log, loss):
    SaveBest(), LogBest(), EarlyStop(patience=9)
    begin(training)
    show(training, 0.9, 0.95, loss=loss)
    assert model.saved == 0
    assert capture_log.text.count("this model cannot become the best one") == 1
    show(training, 0.1, loss=2.0)
    assert model.saved == 1


# -- in a training run


def train(folder, model="tests.toy.Line", **changes):
    pipes = [{"type": "alchemy.pipeline.sched.EvalEEPipeline"}]
    best = [{"type": "tests.toy.Count"}, {"type": f"{EVAL}.SaveBest", "monitor": "score", "name": "top"}]
    cfg = config(folder, model={"type": model}, task__evalpipes=best, sched__pipes=pipes, **changes)
    (result,) = start([cfg], device=[-1], raise_errors=True)
    return result.record_dir


def test_the_best_weights_are_links_to_the_files_of_the_state(tmp_path):
    record = train(tmp_path)
    info = json.loads((record / "top_info.json").read_text())
    assert read_manifest(record / "state" / "best").update == info["update"] == 16
    best = json.loads((record / "record.json").read_text())["best"]
    assert best == {"metric": "dev/score", "value": info["value"], "update": 16}
    for file in (record / "state" / "best").iterdir():
        assert os.path.samefile(file, record / "checkpt" / "top" / file.name)


@pytest.mark.parametrize("ema", [None, {"decay": 0.5}])
def test_a_project_that_saves_in_its_own_way_does_so(tmp_path, ema):
    more = {} if ema is None else {"ema": ema}
    record = train(tmp_path, f"{__name__}.OwnFormat", **more)
    assert [path.name for path in (record / "checkpt" / "top").iterdir()] == ["weights.bin"]
    saved = torch.load(record / "checkpt" / "top" / "weights.bin", weights_only=True)
    with Run(config()):
        model = Line()
        model.load(record / "state" / "best")  # of the averaged weights, if there are any
        assert all(torch.equal(saved[name], value) for name, value in model.module.state_dict().items())


def test_without_checkpoints_the_model_saves_itself(tmp_path):
    record = train(tmp_path, checkpoint={"enabled": False})
    assert [path.name for path in (record / "checkpt" / "top").iterdir()] == ["model.safetensors"]
    assert not (record / "state").exists()
