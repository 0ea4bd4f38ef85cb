"""`alchemy run`, `test` and `predict`, in the project of `alchemy new`."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alchemy.cli import main
from tests.cli.pipes_in_project import QUICK, add_pipe, records


def test_train_then_test_then_predict(project, capsys):
    assert main(["run", "train.toml", "--device", "-1", "--desc", "first"]) == 0
    (record,) = records(project)
    head, row = capsys.readouterr().out.splitlines()[-2:]
    assert head.split() == ["experiment", "status", "best", "epoch", "dev", "record"]
    assert re.match(rf"train.toml +finished +\d+/12 +accuracy [\d.]+ .*{record.relative_to(project)}$", row)
    assert json.loads((record / "record.json").read_text())["purpose"] == "first"

    assert main(["test", str(record), "--device", "-1"]) == 0
    streams = capsys.readouterr()
    assert float(re.search(r"accuracy ([\d.]+)", streams.out)[1]) > 0.9
    weights = rf"weights: {record}/state/best, epoch \d+/12, update \d+\n"
    assert re.search(weights, streams.out)
    (tested,) = records(project, "test")
    assert json.loads((tested / "record.json").read_text())["parent"] == record.name
    left_out = "[sched], [optim], [checkpoint], [task.datasets.train], [task.datasets.dev]"
    assert f"not needed: {left_out}\n" in streams.err

    # the latest record with weights, which is not that of the test
    assert main(["predict", "latest", "--out", "p.csv", "--no-file"]) == 0
    with open("p.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 150
    assert sum(row["pred"] == row["label"] for row in rows) > 135
    assert main(["predict", record.name, "--split", "dev"]) == 0
    (result,) = records(project, "inference")
    assert len((result / "results" / "predictions.jsonl").read_text().splitlines()) == 150


def test_the_newest_record_with_weights_is_the_latest(project, capsys):
    for _ in range(2):
        assert main(["run", "train.toml", *QUICK]) == 0
    _, new = records(project)
    shutil.rmtree(new / "state" / "best")
    capsys.readouterr()
    assert main(["test", "latest", "--device", "-1", "--desc", ""]) == 0
    assert f"{new.relative_to(project)} has no checkpoint 'best': using 'last'\n" in capsys.readouterr().err
    (tested,) = records(project, "test")
    assert json.loads((tested / "record.json").read_text())["purpose"] == f"test of {new.relative_to(project)}"
    assert main(["test", "latest", "--checkpoint", "best"]) == 2
    assert "has no checkpoint 'best'; choose one with --checkpoint: last, u29" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False], ids=["record", "no record"])
def test_a_failure_is_printed_once_and_its_cause_first(project, capsys, kept):
    assert main(["run", add_pipe(project, "Boom"), *QUICK, *([] if kept else ["--no-file"])]) == 1
    out = capsys.readouterr().out
    _, lines = out.split("Boom.toml failed: ")
    assert lines.startswith(
        'ValueError: boom [x] {y}\n  at src/steps.py:15 in __call__: raise ValueError("boom [x] {y}")\n'
    )
    if kept:
        (record,) = records(project)
        log = record.relative_to(project) / "run.log"
        assert f"  log: {log}\n" in lines and "Traceback" not in out and out.count("ValueError: boom") == 1
        assert log.read_text().count("Traceback (most recent call last)") == 1
    else:  # no other folder contains it
        assert out.count("Traceback (most recent call last)") == 1


def test_raise_shows_the_traceback(project, capsys):
    assert main(["run", add_pipe(project, "Boom"), *QUICK, "--raise", "--no-file"]) == 1
    assert "steps.py" in capsys.readouterr().err.partition("Traceback")[2]
    assert not (project / "records").exists()


def test_pdb_opens_where_it_failed(project, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr("pdb.post_mortem", lambda trace: seen.append(trace))
    assert main(["run", add_pipe(project, "Boom"), *QUICK, "--pdb", "--no-file"]) == 1
    while seen[0].tb_next:
        seen = [seen[0].tb_next]
    assert seen[0].tb_frame.f_code.co_name == "__call__"


def test_fast_dev_run_leaves_nothing(project, capsys):
    assert main(["run", "train.toml", "--fast-dev-run", "2", "--device", "-1"]) == 0
    assert "finished" in capsys.readouterr().out
    assert not (project / "records").exists()


def test_a_device_that_is_not_there_is_the_users_error(project, capsys):
    assert main(["run", "train.toml", "--device", "99"]) == 2
    assert capsys.readouterr().err.startswith("error: no device 99")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["test", "latest"], "no record with weights below this folder"),
        (["run", "train.toml", "--background", "--device", "99"], "no device 99"),
        (["test", "2026-01-01"], "record not found: '2026-01-01'"),
        (["test", "none.toml"], "config file not found: 'none.toml'"),
        (["test", "."], "is not a record"),
        (["predict", "train.toml", "--out", "p.txt"], "p.txt does not end in .jsonl or .csv"),
        (["predict", "train.toml", "--out", "p.csv", "--format", "jsonl"], "p.csv does not end in .jsonl"),
        (["predict", "train.toml", "--split", "tset"], "the config has no split 'tset'; available: train, dev, test"),
        (["run", "train.toml", "--pdb", "--seeds", "1,2"], "--pdb supports only one experiment at a time"),
        (
            ["run", "train.toml", "--processes", "2", "--seeds", "1,2"],
            "--processes supports only one experiment at a time",
        ),
    ],
)
def test_users_errors(words, text, project, capsys):
    assert main(words) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_cleanly(number, code, project):
    words = [sys.executable, "-m", "alchemy", "run", add_pipe(project, "Slow"), "--device", "-1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert any("stepping" in line for line in process.stdout)
        process.send_signal(number)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert "Traceback" not in err
    (record,) = records(project)
    assert json.loads((record / "record.json").read_text())["status"] == "stopped"


def test_a_background_run_survives_its_terminal_and_can_be_stopped(project):
    words = [sys.executable, "-m", "alchemy", "run", add_pipe(project, "Slow"), "--background", "--device", "-1"]
    started = subprocess.run(words, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert started.returncode == 0, started.stderr
    pid, log = int(re.search(r"pid (\d+)", started.stdout)[1]), re.search(r"log: +(\S.*)", started.stdout)[1]
    deadline = time.monotonic() + 60
    while "stepping" not in Path(log).read_text("utf-8"):
        assert time.monotonic() < deadline, Path(log).read_text("utf-8")
        time.sleep(0.05)
    assert os.getsid(pid) == pid
    assert main(["stop", "latest", "--wait", "30"]) == 0
    (record,) = records(project)
    assert json.loads((record / "record.json").read_text())["status"] == "stopped"
    assert main(["stop", str(pid)]) == 2
