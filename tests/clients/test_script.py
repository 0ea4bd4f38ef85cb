"""The script of the project: train, then test the best model of each run."""

import json

import pytest


def records(folder):
    return sorted(path for path in folder.iterdir() if path.is_dir())


def check(train, test):
    """A test run uses the best model of its training run, and the pipes that the script kept."""
    best, scored = (json.loads((record / "best_info.json").read_text()) for record in (train, test))
    assert best["f1_micro"] > 0.8
    assert scored["f1_micro"] > 0.6
    assert scored["step"] == "unk"
    assert not (test / "evals.jsonl").exists()  # store_history is off
    assert (test / "detail_log/test.jsonl").exists()
    assert not list(test.glob("checkpt/*/*"))
    assert "sched" not in (test / "cfg.toml").read_text().split("[model]")[0].split()


def test_one_config_in_this_process(project, start):
    done = start(project, "train_and_test.py", "train.toml", "--device", "-1")
    (train,), (test,) = (records(project / "records/weixin/tagger" / split) for split in ("train", "test"))
    check(train, test)
    assert f"tested records/weixin/tagger/test/{test.name}" in done.stdout
    # a part defined in the script itself, under its name here
    counts = (train / "counts.txt").read_text().splitlines()
    assert set(counts) == {"__main__ dev 16"}
    assert not (test / "counts.txt").exists()


@pytest.mark.slow
def test_two_configs_in_processes_of_their_own(project, start):
    start(project, "train_and_test.py", "new.toml", "new.toml", "--device", "-1")
    trained, tested = (records(project / "records/new" / split) for split in ("train", "test"))
    assert len(trained) == len(tested) == 2
    for train, test in zip(trained, tested, strict=True):
        check(train, test)
        assert (train / "counts.txt").read_text().startswith("__mp_main__ dev 16")
        assert str(train / "checkpt/best").endswith(train.name + "/checkpt/best")
        assert train.name in (test / "cfg.toml").read_text()
        assert (test / "detail_log/outputs.jsonl").exists()  # without training, SaveAppend has no step to name
