"""Runs: one or several, successful or failing, finished or ended by a signal."""

from __future__ import annotations

import gc
import json
import pickle
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest

from alchemy import prepare_cfg, sym_tbl
from alchemy.context import current_run
from alchemy.errors import AlchemyError, ConfigError
from alchemy.records.status import read_info
from alchemy.result import FailedRun, RunResult
from alchemy.runner import run
from tests.toy import config


def go(cfg: Any, **options: Any) -> Any:
    (result,) = run([cfg], device=[-1], **options)
    return result


def with_pipe(log_dir: Path | None, pipe: str, **keys: Any) -> dict[str, Any]:
    return config(log_dir, sched__pipes=[{"type": f"tests.toy.{pipe}", **keys}])


def test_a_run_gives_folder_config_numbers(tmp_path: Path) -> None:
    result = go(config(tmp_path))
    assert isinstance(result, RunResult) and not isinstance(result, Exception)
    assert result.record_dir.parent == tmp_path
    assert (result.status, result.cfg["tag"], result.exception) == ("finished", "toy", None)
    assert result.ret["loss"] < 1


def test_a_failed_run_is_an_exception_with_its_traceback_in_the_log(tmp_path: Path) -> None:
    result = go(with_pipe(tmp_path, "FailAt", step=2))
    assert isinstance(result, FailedRun) and isinstance(result, Exception)
    assert "[/x] broke with {braces} and 中文" in str(result)
    log = (result.record_dir / "run.log").read_text()
    assert "Traceback" in log and "[/x] broke with {braces} and 中文" in log
    info = read_info(result.record_dir)
    assert (info["status"], info["reason"]) == ("failed", "RuntimeError: [/x] broke with {braces} and 中文")
    again = pickle.loads(pickle.dumps(result))
    assert (str(again), again.record_dir) == (str(result), result.record_dir)
    with pytest.raises(FailedRun, match="broke with"):
        raise again


def test_a_failed_run_does_not_poison_the_next(tmp_path: Path) -> None:
    assert isinstance(go(with_pipe(None, "FailAt", step=0)), Exception)
    assert sym_tbl().model is None
    assert go(config()).status == "finished"


def test_errors_can_be_let_through(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broke with"):
        go(with_pipe(None, "FailAt", step=0), raise_errors=True)
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        go(config(sched={"type": "alchemy.sched.Constant", "epoch": 1}), raise_errors=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_a_complete_record(tmp_path: Path, number: int) -> None:
    result = go(with_pipe(tmp_path, "SignalAt", step=3, number=int(number)))
    assert (result.status, result.signal) == ("stopped", number)
    info = read_info(result.record_dir)
    assert info["status"] == "stopped" and f"signal {int(number)}" in info["reason"]
    assert (result.record_dir / "state" / "last" / "model.safetensors").is_file()
    rows = (result.record_dir / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["step"] == 3


def test_model_task_and_data_are_freed() -> None:
    seen: list[Any] = []

    def watch(cfg: Any, device_info: Any, **kwargs: Any) -> Any:
        from alchemy.runner import AlchemyTrainer, run_task

        class Watched(AlchemyTrainer):
            def run(self) -> Any:
                answer = super().run()
                context = current_run()
                dataset = context.task.dataset("train")[0]
                seen.extend(weakref.ref(x) for x in (context.model, context.task, context.optim, dataset))
                return answer

        AlchemyTrainer.register("Watched", exist_ok=True)(Watched)
        cfg["runner"] = f"{Watched.__module__}.Watched"
        return run_task(cfg, device_info, **kwargs)

    result = go(config(), run_task_fn=watch)
    gc.collect()
    assert result.status == "finished", result
    assert len(seen) == 4
    assert [ref() for ref in seen] == [None] * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"type": "tests.toy.Broken"}}, r"no \[weights\] in \{here\}"),
        ({"model": {"type": "tests.toy.NoLoss"}}, r"NoLoss.forward\(needs_loss=True\) returned a dict with 'y'"),
        ({"model": {"type": "tests.toy.Lines"}}, "did you mean 'Line'"),
        ({"runner": "alchemy.runner.Trainr"}, "did you mean 'Trainer'"),
        ({"task": {"type": "alchemy.task.DefaultTask", "datasets": {}}}, "train"),
        ({"sched": {"type": "alchemy.sched.LineWarmup", "epochs": 0}}, "epochs|no batch|nothing"),
        ({"optim": {}}, "optim"),
    ],
)
def test_what_is_wrong_ends_in_one_clear_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as info:
        go(config(**changes), raise_errors=True)
    assert isinstance(info.value, AlchemyError | ValueError)
    assert not isinstance(info.value, KeyError)


