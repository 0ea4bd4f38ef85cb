"""`alchemy resume` and `run --resume auto`: choice of the record, allowed changes, and errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alchemy.checkpoint.manifest import checkpoints
from alchemy.files import lock_file
from alchemy.records.status import process_start, read_info
from tests.resume.compare import differences
from tests.resume.conftest import ROOT, Lab, record_of, text_of

KILL, TERM = signal.SIGKILL, signal.SIGTERM
CPU = ("--device", "-1")


def stopped(lab: Lab, folder: Path, **changes: Any) -> Path:
    """The record of a run that was stopped in its second epoch."""
    assert lab.start(folder, [["end_step", 8, TERM]], **changes) == 128 + TERM
    return record_of(folder)


def change_info(record: Path, **fields: Any) -> None:
    info = json.loads((record / "record.json").read_text())
    (record / "record.json").write_text(json.dumps(info | fields))


def test_a_finished_record_has_nothing_to_go_on_with(lab: Lab, tmp_path: Path) -> None:
    assert lab.start(tmp_path) == 0
    assert lab.command(tmp_path, "resume", str(record_of(tmp_path)), *CPU) == 2
    assert "has finished: nothing to resume" in text_of(tmp_path)
    assert "--set sched.epochs=N --allow sched.epochs" in text_of(tmp_path)
    assert read_info(record_of(tmp_path))["gen"] == 0


def test_a_record_that_is_running_is_refused(lab: Lab, tmp_path: Path) -> None:
    record = stopped(lab, tmp_path)
    change_info(record, status="running", pid=os.getpid(), pid_started=process_start(os.getpid()))
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 2
    assert f"is still running, as process {os.getpid()}" in text_of(tmp_path)


def test_a_record_that_another_process_holds_is_refused(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    record = stopped(lab, tmp_path)
    before = (record / "record.json").read_bytes()
    with lock_file(record / ".lock") as free:
        assert free
        assert lab.command(tmp_path, "resume", str(record), *CPU) in (1, 2)
    assert "another process is writing to" in text_of(tmp_path)
    assert (record / "record.json").read_bytes() == before
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 0
    assert differences(baseline, record) == []


RACE = """
import os, sys
from alchemy.records.folder import Record
start, go = os.pipe()
lost, losing = os.pipe()
children = []
for _ in range(6):
    child = os.fork()
    if not child:
        os.close(go)
        os.read(start, 1)  # returns for all at once, when the parent closes its end
        try:
            record = Record.reopen(sys.argv[1])
        except Exception as error:
            print(error, flush=True)
            os.write(losing, b"x")
            os._exit(1)
        for _ in range(5):  # until every other one has tried
            os.read(lost, 1)
        record.finish("stopped")
        os._exit(0)
    children.append(child)
