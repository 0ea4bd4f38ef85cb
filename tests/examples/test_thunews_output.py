"""Handling of an existing --output_dir: resume, start over, or report an error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.examples.thunews import ALL, flags, furnished, rows, tables

pytest.importorskip("transformers", reason="the extra `text` is not installed")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data and a model."""
    return furnished(tmp_path, monkeypatch)


def test_what_is_there_is_not_overwritten_unless_told(
    thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = flags("--do_train", "--do_predict", max_steps=3, save_steps=2)
    assert thunews.main(argv) == 0
    assert thunews.main(argv) == 2
    assert (
        "out already contains the finished run of these flags, and its results; start over with"
        in capsys.readouterr().err
    )
    (place / "out" / "notes.txt").write_text("mine")
    (place / "out" / "predicted.csv").unlink()
    assert thunews.main(argv) == 0  # already trained: only the predictions were missing
    assert len(list((place / "out" / "records").glob("*/ledger.jsonl"))) == 1
    assert len(rows(place / "out")) == 6
    assert thunews.main([*argv, "--overwrite_output_dir", "--max_steps=1"]) == 0
    assert [path.name for path in thunews.checkpoints(place / "out")] == ["checkpoint-1"]
    assert (place / "out" / "notes.txt").read_text() == "mine"


def failing_at(thunews: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Make the last of the named checkpoints fail once; return those that were to be written."""
    own, seen = thunews.output.checkpoints.__globals__, []
    write = own["write"]

    def failing(folder: Path, *others: Any) -> None:
        seen.append(folder.name)
        if seen == list(names):
            raise OSError("the disk is gone")
        write(folder, *others)

    monkeypatch.setitem(own, "write", failing)
    return seen


def test_an_interrupted_training_goes_on(thunews: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = flags(*ALL, max_steps=8, save_steps=2, gradient_accumulation_steps=2)
    assert thunews.main([*argv, "--output_dir=whole"]) == 0
    seen = failing_at(thunews, monkeypatch, "checkpoint-2", "checkpoint-4", "checkpoint-6")
    assert thunews.main(argv) == 1
    assert not (place / "out" / "predicted.csv").exists()
    assert thunews.main(argv) == 0
    assert seen[3:] == ["checkpoint-6", "checkpoint-8"]
    for name in ("model.safetensors", "head.safetensors"):
        one, other = ((place / root / "checkpoint-8" / name).read_bytes() for root in ("whole", "out"))
        assert one == other
    assert rows(place / "out") == rows(place / "whole")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("how", ["weights", "flag", "killed"])
def test_what_is_to_be_overwritten_is_there_until_the_new_training_has_begun(
    thunews: Any, place: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert thunews.main(flags("--do_train", "--do_predict", max_steps=2)) == 0
    before = contents(place / "out")
    argv = flags("--do_train", "--overwrite_output_dir", max_steps=1)
    match how:
        case "weights":
            (place / "bert" / "model.safetensors").write_bytes(b"cut")
            assert thunews.main(argv) != 0
            assert "training failed before its first update: out is unchanged" in capsys.readouterr().err
        case "flag":
            monkeypatch.setattr(thunews.translate, "check_model", lambda *args: None)
            assert thunews.main([*argv, "--warmup_steps=9"]) == 2
        case "killed":  # after it has set the old output aside, and started to write
            thunews.former.set_aside(thunews.output.written(place / "out"), place / "out")
            (place / "out" / "config.toml").write_text("half")
            (place / "out" / "records").mkdir()
            assert not thunews.checkpoints(place / "out")
            assert thunews.main(flags("--do_eval", "--model_type=xlnet")) == 2
    assert contents(place / "out") == before
    shutil.rmtree(place / "bert")
    furnished(place, monkeypatch)
    assert thunews.main(argv) == 0
    assert sorted(path.name for path in (place / "out").iterdir()) == ["checkpoint-1", "config.toml", "records"]


def test_a_training_that_was_killed_before_its_first_state_begins_anew(
    thunews: Any, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = flags("--do_train", max_steps=3, save_steps=2)
    failing_at(thunews, monkeypatch, "checkpoint-2")
    assert thunews.main(argv) == 1
    assert not list((place / "out" / "records").glob("*/state/u*"))
    (place / "out" / "checkpoint-2").mkdir()
    (place / "out" / ".checkpoint-2.vm-7.x").mkdir()
    assert thunews.main(argv) == 0
    assert "was interrupted before its first checkpoint: training starts over\n" in capsys.readouterr().out
    names = ["checkpoint-2", "checkpoint-3", "config.toml", "records"]
    assert sorted(path.name for path in (place / "out").iterdir()) == names
    assert len(list((place / "out" / "records").iterdir())) == 1


def test_flags_that_change_no_result_do_not_keep_a_training_from_going_on(
    thunews: Any, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = flags("--do_train", max_steps=4, save_steps=2)
    assert thunews.main([*argv, "--output_dir=whole"]) == 0
    failing_at(thunews, monkeypatch, "checkpoint-2", "checkpoint-4")
    assert thunews.main(argv) == 1
    assert thunews.main([*argv, "--learning_rate=0.02", "--gradient_accumulation_steps=3", "--fp16"]) == 2
    told = "gradient_accumulation_steps was 1, is 3; learning_rate was 0.01, is 0.02; fp16 was not given, is fp16; use"
    assert f"error: out contains a training run with other flags: {told}" in capsys.readouterr().err
    more = ("--overwrite_cache", "--logging_steps=1", "--per_gpu_eval_batch_size=3", "--do_eval", "--do_predict")
    assert thunews.main([*argv, *more]) == 0
    assert "resuming" in capsys.readouterr().out
    for name in ("model.safetensors", "head.safetensors"):
        one, other = ((place / root / "checkpoint-4" / name).read_bytes() for root in ("whole", "out"))
        assert one == other
    [config] = (place / "out" / "records").glob("*/cfg.0.toml")  # the former config
    assert "log_every = 1\n" in (config.parent / "cfg.toml").read_text()
    assert len(rows(place / "out")) == 6 and "acc" in tables(place / "out")


def test_files_of_others_are_not_taken_for_a_training(
    thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "out").mkdir()
    (place / "out" / "notes.txt").write_text("mine")
    assert thunews.main(flags("--do_train")) == 2
    assert "out is not empty and contains no record of a training run; start over with" in capsys.readouterr().err
