"""Training through `accelerate` under its old names, in one process on the CPU."""

import json
import sys

import pytest

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.util.ddp import accelerate

HERE = "alchemy.util.ddp.accelerate"
PARTS = {
    "runner": "Trainer",
    "plugins.0.type": "BasicSetup",
    "task.datasets.train.pipes.2.type": "Sharding",
    "sched.pipes.2.type": "EvalESPipeline",
    "backward.type": "Backward",
    "optim.type": "HFAdamW",
}


def losses_of(project, start, name, prefix=None):
    """The loss of every step of two epochs; with `prefix`, of a run with the parts of accelerate."""
    changes = {"sched.epochs": 2, "task.datasets.train.num_workers": 0, "plugins.1.log_dir": f"'records/{name}'"}
    if prefix is not None:
        changes |= {key: f"'{HERE}.{prefix}{part}'" for key, part in PARTS.items()}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    start(project, "-m", "alchemy", "run", "new.toml", "--device", "-1", *words)
    (record,) = (project / "records" / name).iterdir()
    rows = [json.loads(line) for line in (record / "diary.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row], (record / "evals.jsonl").read_text()


def test_one_process_trains_as_without_it(project, start):
    plain = losses_of(project, start, "plain")
    assert len(plain[0]) == 12
    assert losses_of(project, start, "accelerated", "") == plain
    assert losses_of(project, start, "prefixed", "Accelerate") == plain


def test_the_package_is_only_needed_when_it_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with (
        Run({"tag": "x"}) as run,
        pytest.raises(AlchemyError, match="needs the package accelerate; pip install accelerate"),
    ):
        accelerate.Trainer(run.cfg, {"device": "cpu"})


@pytest.mark.parametrize(
    "part", [lambda: accelerate.Sharding([1]), lambda: accelerate.SaveModelMixin()._prepare_to_save(None)]
)
def test_a_part_without_its_trainer_says_so(part):
    with Run({"tag": "x"}), pytest.raises(AlchemyError, match=r"no Accelerator in this run; set runner"):
        part()