def test_empty_data_and_missing_splits_are_named() -> None:
    cfg = config()
    cfg["task"]["datasets"]["train"] = {"pipes": [{"type": "tests.toy.Points", "count": 0}], "batch_size": 4}
    with pytest.raises(AlchemyError, match=r"the data is empty: tests\.toy\.Points"):
        go(cfg, raise_errors=True)
    cfg = config(runner="alchemy.runner.Tester")
    del cfg["task"]["datasets"]["test"]
    with pytest.raises(AlchemyError, match="test"):
        go(cfg, raise_errors=True)


def test_a_tester_needs_no_optimizer_or_schedule() -> None:
    cfg = config(runner="alchemy.runner.Tester")
    for section in ("optim", "sched"):
        del cfg[section]
    assert go(cfg, raise_errors=True).ret["score"] > 0


def test_inference_writes_predictions(tmp_path: Path) -> None:
    cfg = config(tmp_path, runner="alchemy.runner.InferenceRunner")
    cfg["task"]["datasets"] = {"inference": cfg["task"]["datasets"]["dev"]}
    result = go(cfg, raise_errors=True)
    rows = [json.loads(line) for line in Path(result.ret["file"]).read_text().splitlines()]
    assert len(rows) == result.ret["predictions"] == 16
    assert set(rows[0]) == {"y"}


@pytest.mark.usefixtures("forked_runs")
def test_several_configs_run_in_processes_and_come_back_in_order(tmp_path: Path) -> None:
    cfgs = [
        config(tmp_path, tag="good [a] {b}"),
        with_pipe(tmp_path, "FailAt", step=1),
        with_pipe(tmp_path, "SignalAt", step=1, number=int(signal.SIGKILL)),
    ]
    good, failed, killed = run(cfgs, device=[-1], task_per_device=3)
    assert (good.status, good.cfg["tag"]) == ("finished", "good [a] {b}")
    assert isinstance(failed, Exception) and "broke with" in str(failed)
    assert isinstance(killed, Exception) and "killed by SIGKILL" in str(killed)
    statuses = sorted(read_info(folder)["status"] for folder in tmp_path.iterdir())
    assert statuses == ["failed", "finished", "killed"]


def test_a_wrong_config_among_several_does_not_stop_the_others() -> None:
    bad, good = run([config(model={"type": "no.Such"}), config()], device=[-1])
    assert isinstance(bad, Exception) and "no.Such" in str(bad)
    assert good.status == "finished"


def test_sys_exit_in_a_part_is_a_failed_run() -> None:
    result = go(config(model={"type": "tests.toy.Exits"}))
    assert isinstance(result, Exception)
    assert "a part called sys.exit(0)" in str(result)


def test_a_plugin_that_fails_at_the_end_makes_the_run_a_failed_one(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    cfg["plugins"].append({"type": "tests.toy.BadExit"})
    result = go(cfg)
    info = read_info(result.record_dir)
    assert (result.status, info["status"], info["reason"]) == (
        "failed",
        "failed",
        "OSError: cannot leave; in BadExit.exit, at the end of the run",
    )


def test_no_device_named_means_that_alchemy_chooses() -> None:
    assert [result.status for result in run([config(), config()], device=[])] == ["finished", "finished"]


def test_the_first_failure_of_several_can_be_let_through(tmp_path: Path) -> None:
    with pytest.raises(FailedRun, match="broke with"):
        run([config(), with_pipe(None, "FailAt", step=1)], device=[-1], task_per_device=2, raise_errors=True)


def test_a_variant_stands_in_its_record(tmp_path: Path) -> None:
    cfg = prepare_cfg({**config(tmp_path), "variant": {"fast": {"optim": {"lr": 0.5}}}}, variant="fast")
    folder = go(cfg).record_dir
    info = read_info(folder)
    assert (info["variant"], info["delta"]) == ("fast", {"optim": {"lr": 0.5}})
    assert "Variant `fast`" in (folder / "README.md").read_text()
    assert "lr = 0.5" in (folder / "README.md").read_text()
