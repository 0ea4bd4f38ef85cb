"""`alchemy rerun`: a run is repeated from its record alone, and compared with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from alchemy.plugins.file_logger import hash_code
from alchemy.records.status import read_info
from tests.logs import warned
from tests.tasks import texts

CPU = ["--device", "-1"]


@pytest.fixture(autouse=True)
def settings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rerun changes settings of its process."""
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    for name in ("PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.fixture
def record(trained_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of a run in a copy of the project, which is the working directory."""
    project = tmp_path / "my project"
    shutil.copytree(trained_project, project, symlinks=True)
    monkeypatch.chdir(project)
    (found,) = (project / "records" / "train").iterdir()
    edit(found / "env.json", cwd=str(project))
    return found


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def newest(record: Path) -> Path:
    return max(record.parent.iterdir())


def test_a_rerun_uses_the_code_of_the_record_and_has_the_same_results(record: Path, capfd: Any) -> None:
    shutil.rmtree("src")
    files = {path: path.stat().st_mtime_ns for path in record.rglob("*")}
    assert main(["rerun", str(record)]) == 0
    assert "identical metrics and ledger (7 rows, 29 updates)" in capfd.readouterr().out
    assert sys.modules["src.model"].__file__ == str(record / "backup" / "src" / "model.py")
    assert {path: path.stat().st_mtime_ns for path in record.rglob("*")} == files
    before, after = read_info(record), read_info(newest(record))
    assert (after["parent"], after["kind"], after["purpose"]) == (before["id"], "train", f"rerun of {before['id']}")
    for key in ("fold_hash", "code_hash", "code", "seed", "best"):
        assert after[key] == before[key], key
    assert main(["rerun", str(newest(record))]) == 0  # its backup is complete too
    assert "identical metrics and ledger" in capfd.readouterr().out


def test_predictions_use_the_code_of_the_record_if_there_is_no_other(record: Path, capfd: Any) -> None:
    shutil.rmtree("src")
    copy = record / "backup" / "src"
    assert main(["predict", str(record), *CPU]) == 0
    assert f"src not found: using the code in {copy}" in capfd.readouterr().err
    Path("new.csv").write_text("x,y\n0.1,0.2\n")
    assert main(["predict", str(record), *CPU, "--file", "new.csv"]) == 0
    told = capfd.readouterr().err
    assert f"src not found: using the code in {copy}" in told and "warning" not in told
    with alchemy.load(record) as model:
        assert type(model.module).__module__ == "src.model"
    assert sys.modules["src.model"].__file__ == str(copy / "model.py")
    (copy / "model.py").write_text("raise RuntimeError('attacked')\n")
    assert main(["predict", str(record), *CPU]) == 2
    assert f"cannot import code from {copy}: it is in an untrusted record" in capfd.readouterr().err


def test_weights_that_meet_other_code_are_a_warning(record: Path, capfd: Any) -> None:
    with Path("src/model.py").open("a") as file:
        file.write("# a new idea\n")
    Path("src/unused.py").write_text("")
    changed, copy = "since the run: src/model.py has changed; to use the code of the run: ", record / "backup" / "src"
    assert main(["test", str(record), *CPU]) == 0
    assert f"warning: {changed}--user-dir '{copy}'\n" in capfd.readouterr().err
    (tested,) = (record.parents[1] / "test").iterdir()
    was, now = read_info(record), read_info(tested)
    assert now["code_hash"] == hash_code("src") != was["code_hash"]
    assert now["code"]["src/model.py"] != was["code"]["src/model.py"]
    with warned() as lines, alchemy.load(record):
        assert f"{changed}user_dir='{copy}'" in lines
    with warned() as lines, alchemy.load(record, user_dir=str(copy)):
        assert lines == []


def test_code_in_the_working_directory_is_not_used(record: Path, capfd: Any) -> None:
    for name in ("src/model.py", "src/__init__.py", "torch_helpers.py", "optuna.py"):
        Path(name).write_text("raise RuntimeError('imported from the working directory')\n")
    assert main(["rerun", str(record)]) == 0
    assert "identical metrics and ledger" in capfd.readouterr().out
    assert "imported from" not in (newest(record) / "backup" / "src" / "model.py").read_text()
    assert os.getcwd() not in sys.path


def test_another_seed_or_setting_is_another_run(record: Path, capfd: Any) -> None:
    assert main(["rerun", str(record), "--seed", "2", "--set", "optim.lr=0.02", "--desc", "why"]) == 0
    told = capfd.readouterr().out
    assert "metrics: first logged difference at update 5: train/loss" in told
    assert "ledger: the runs diverge at update 1 (epoch 1): the record saw n=32" in told
    info = read_info(newest(record))
    assert (info["seed"], info["purpose"], info["parent"]) == (2, "why", record.name)
    assert info["fold_hash"] != read_info(record)["fold_hash"]


def test_other_results_of_the_same_config_are_exit_code_1(record: Path, capfd: Any) -> None:
    rows = (record / "metrics.jsonl").read_text().splitlines(keepends=True)
    rows[1] = rows[1].replace('"train/loss": ', '"train/loss": 1')
    (record / "metrics.jsonl").write_text("".join(rows))
    assert main(["rerun", str(record)]) == 1
    told = "".join(capfd.readouterr())
    assert "metrics: first logged difference at update 10: train/loss 1" in told and "ledger: equal for all 29" in told
    assert f"alchemy diff '{record}' '{newest(record)}'" in told


def test_a_stopped_run_is_compared_up_to_its_end(record: Path, capfd: Any) -> None:
    for name, count in (("metrics.jsonl", 2), ("ledger.jsonl", 11)):
        rows = (record / name).read_text().splitlines(keepends=True)
        (record / name).write_text("".join(rows[:count]))
    edit(record / "record.json", status="killed")
    assert main(["rerun", str(record)]) == 0
    told = capfd.readouterr().out
    assert "identical metrics and ledger up to the end of the record, which was killed (2 rows, 11 updates)" in told
    edit(record / "record.json", status="finished")
    assert main(["rerun", str(record)]) == 1


def test_what_may_change_the_results_is_a_warning(record: Path, capfd: Any) -> None:
    versions = read_info(record)["versions"] | {"alchemy": "0.9", "torch": "1.0"}
    own = {"hash": "x", "commit": "3fa2" * 10, "dirty": False}
    edit(record / "record.json", versions=versions, alchemy=own)
    edit(record / "env.json", threads=2)
    assert main(["rerun", str(record), *CPU]) in (0, 1)
    told = capfd.readouterr().err
    assert "warning: since the run: alchemy: 0.9 -> " in told and "warning: since the run: torch: 1.0 -> " in told
    assert "the code of alchemy has changed (3fa23fa23f -> " in told
    assert json.loads((newest(record) / "env.json").read_text())["threads"] == 2


@pytest.mark.parametrize("part", ["cfg.toml", "backup/src/model.py", "backup/src/__pycache__/model.cpython-311.pyc"])
def test_a_record_that_was_changed_is_not_trusted(part: str, record: Path, capfd: Any) -> None:
    (record / part).parent.mkdir(exist_ok=True)
    with open(record / part, "a") as file:
        file.write("\n")
    if part.endswith(".py"):
        (record / part).write_text("open('attacked', 'w')\n")
    assert main(["rerun", str(record)]) == 2
    what = "its config was" if part == "cfg.toml" else "the code in backup/ was"
    told = capfd.readouterr().err
    assert f"cannot be rerun: {what} not written by one of your runs, or has been edited since" in told
    assert f"alchemy trust '{record}'" in told and not Path("attacked").exists()
    assert newest(record) == record


def test_a_trusted_record_can_be_rerun_and_trust_can_be_taken_back(record: Path, capfd: Any) -> None:
    with (record / "backup" / "src" / "data.py").open("a") as file:
        file.write("# harmless\n")
    assert main(["rerun", str(record)]) == 2
    assert main(["trust", str(record)]) == 0
    assert f"the code in {record / 'backup'}" in capfd.readouterr().out
    assert main(["rerun", str(record)]) == 0
    assert "src/data.py in backup/ is not the file that the run imported" in capfd.readouterr().err
    assert main(["trust", str(record), "--remove"]) == 0
    assert main(["rerun", str(record)]) == 2


def test_a_folder_that_is_not_a_whole_record_is_refused(record: Path, capfd: Any) -> None:
    """Trust is checked for records, so that a folder that does not look like one must not be run."""
    stranger = record.parent / "2020-01-01_00-00-00.000000"
    shutil.copytree(record / "backup", stranger / "backup")
    (stranger / "cfg.toml").write_text((record / "cfg.toml").read_text() + "# edited\n")
    (stranger / "run.log").write_text("")
    assert main(["rerun", "2020"]) == 2
    assert "is not a complete record" in capfd.readouterr().err


def test_links_in_the_backup_do_not_lead_out_of_it(record: Path, capfd: Any) -> None:
    (record / "backup" / "src" / "model.py").unlink()
    (record / "backup" / "src" / "model.py").symlink_to(Path("src/model.py").absolute())
    assert main(["trust", str(record)]) == 0
    assert main(["rerun", str(record)]) == 2
    assert "backup contains links that point outside it: src/model.py -> " in capfd.readouterr().err


def test_missing_code_is_named(record: Path, capfd: Any) -> None:
    shutil.rmtree(record / "backup")
    assert main(["rerun", str(record)]) == 2
    told = capfd.readouterr().err
    assert "it lacks code that the run imported: src/__init__.py, src/" in told
    assert 'use the plugin { type = "alchemy.plugins.Backup", paths = ["src"] }' in told
    edit(record / "record.json", git={"commit": "3fa2" * 10, "branch": "main", "dirty": True})
    (record / "git.diff").write_text("")
    assert main(["rerun", str(record)]) == 2
    assert "check out commit 3fa23fa23f and apply git.diff, and run `alchemy run " in capfd.readouterr().err


def test_the_whole_project_may_be_the_backup(record: Path, capfd: Any) -> None:
    words = ["sched.epochs=1", 'plugins.Backup.paths=["."]', 'plugins.Backup.ignore=["data"]']
    assert main(["run", "train.toml", *CPU, *(f"--set={word}" for word in words)]) == 0
    shutil.rmtree("src")
    code = read_info(record)["code"] | {"start.py": "x"}  # the script that started the run is not needed
    edit(newest(record) / "record.json", cmd=["/elsewhere/start.py"], code=code)
    assert main(["rerun", "last"]) == 0
    assert "identical metrics and ledger" in capfd.readouterr().out
    assert (newest(record) / "backup" / "my project" / "src" / "model.py").is_file()


def test_missing_data_is_named_with_the_folder_that_paths_refer_to(record: Path, capfd: Any) -> None:
    os.rename("data", "gone")
    assert main(["rerun", str(record)]) == 2
    told = capfd.readouterr().err
    assert "file not found: 'data/train.csv'" in told and f"rerunning {record} in {os.getcwd()}" in told
    assert newest(record) == record


def test_paths_refer_to_the_current_folder_if_that_of_the_run_is_gone(record: Path, capfd: Any) -> None:
    edit(record / "env.json", cwd="/does/not/exist")
    assert main(["rerun", str(record)]) == 0
    here = f"the working directory of the run, /does/not/exist, does not exist: relative paths refer to {os.getcwd()}"
    assert here in capfd.readouterr().err


def test_a_rerun_starts_in_the_folder_of_the_run(record: Path, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rerun", str(record)]) == 0
    assert os.getcwd() == str(tmp_path) and str(newest(record)) in capfd.readouterr().out


def test_the_rerun_of_a_copy_is_written_next_to_the_copy(record: Path, tmp_path: Path, capfd: Any) -> None:
    copy = tmp_path / "copies" / record.name
    shutil.copytree(record, copy)
    assert main(["rerun", str(copy), "--device", "-1"]) == 0
    assert "identical metrics" in capfd.readouterr().out
    assert len(list(copy.parent.iterdir())) == 2


def test_a_test_is_rerun_too(record: Path, capfd: Any) -> None:
    assert main(["test", str(record), *CPU]) == 0
    shutil.rmtree("src")
    (tested,) = (record.parents[1] / "test").iterdir()
    assert main(["rerun", str(tested)]) == 0
    again = read_info(newest(tested))
    assert (again["kind"], again["parent"]) == ("test", tested.name)
    assert "identical metrics (1 row)" in capfd.readouterr().out


def test_parts_of_alchemy_need_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = texts.config(tmp_path, "classification")
    cfg["sched"]["epochs"] = 1
    (tmp_path / "train.toml").write_text(dumps(cfg))
    assert main(["run", "train.toml", *CPU]) == 0
    assert main(["rerun", "last"]) == 0
    assert "identical metrics and ledger" in capfd.readouterr().out


def test_a_running_record_and_a_wrong_name_are_refused(record: Path, capfd: Any) -> None:
    from alchemy.records.folder import Record

    running = Record.create(record.parent, name="2027", tag="t", files={"cfg.toml": "tag = 't'\n"})
    assert main(["rerun", "2027"]) == 2
    assert "is still running, as process" in capfd.readouterr().err
    running.finish("finished")
    assert main(["rerun", "nothing"]) == 2
    assert "record not found: 'nothing'" in capfd.readouterr().err


@pytest.mark.slow
def test_the_demo_is_reproduced_in_another_process(tmp_path: Path) -> None:
    def alchemy(*words: str, folder: Path) -> str:
        command = [sys.executable, "-m", "alchemy", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    alchemy("new", "demo", folder=tmp_path)
    alchemy("run", "train.toml", *CPU, folder=tmp_path / "demo")
    assert "identical metrics and ledger" in alchemy("rerun", "last", folder=tmp_path / "demo")
    shutil.rmtree(tmp_path / "demo" / "src")
    assert "identical metrics and ledger" in alchemy("rerun", "last~1", folder=tmp_path / "demo")


def test_a_failure_is_reproduced_and_an_interruption_is_not_compared(record: Path, capfd: Any) -> None:
    words = ["--set", 'sched.pipes=[{type = "tests.toy.SignalAt", step = 12}]']
    assert main(["rerun", str(record), *words]) == 130
    assert "compared with" not in capfd.readouterr().out
    Path("src/scores.py").write_text(Path("src/scores.py").read_text().replace("return", "1 / 0; return"))
    assert main(["run", "train.toml", *CPU, "--set", "sched.epochs=1"]) == 1
    shutil.rmtree("src")
    assert main(["rerun", str(newest(record))]) == 1
    assert "identical metrics and ledger" in capfd.readouterr().out
