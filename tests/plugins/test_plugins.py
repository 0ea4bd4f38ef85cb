"""Each plugin, by its effect on a run."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loguru import logger

from alchemy import sym_tbl
from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from alchemy.context import current_run
from alchemy.errors import AlchemyError
from alchemy.plugins.base import AlchemyPlugin
from alchemy.runner import AlchemyRunner, run
from tests.toy import config

SEEN: dict[str, Any] = {}


@AlchemyRunner.register()
class Look(AlchemyRunner):
    """Run the function that the test has put into SEEN."""

    def run(self) -> Any:
        return SEEN["do"]()


def go(plugins: list[dict[str, Any]], do: Any = lambda: None, **options: Any) -> Any:
    SEEN["do"] = do
    cfg = {
        "tag": options.pop("tag", "plugins [x] {y} 中文"),
        "seed": 3,
        "runner": f"{Look.__module__}.Look",
        "plugins": plugins,
    }
    (result,) = run([cfg], device=[-1], raise_errors=True, **options)
    return result


def plugin(name: str, **keys: Any) -> dict[str, Any]:
    return {"type": f"alchemy.plugins.{name}", **keys}


def test_basic_setup_writes_to_the_console_safely(capfd: pytest.CaptureFixture[str]) -> None:
    def do() -> None:
        logger.info("a [/b] {c} 中文")
        logger.debug("hidden")
        logging.getLogger("lib").warning("from %s", "stdlib")

    go([plugin("BasicSetup")], do)
    out = capfd.readouterr().out
    assert "a [/b] {c} 中文" in out and "from stdlib" in out and "hidden" not in out


def test_debug_shows_more_and_detects_anomalies(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)

    def do() -> None:
        logger.debug("shown")
        SEEN["state"] = torch.is_anomaly_enabled(), os.environ["CUDA_LAUNCH_BLOCKING"]

    go([plugin("BasicSetup")], do, debug=True)
    assert "shown" in capfd.readouterr().out
    assert SEEN["state"] == (True, "1")
    assert not torch.is_anomaly_enabled()


def test_file_logger_makes_the_record(tmp_path: Path) -> None:
    def do() -> None:
        SEEN["dirs"] = sym_tbl().record_dir, sym_tbl().get_global("record_dir"), sym_tbl().get_global("checkpt_dir")
        logging.getLogger("lib").warning("a %s", "stdlib [line]")

    result = go(
        [plugin("FileLogger", log_dir=str(tmp_path / "日志"), subdirs=["detail_log"])], do, desc="why {this} [run]"
    )
    folder = result.record_dir
    assert SEEN["dirs"] == (folder, folder, folder / "checkpt")
    assert {path.name for path in folder.iterdir()} >= {
        "cfg.toml",
        "README.md",
        "run.log",
        "env.json",
        "checkpt",
        "detail_log",
    }
    assert (folder / "README.md").read_text() == "# plugins [x] {y} 中文\n\nwhy {this} [run]\n"
    assert json.loads((folder / "env.json").read_text())["packages"]["torch"] == torch.__version__


def test_a_run_says_what_differs_from_the_last_one_and_warns_of_an_equal_one(tmp_path: Path) -> None:
    plugins = [plugin("FileLogger", log_dir=str(tmp_path))]
    go(plugins)
    same = (go(plugins).record_dir / "run.log").read_text()
    assert "has finished with the same config, seed and code" in same
    other = (go([*plugins, plugin("Seeding", seed=3)]).record_dir / "run.log").read_text()
    assert "since the last run with this tag" in other and "Seeding" in other and "code: the same" in other


def test_runs_that_draw_different_seeds_are_not_equal(tmp_path: Path) -> None:
    SEEN["do"] = lambda: None
    plugins = [plugin("FileLogger", log_dir=str(tmp_path))]
    cfg = {"tag": "drawn", "runner": f"{Look.__module__}.Look", "plugins": plugins}
    run([cfg], device=[-1], raise_errors=True)
    (result,) = run([cfg], device=[-1], raise_errors=True)
    assert result.record_dir is not None
    log = (result.record_dir / "run.log").read_text()
    assert "since the last run with this tag" in log and "has finished with the same" not in log


def test_a_test_is_compared_with_tests_and_a_training_with_trainings(tmp_path: Path) -> None:
    (tmp_path / "cfg.toml").write_text(dumps(config(tmp_path / "records")))
    words = [str(tmp_path / "cfg.toml"), "--device", "-1"]
    assert main(["run", *words]) == 0 and main(["test", str(newest(tmp_path)), "--device", "-1"]) == 0
    assert "since the last run" not in (newest(tmp_path) / "run.log").read_text()
    assert main(["run", *words, "--set", "optim.lr=0.2"]) == 0
    said = (newest(tmp_path) / "run.log").read_text()
    (told,) = re.findall(r"since the last run with this tag.*?code: the same", said, re.DOTALL)
    assert "lr" in told and "runner" not in told


def newest(root: Path) -> Path:
    return max((root / "records").iterdir())


def test_the_log_file_holds_stdlib_messages_and_tracebacks(tmp_path: Path) -> None:
    def do() -> None:
        try:
            raise ValueError("inner [x] {y}")
        except ValueError:
            logging.getLogger("lib").exception("went %s", "wrong")

    result = go([plugin("BasicSetup"), plugin("FileLogger", log_dir=str(tmp_path))], do)
    log = (result.record_dir / "run.log").read_text()
    assert "went wrong" in log and "Traceback" in log and "inner [x] {y}" in log


def test_without_files_there_is_still_a_summary_writer(tmp_path: Path) -> None:
    plugins = [plugin("FileLogger", log_dir=str(tmp_path / "r")), plugin("TensorboardLogger")]
    go(plugins, lambda: sym_tbl().get_global("summary_writer").add_scalar("a", 1, 1), no_file=True)
    assert not (tmp_path / "r").exists()


def test_a_record_without_a_tag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match="tag"):
        go([plugin("FileLogger", log_dir=str(tmp_path))], tag="")


def test_backup_copies_code_but_no_history_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "src/a.py",
        "src/.git/config",
        "src/.env",
        "src/key.pem",
        "src/__pycache__/a.pyc",
        "src/big/x.bin",
        "one.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    plugins = [
        plugin("FileLogger", log_dir="src/records"),
        plugin("Backup", paths=["alchemy", "src", "one.py"], ignore=["big"]),
    ]
    backup = go(plugins).record_dir / "backup"
    copied = {path.relative_to(backup).as_posix() for path in backup.rglob("*") if path.is_file()}
    assert {path for path in copied if not path.startswith("alchemy/")} == {"src/a.py", "one.py"}
    assert "alchemy/loop.py" in copied


def test_backup_names_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match="nowhere"):
        go([plugin("FileLogger", log_dir=str(tmp_path)), plugin("Backup", paths=["nowhere"])])


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def do() -> None:
        current_run().log({"train/loss": 0.5}, 7)
        sym_tbl().get_global("board").add_scalar("mine", 2.0, 1)

    result = go([plugin("FileLogger", log_dir=str(tmp_path)), plugin("TensorboardLogger", varname="board")], do)
    events = EventAccumulator(str(result.record_dir)).Reload()
    assert [(row.step, row.value) for row in events.Scalars("train/loss")] == [(7, 0.5)]
    assert events.Scalars("mine")[0].value == 2.0


def test_seeding_reaches_every_generator_and_ends_with_the_run() -> None:
    def draw() -> tuple[float, float, float, bool]:
        deterministic = torch.are_deterministic_algorithms_enabled()
        return random.random(), float(np.random.rand()), float(torch.rand(())), deterministic

    plugins = [plugin("Seeding", seed=3, use_deterministic_algorithms=True)]
    first, second = go(plugins, draw).ret, go(plugins, draw).ret
    assert first == second and first[3] is True
    assert not torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_running_info_shows_what_runs(capfd: pytest.CaptureFixture[str]) -> None:
    go([plugin("BasicSetup"), plugin("DisplayRunningInfo")])
    out = capfd.readouterr().out
    for text in ("plugins [x] {y} 中文", "cpu", torch.__version__):
        assert text in out
    assert 'type = "alchemy' not in out
    go([plugin("BasicSetup", level="DEBUG"), plugin("DisplayRunningInfo")])
    assert 'type = "alchemy.plugins.BasicSetup"' in capfd.readouterr().out


@AlchemyPlugin.register()
class Old(AlchemyPlugin):
    def __enter__(self) -> Any:
        SEEN["calls"].append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        SEEN["calls"].append(("exit", kind))


@AlchemyPlugin.register()
class New(AlchemyPlugin):
    def exit(self) -> None:
        SEEN["calls"].append(("new", sys.exc_info()[0]))
        raise OSError("one failing exit does not stop the rest")


def test_old_plugins_enter_and_exit_and_all_see_the_failure() -> None:
    SEEN["calls"] = []

    def fail() -> None:
        raise ZeroDivisionError("x")

    with pytest.raises(OSError, match="does not stop the rest"):
        go([{"type": f"{Look.__module__}.Old"}, {"type": f"{Look.__module__}.New"}], fail)
    assert SEEN["calls"] == ["enter", ("new", ZeroDivisionError), ("exit", OSError)]


def test_a_run_ends_with_what_its_record_has_cost(tmp_path: Path) -> None:
    (result,) = run([config(str(tmp_path))], device=[-1], raise_errors=True)
    log = (result.record_dir / "run.log").read_text()
    (line,) = [line for line in log.splitlines() if "tracking overhead" in line]
    names = ("metrics", "ledger", "checkpoints", "background threads")
    pattern = r"in [\d.]+ s: " + "; ".join(rf"{name} [\d.]+ s, [\d.]+%" for name in names) + "$"
    assert re.search(pattern, line), line


def test_odd_folders_of_records_are_kept_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = go([plugin("FileLogger", log_dir=str(tmp_path / "{lr} [x]"))]).record_dir
    assert json.loads((folder / "record.json").read_text())["status"] == "finished"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert go([plugin("FileLogger", log_dir="~/r")]).record_dir.parent == tmp_path / "home" / "r"
    with pytest.raises(AlchemyError, match=r"subdirs\.0 must be a relative path without '\.\.'.*'\.\./\.\./esc'"):
        go([plugin("FileLogger", log_dir=str(tmp_path), subdirs=["../../esc"])])


def test_a_link_that_leads_to_itself_does_not_stop_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "loop").symlink_to("loop")
    folder = go([plugin("FileLogger", log_dir="records"), plugin("Backup", paths=["src"])]).record_dir
    assert (folder / "backup" / "src").is_dir()


def test_a_record_folder_that_vanishes_does_not_fail_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def do() -> None:
        shutil.rmtree(sym_tbl().record_dir)
        Path(sym_tbl().record_dir).write_text("in its way")

    assert go([plugin("BasicSetup"), plugin("FileLogger", log_dir=str(tmp_path))], do).status == "finished"
    assert "record.json could not be set to status finished: [Errno" in capfd.readouterr().out


def test_a_run_inside_a_run_leaves_its_random_numbers_alone() -> None:
    def draw() -> float:
        return float(torch.rand(()))

    def draw_after_another() -> float:
        outer = SEEN["do"]
        go([], lambda: torch.rand(100))
        SEEN["do"] = outer
        return draw()

    assert go([], draw).ret == go([], draw_after_another).ret
