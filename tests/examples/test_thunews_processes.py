"""The command as a program: on real titles, killed and restarted, and with several processes."""

from __future__ import annotations

import csv
import gzip
import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.examples.thunews import ALL, EXAMPLE, environment, flags, tables, write_bert, write_data
from tests.text.sets import needs

pytest.importorskip("transformers", reason="the extra `text` is not installed")
RUN = [sys.executable, str(EXAMPLE / "run.py")]


def finished(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_real_titles_of_five_classes(tmp_path: Path) -> None:
    source, data = needs("thucnews5_csv"), tmp_path / "data"
    data.mkdir()
    with gzip.open(source / "train.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = [next(csv.reader(file)), *itertools.islice(csv.reader(file), 0, 20000, 50)]
    for name in ("dev", "test"):
        with (source / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            part = list(csv.reader(file))
        with (data / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([part[0], *part[1::50]])
    with gzip.open(data / "train.csv.gz", "wt", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    write_bert(tmp_path / "bert", [text for _, text in rows])
    values = {"learning_rate": 0.005, "num_train_epochs": 5.5, "per_gpu_train_batch_size": 16}
    finished([*RUN, *flags(*ALL, "--do_lower_case", **values)], tmp_path)
    assert float(tables(tmp_path / "out")["acc"]) > 0.4  # chance is 0.2
    with (tmp_path / "out" / "predicted.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == 101


@pytest.mark.slow
def test_a_training_that_was_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    write_bert(tmp_path / "bert")
    command = [*RUN, *flags(*ALL, max_steps=400, save_steps=20)]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)
    while not list((tmp_path / "out").glob("records/*/state/last")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "checkpoint-400").exists()
    assert "resuming" in finished(command, tmp_path)
    finished([*command, "--output_dir=whole"], tmp_path)
    for name in ("checkpoint-400/model.safetensors", "checkpoint-400/head.safetensors", "predicted.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.dist
def test_two_processes_train_together(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    write_bert(tmp_path / "bert")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, *RUN[1:], *flags(*ALL, per_gpu_train_batch_size=4, num_train_epochs=2, save_steps=2)]
    finished(command, tmp_path)
    # 24 texts in batches of 4 for each of two: 3 updates per epoch
    assert sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*")) == [
        f"checkpoint-{number}" for number in (2, 4, 6)
    ]
    assert float(tables(tmp_path / "out")["acc"]) > 0.5
    assert len(list((tmp_path / "out" / "records").iterdir())) == 2
    again = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert (
        again.returncode != 0 and again.stderr.count("error: out already contains the finished run of these flags") == 1
    )
    assert "[rank1]: Traceback" not in again.stderr
    write_data(tmp_path / "data", train="label,text\n体育,球赛\n")
    wrong = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert wrong.returncode != 0 and wrong.stderr.count("there is no column 'labels'") == 1