os.close(go)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print("winners", codes.count(0))
"""


def test_of_several_at_the_same_time_one_wins(lab: Lab, tmp_path: Path) -> None:
    record = stopped(lab, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(record)], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert "winners 1" in done.stdout, done.stdout + done.stderr
    assert read_info(record)["gen"] == 1


def test_a_damaged_checkpoint_is_passed_over_and_told(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    record = stopped(lab, tmp_path)
    newest = checkpoints(record / "state")[-1]
    weights = newest / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()  # its files are hard links, shared with other checkpoints
    weights.write_bytes(content)
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 0, text_of(tmp_path)
    assert f"skipping state/{newest.name}: the content of model.safetensors has changed" in text_of(tmp_path)
    assert differences(baseline, record) == []


def test_when_all_checkpoints_are_damaged_it_begins_again(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    record = stopped(lab, tmp_path)
    for folder in checkpoints(record / "state"):
        (folder / "state.json").write_bytes(b"{}")
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 0, text_of(tmp_path)
    assert "training starts from the beginning" in text_of(tmp_path)
    assert differences(baseline, record) == []


def test_from_another_folder_and_by_another_name(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    record = stopped(lab, tmp_path / "数据 é [x]")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ("resume", f"../数据 é [x]/runs/{record.name}", *CPU)
    assert lab.command(tmp_path, *words, cwd=elsewhere) == 0, text_of(tmp_path)
    assert differences(baseline, record) == []
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_no_record_is_told(lab: Lab, tmp_path: Path, name: str) -> None:
    assert lab.command(tmp_path, "resume", name, *CPU) == 2
    assert "record" in text_of(tmp_path)


def test_another_version_of_torch_is_refused_unless_allowed(lab: Lab, tmp_path: Path) -> None:
    record = stopped(lab, tmp_path)
    versions = read_info(record)["versions"]
    change_info(record, versions=versions | {"torch": "1.0"})
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 2
    assert f"torch: 1.0 -> {versions['torch']}" in text_of(tmp_path)
    assert "--allow torch" in text_of(tmp_path)
    assert lab.command(tmp_path, "resume", str(record), "--allow", "torch", *CPU) == 0
    assert read_info(record)["versions"] == versions


def test_what_a_state_refuses_is_still_a_change_at_the_next_try(lab: Lab, tmp_path: Path) -> None:
    """The new data is accepted as a config change, but rejected by the state: it must not be recorded as applied."""
    record = stopped(lab, tmp_path)
    change_info(record, versions=read_info(record)["versions"] | {"torch": "1.0"}, code_hash="another")
    env = (record / "env.json").read_text().replace('"cwd"', '"cwd_"')
    (record / "env.json").write_text(env)
    kept = {name: (record / name).read_bytes() for name in ("cfg.toml", "env.json")}
    other = ("resume", str(record), "--set", "task.datasets.train.pipes.0.count=9", *CPU)
    for _ in range(2):
        assert lab.command(tmp_path, *other, "--allow", "config,torch,code") == 2
        assert "the training data had samples = 10 and now has 9" in text_of(tmp_path)
        assert {name: (record / name).read_bytes() for name in kept} == kept
        info = read_info(record)
        assert (info["versions"]["torch"], info["code_hash"]) == ("1.0", "another")
    assert lab.command(tmp_path, "resume", str(record), "--allow", "torch,code", *CPU) == 0, text_of(tmp_path)
    assert read_info(record)["code_hash"] != "another"
    assert (record / "env.0.json").read_text() == env


@pytest.mark.parametrize("allow", ["optim.lr", "config", "optim.lr,torch"])
def test_a_changed_config_is_refused_by_its_key_unless_allowed(lab: Lab, tmp_path: Path, allow: str) -> None:
    record = stopped(lab, tmp_path)
    before = (record / "cfg.toml").read_text()
    change = ("resume", str(record), "--set", "optim.lr=0.01", *CPU)
    assert lab.command(tmp_path, *change) == 2
    assert "optim.lr: 0.05 -> 0.01" in text_of(tmp_path)
    assert "--allow optim.lr" in text_of(tmp_path)
    assert (record / "cfg.toml").read_text() == before
    assert read_info(record)["status"] == "stopped"
    assert lab.command(tmp_path, *change, "--allow", allow) == 0, text_of(tmp_path)
    assert (record / "cfg.0.toml").read_text() == before
    assert "lr = 0.01" in (record / "cfg.toml").read_text()


def test_what_has_not_changed_cannot_be_allowed(lab: Lab, tmp_path: Path) -> None:
    record = stopped(lab, tmp_path)
    assert lab.command(tmp_path, "resume", str(record), "--allow", "optim.lrr", *CPU) == 2
    assert "--allow optim.lrr: no change with that name" in text_of(tmp_path)


def test_what_does_no_harm_is_told(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    record = stopped(lab, tmp_path)
    changes = ("--set", "task.datasets.train.num_workers=2", "--set", "checkpoint.last=3")
    assert lab.command(tmp_path, "resume", str(record), *changes, *CPU) == 0, text_of(tmp_path)
    told = "since the record was written: task.datasets.train.num_workers 0 -> 2"
    for text, line in (
        ((record / "run.log").read_text(), rf"[\d-]+ [\d:.]+ \| WARNING  \| alchemy\.runner:\d+ \| {re.escape(told)}"),
        ((tmp_path / "log.txt").read_text(), rf"[\d:]+ WARNING {re.escape(told)}"),
    ):
        assert len(re.findall(f"^{line}$", text, re.MULTILINE)) == text.count(told) == 1, text
    assert differences(baseline, record) == []


def test_a_warm_up_that_is_too_long_is_told_once_in_each_start(lab: Lab, tmp_path: Path) -> None:
    warm = {"type": "alchemy.sched.LineWarmup", "epochs": 3, "num_warmup_steps": 99}
    record = stopped(lab, tmp_path, sched={**warm, "pipes": [{"type": "tests.resume.parts.PassES"}]})
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 0, text_of(tmp_path)
    assert (record / "run.log").read_text().count("the warmup (99) is not shorter than training") == 2


@pytest.mark.parametrize(
    "place", [None, ["end_step", 8, TERM], ["end_epoch", 3, KILL]], ids=["finished", "term", "kill"]
)
def test_a_training_is_made_longer(lab: Lab, tmp_path: Path, place: list[Any] | None) -> None:
    """With a constant rate, it equals a run that was long from the start."""
    constant: dict[str, Any] = {"type": "alchemy.sched.Constant", "pipes": [{"type": "tests.resume.parts.ShakeBE"}]}
    constant["pipes"] += [{"type": f"tests.resume.parts.{name}"} for name in ("PassES", "ShakeEE")]
    baseline, _ = lab.baseline(sched={**constant, "epochs": 4})
    lab.start(tmp_path, [place] if place else [], sched={**constant, "epochs": 3})
    record = record_of(tmp_path)
    words = ("resume", str(record), "--set", "sched.epochs=4", *CPU)
    assert lab.command(tmp_path, *words) == 2
    assert lab.command(tmp_path, *words, "--allow", "sched.epochs") == 0, text_of(tmp_path)
    found = differences(baseline, record)
    # with one more evaluation, at the former end
    assert [text for text in found if text.startswith("ledger")] == []
    assert place is None or found == []


def test_what_a_hand_has_written_stays(lab: Lab, tmp_path: Path) -> None:
    record = stopped(lab, tmp_path)
    (record / "README.md").write_text("my notes\n")
    (record / "checkpt" / "mine.txt").write_text("mine")
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 0
    assert (record / "README.md").read_text() == "my notes\n"
    assert (record / "checkpt" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("fault", ["full_disk", "small_files"])
def test_a_full_disk_does_not_end_the_training(lab: Lab, tmp_path: Path, fault: str) -> None:
    baseline, _ = lab.baseline()
    assert lab.start(tmp_path, faults=[fault]) == 0, text_of(tmp_path)
    assert "could not write the checkpoint" in text_of(tmp_path)
    if fault == "full_disk":
        assert differences(baseline, record_of(tmp_path)) == []


@pytest.mark.parametrize("place", [["end_step", 9, KILL], ["forward", 13, TERM]], ids=["kill", "term"])
def test_a_full_disk_loses_nothing_that_was_saved(lab: Lab, tmp_path: Path, place: list[Any]) -> None:
    baseline, _ = lab.baseline()
    assert lab.start(tmp_path, [place], faults=["full_disk"]) in (-KILL, 128 + TERM)
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []


@pytest.mark.parametrize("drawn", [False, True])
def test_auto_goes_on_with_the_newest_that_is_unfinished(lab: Lab, tmp_path: Path, drawn: bool) -> None:
    cfg = Path(lab.write(tmp_path))
    if drawn:
        cfg.write_text("".join(line for line in cfg.read_text().splitlines(True) if not line.startswith("seed")))
    run = ("run", str(cfg), *CPU)
    assert lab.command(tmp_path, *run, bombs=[["end_step", 3, TERM]]) == 128 + TERM
    assert lab.command(tmp_path, *run, bombs=[["end_step", 8, KILL]]) == -KILL
    assert lab.command(tmp_path, *run, "--set", "optim.lr=0.1", bombs=[["end_step", 8, KILL]]) == -KILL
    older, newer, other = sorted((tmp_path / "runs").iterdir())
    for record in (newer, older):
        assert lab.command(tmp_path, *run, "--resume", "auto") == 0, text_of(tmp_path)
        assert f"resuming {record}" in text_of(tmp_path)
        assert read_info(record)["status"] == "finished"
    assert read_info(other)["status"] == "killed"
    assert lab.command(tmp_path, *run, "--resume", "auto") == 0, text_of(tmp_path)
    assert "no unfinished record of this config: starting a new run" in text_of(tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 4
    if not drawn:
        assert differences(lab.baseline()[0], newer) == []


def test_auto_still_finds_a_record_that_was_resumed_with_a_drawn_seed(lab: Lab, tmp_path: Path) -> None:
    cfg = Path(lab.write(tmp_path))
    cfg.write_text("".join(line for line in cfg.read_text().splitlines(True) if not line.startswith("seed")))
    run = ("run", str(cfg), "--resume", "auto", *CPU)
    assert lab.command(tmp_path, *run, bombs=[["end_step", 3, TERM]]) == 128 + TERM
    for _ in range(2):
        assert lab.command(tmp_path, *run, bombs=[["end_step", 3, TERM]]) == 128 + TERM
    assert lab.command(tmp_path, *run) == 0, text_of(tmp_path)
    assert read_info(record_of(tmp_path))["gen"] == 3
