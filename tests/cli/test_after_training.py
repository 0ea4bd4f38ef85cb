"""One command trains, picks the best weights, tests them and writes predictions."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.config import dumps
from alchemy.context import sym_tbl
from alchemy.pipeline import EvalPipeline
from alchemy.records.status import read_info
from tests import toy


def test_train_test_predict_in_one_command(project: Path) -> None:
    assert main(["run", "train.toml", "--set", "sched.epochs=1", "--device", "-1", "--test", "--predict"]) == 0
    (trained,) = (project / "records" / "train").iterdir()
    (tested,) = (project / "records" / "test").iterdir()
    assert f'model_path = "{trained.relative_to(project)}/state/best"' in (tested / "cfg.toml").read_text()
    info = read_info(tested)
    assert (info["purpose"], info["parent"]) == ("test after training", trained.name)
    (rows,) = (project / "records" / "inference").glob("*/results/predictions.jsonl")
    assert len(rows.read_text().splitlines()) == 150


def test_what_cannot_follow_is_refused_before_training(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "train.toml", "--test", "--no-file"]) == 2
    assert "need the weights of a record" in capsys.readouterr().err
    text = (project / "train.toml").read_text()
    (project / "train.toml").write_text(text.replace("[task.datasets.test]", "[task.datasets.held_out]"))
    assert main(["run", "train.toml", "--test"]) == 2
    assert "the config has no split 'test'" in capsys.readouterr().err
    assert not (project / "records").exists()


@pytest.mark.parametrize("others", [[], ["whole.toml"]], ids=["alone", "after another"])
def test_nothing_follows_a_training_that_a_signal_ended(
    others: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stop = {"type": "tests.toy.SignalAt", "step": 2, "number": int(signal.SIGTERM)}
    for name, pipes in (("whole", []), ("stopped", [stop])):
        cfg = toy.config(f"{name}/train", sched={"type": "alchemy.sched.Constant", "epochs": 1, "pipes": pipes})
        (tmp_path / f"{name}.toml").write_text(dumps(cfg))
    assert main(["run", *others, "stopped.toml", "--device", "-1", "--test", "--predict"]) == 128 + signal.SIGTERM
    assert "training was interrupted, skipping: test, predict" in "".join(capsys.readouterr())
    assert list(tmp_path.glob("stopped/train/*/state/last"))  # it can be resumed
    assert not list(tmp_path.glob("stopped/test")) + list(tmp_path.glob("stopped/inference"))
    assert len(list(tmp_path.glob("whole/test/*"))) == len(others)  # each run is tested on its own


@EvalPipeline.register()
class WriteStep(EvalPipeline):
    """Read the schedule without checking that it exists, as pipes of older projects do."""

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        sched = sym_tbl().train_sched
        with open("steps.txt", "a") as file:
            file.write(f"{split} {sched.cur_epoch} {sched.cur_step} {sched.num_updates}\n")
        assert self.run.train_sched is None or split == "dev"  # it is not mistaken for a training run
        return {**kwargs, "score": float(sched.cur_step == 7)}


def test_eval_pipes_see_the_step_of_the_weights_that_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = toy.config("train", checkpoint={"monitor": "dev/score", "mode": "max"})
    cfg["task"]["evalpipes"] = [{"type": f"{__name__}.WriteStep"}]
    cfg["sched"]["pipes"] = [{"type": "alchemy.pipeline.sched.EvalEEPipeline", "period": 1}]
    (tmp_path / "c.toml").write_text(dumps(cfg))
    assert main(["run", "c.toml", "--device", "-1", "--test"]) == 0
    assert main(["test", "latest", "--device", "-1", "--checkpoint", "last"]) == 0
    rows = (tmp_path / "steps.txt").read_text().splitlines()
    assert [row for row in rows if row.startswith("test")] == ["test 1 7 8", "test 3 15 16"]
