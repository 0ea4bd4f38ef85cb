"""Training through `accelerate` under its old names, in one process on the CPU."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.model import BackwardHandler
from alchemy.records.status import read_info
from alchemy.runner import run
from alchemy.util.ddp import accelerate
from tests.clients.accelerated import HERE, PARTS
from tests.toy import config


def losses_of(project, start, name, prefix=None):
    """Return the loss of every step of two epochs; with `prefix`, of a run with the parts of accelerate."""
    changes = {"sched.epochs": 2, "task.datasets.train.num_workers": 0, "plugins.1.log_dir": f"'records/{name}'"}
    if prefix is not None:
        changes |= {key: f"'{HERE}.{prefix}{part}'" for key, part in PARTS.items()}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    start(project, "-m", "alchemy", "run", "new.toml", "--device", "-1", *words)
    (record,) = (project / "records" / name).iterdir()
    rows = [json.loads(line) for line in (record / "diary.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row], (record / "evals.jsonl").read_text()


@pytest.mark.slow
def test_one_process_trains_as_without_it(project, start):
    plain = losses_of(project, start, "plain")
    assert len(plain[0]) == 12
    assert losses_of(project, start, "accelerated", "") == plain
    assert losses_of(project, start, "prefixed", "Accelerate") == plain


def test_the_package_is_only_needed_when_it_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with (
        Run({"tag": "x"}) as run,
        pytest.raises(AlchemyError, match=r"needs the package accelerate; pip install 'alchemy\[dist\]'"),
    ):
        accelerate.Trainer(run.cfg, {"device": "cpu"})


@pytest.mark.parametrize(
    "part", [lambda: accelerate.Sharding([1]), lambda: accelerate.SaveModelMixin()._prepare_to_save(None)]
)
def test_a_part_without_its_trainer_says_so(part):
    with Run({"tag": "x"}), pytest.raises(AlchemyError, match=r"this run has no Accelerator; set runner"):
        part()


class Accelerator(SimpleNamespace):
    """A stub of the main Accelerator of `num_processes`, without the others."""

    process_index, is_main_process, is_local_main_process = 0, True, True
    device, scaler = torch.device("cpu"), None

    def prepare(self, *parts):
        return parts

    def backward(self, loss):
        loss.backward()

    def clip_grad_norm_(self, params, max_norm):
        self.clipped = max_norm
        return nn.utils.clip_grad_norm_(params, max_norm)


@pytest.fixture
def fake(monkeypatch):
    made = Accelerator(num_processes=2)
    monkeypatch.setattr(accelerate, "_make", lambda cpu: made)
    return made


def accelerated(log_dir=None, **changes):
    optim = {"type": f"{HERE}.HFAdamW", "max_grad_norm": 0.25}
    changes = {"optim": optim, "backward": {"type": f"{HERE}.Backward"}, "sched__epochs": 1, **changes}
    return config(log_dir, runner=f"{HERE}.Trainer", **changes)


def test_several_processes_keep_no_state_that_could_not_be_resumed(fake, tmp_path):
    (result,) = run([accelerated(tmp_path)], device=[-1], raise_errors=True)
    assert not list(result.record_dir.glob("state/u*"))
    log = (result.record_dir / "run.log").read_text()
    assert log.count("checkpoints are disabled: the 2 processes started by accelerate could not be resumed") == 1


def test_several_processes_refuse_to_go_on_and_leave_the_record_alone(fake, tmp_path):
    fake.num_processes = 1
    (result,) = run([accelerated(tmp_path)], device=[-1], raise_errors=True)
    assert list(result.record_dir.glob("state/u*"))
    fake.num_processes, before = 2, read_info(result.record_dir)
    with pytest.raises(AlchemyError, match=r"cannot resume the 2 processes .*: only the first one has a record"):
        run([accelerated(tmp_path)], device=[-1], raise_errors=True, resume_from=result.record_dir)
    assert read_info(result.record_dir) == before


def test_accelerate_clips(fake):
    run([accelerated()], device=[-1], raise_errors=True)
    assert fake.clipped == 0.25


@pytest.mark.parametrize(("scaler", "nonfinite", "result"), [(None, "skip", "skip"), (object(), "stop", "ignore")])
def test_what_is_not_finite_is_left_to_the_scaler_of_accelerate(fake, scaler, nonfinite, result):
    fake.scaler = scaler
    with Run({"tag": "x", "backward": {"type": f"{HERE}.Backward", "nonfinite": nonfinite, "period": 3}}) as here:
        here.symbols.set_global("accelerator", fake)
        handler = BackwardHandler.from_registry(f"{HERE}.Backward")
        assert (handler.nonfinite, handler.period) == (result, 3)
