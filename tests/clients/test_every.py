"""A project that overrides every method of the bases, and calls `super()` in each, trains, evaluates and tests."""

import json

import pytest

# names of CONTRACT.md; a training run calls all of them
METHODS = {
    "EveryTask": "__init__ max_positions load_dataset dataset step eval_step begin_eval end_eval",
    "EveryModel": "__init__ forward optim_params max_positions set_requires_grad train eval to save",
    "EveryHandler": "__init__ backward",
    "EveryOptimizer": "__init__ params param_groups get_lr zero_grad multiply_grads step reset",
    "EverySchedule": "__init__ __iter__ begin_train_step end_train_step end_train_epoch step_lr reset_lr_sched",
    "EveryTrainer": "__init__ __enter__ __exit__ run",
    "EveryItr": "__init__ require_single_source __iter__",
    "EveryLst": "__init__ __getitem__ __len__ __iter__",
    "EveryCollate": "__init__ __call__",
    "EveryOutput": "__init__ __call__",
    "EveryEval": "__init__ begin_eval __call__",
    "EverySched": "__init__ __call__",
    "EveryPlugin": "__init__ exit",
    "EveryOldPlugin": "__init__ __enter__ __exit__",
}


def only(folder):
    (record,) = folder.iterdir()
    return record


def calls(record):
    return set(json.loads((record / "calls.json").read_text()))


@pytest.fixture(scope="module")
def trained(project, alchemy):
    done = alchemy(project, "run", "every.toml", "--device", "-1", "--test")
    return only(project / "records/every/train"), done


@pytest.mark.parametrize("part", METHODS)
def test_every_method_was_called(trained, part):
    assert {f"{part}.{name}" for name in METHODS[part].split()} <= calls(trained[0])


def test_it_learns(trained):
    assert json.loads((trained[0] / "best_info.json").read_text())["f1_micro"] > 0.8
    assert list(trained[0].glob("checkpt/best/base/model.safetensors"))


def test_the_command_tests_it_though_its_eval_pipe_reads_the_step(trained, project):
    record = only(project / "records/every/test")
    (row,) = (record / "evals.jsonl").read_text().splitlines()
    row = json.loads(row)
    assert (row["split"], row["step"]) == ("test", 17)  # of the last state: the project saves the best one itself
    assert row["score"]["f1_micro"] > 0.8


TEST = """
import sys
from alchemy import prepare_cfg, run

cfg = prepare_cfg(cfg=sys.argv[1] + "/cfg.toml")
cfg["runner"] = "src.every.EveryTester"
for section in ("sched", "optim"):
    cfg.pop(section)
cfg["model"]["model_path"] = sys.argv[1] + "/checkpt/best"
cfg["plugins"][1]["log_dir"] = "records/every/own test"
cfg["task"]["evalpipes"][0]["store_history"] = False
(result,) = run([cfg], device=[-1])
if isinstance(result, Exception):
    raise result
"""


def test_its_own_script_tests_it_and_knows_no_schedule(trained, project, start):
    start(project, "-c", TEST, trained[0])
    record = only(project / "records/every/own test")
    assert json.loads((record / "best_info.json").read_text())["step"] == "unk"
    assert {f"EveryTester.{name}" for name in ("__init__", "__enter__", "__exit__", "run")} <= calls(record)


def test_schedule_and_optimizer_of_torch_are_made_anew_mid_training(project, alchemy):
    parts = {"sched": "EveryTorchSchedule", "optim": "EveryTorchOptimizer"}
    words = [word for table, name in parts.items() for word in ("--set", f"{table}.type='src.every.{name}'")]
    words += ["--set", "plugins.1.log_dir='records/every/torch'", "--set", "sched.epochs=2"]
    alchemy(project, "run", "every.toml", "--device", "-1", *words)
    made = calls(only(project / "records/every/torch"))
    assert {"EveryTorchSchedule.reset_lr_sched", "EveryTorchOptimizer.reset"} <= made


def test_a_key_that_only_forward_reads_is_no_warning(trained, project, alchemy):
    deep = alchemy(project, "check", "every.toml", "--deep")
    for said in (trained[1], deep):
        assert "read_in_forward" not in said.stdout + said.stderr
        assert "never read" not in said.stdout + said.stderr
